"""The store's tables: the schema of a new store, and the steps that will change it.

The comment above each table and beside each column is its documentation: docs/reference/store.md is made from it.
"""

SCHEMA = """
-- one row per release, whatever its state
CREATE TABLE releases (
    id VARCHAR PRIMARY KEY,             -- `<name>-<UTC time>`, or `<name>-<day>` of a schedule
    name VARCHAR NOT NULL,              -- the spec's name
    dataset VARCHAR NOT NULL,           -- the dataset whose people the release is about; their budget is charged
    state VARCHAR NOT NULL,             -- reserved, running, published, failed, refused or abandoned
    reason VARCHAR NOT NULL,            -- why it failed or was refused; public, otherwise empty
    created VARCHAR NOT NULL,           -- UTC, ISO 8601
    spec VARCHAR NOT NULL,              -- the text of the spec, as written
    terms VARCHAR NOT NULL,             -- JSON: what the stages need to know; public
    folder VARCHAR NOT NULL,            -- the folder in which it is published
    supersedes VARCHAR                  -- the id of the release that it replaces; null where it replaces none
);
-- one row per level of a release: what was decided about it before anything was drawn
CREATE TABLE levels (
    release_id VARCHAR NOT NULL,        -- the release's id
    level INTEGER NOT NULL,             -- the level of the tree; 0 is everything
    axes VARCHAR NOT NULL,              -- JSON: {axis: level name or null}
    possible_cells VARCHAR NOT NULL,    -- the cells if every node survived: an integer that may exceed 64 bits, or `unknown` where no codebook lists the codes
    is_invariant BOOLEAN NOT NULL,      -- whether the counts are published exactly, unprotected
    rho VARCHAR NOT NULL,               -- the level's share of rho, an exact fraction; 0 where the level is not measured, or by a mechanism that is only (epsilon, delta)
    sigma DOUBLE NOT NULL,              -- the standard deviation of the noise, in records: of a summed level that of its widest cell; 0 where the level is invariant, or sums only the cells that reached a threshold
    l2_sensitivity_squared BIGINT NOT NULL, -- how far one unit moves the level's counts in the Euclidean norm, squared, in squared records; 0 where the level takes no rho
    bound DOUBLE,                       -- with 95% probability every count of the level is within this many records of the true count; null where the mechanism states no bound
    derivation VARCHAR NOT NULL,        -- how l2_sensitivity_squared is derived, in words
    tau VARCHAR NOT NULL,               -- at most how far the sampler is from its law, in total variation over the cells that one unit can touch; an exact fraction
    is_summed BOOLEAN NOT NULL,         -- whether nothing is measured here, and the counts are sums of the finest level's
    mechanism VARCHAR NOT NULL,         -- the noise that is drawn
    epsilon DOUBLE NOT NULL,            -- the epsilon of a mechanism that is only (epsilon, delta); otherwise 0
    delta DOUBLE NOT NULL,              -- the delta of a mechanism that is only (epsilon, delta); otherwise 0
    scale DOUBLE NOT NULL,              -- the scale of discrete Laplace noise, in records, or of what is drawn for sums of days, in units of their weights; otherwise 0
    threshold BIGINT NOT NULL,          -- the least noisy count that is kept, in records; 0 where all are kept
    same_as INTEGER,                    -- the level above that a level repeats, since each of its cells holds one cell of this level; null for others
    "view" VARCHAR NOT NULL,            -- the name of the view that it is, or that has the cells of this level; empty for other levels. A view without a level of its own has a number above that of the finest level
    source INTEGER,                     -- where everything is settled together, the level or view from whose measurement intervals follow; otherwise null
    PRIMARY KEY (release_id, level)
);
-- one row per branch: a slice of a frontier that is processed by itself; the trunk has no row
CREATE TABLE branches (
    release_id VARCHAR NOT NULL,        -- the release's id
    branch VARCHAR NOT NULL,            -- the branch's name
    cut_level INTEGER NOT NULL,         -- the level of the frontier that was cut into branches
    first_node BIGINT NOT NULL,         -- the first node of the slice
    end_node BIGINT NOT NULL,           -- the node after the last one of the slice
    holds VARCHAR NOT NULL,             -- JSON: the codes of its first and last node
    parent VARCHAR NOT NULL,            -- the branch whose frontier was cut; `trunk` for the first cut
    PRIMARY KEY (release_id, branch)
);
-- one row per shard: something drawn, optimised or learnt of one level of one branch; nobody has read noisy counts that have no row
CREATE TABLE shards (
    release_id VARCHAR NOT NULL,        -- the release's id
    kind VARCHAR NOT NULL,              -- noisy: as drawn, never again; counts: of the first pass down the tree; estimates: of a second pass; settled: its counts; calibrated: counts that add up to totals of single axes, and these totals; statistics: gathered from estimates in a branch; prior: fitted to those of all branches
    level INTEGER NOT NULL,             -- the level of the tree, or the number of a view; 0 is everything
    branch VARCHAR NOT NULL,            -- the branch's name; `trunk` for what is above all branches. At the level of a cut, estimates are about the parent branch's nodes
    sha256 VARCHAR NOT NULL,            -- the hash of the shard
    "rows" BIGINT NOT NULL,             -- how many cells were drawn, or have a count that is not 0; 0 of estimates, statistics and priors
    cells_below BIGINT NOT NULL,        -- of the first pass, how many cells of the next level lie below them; otherwise 0
    turn INTEGER NOT NULL,              -- of noisy counts, the turn in which they were drawn, which the name of their file has from 1 on; otherwise 0
    made_at VARCHAR NOT NULL,           -- UTC, ISO 8601
    PRIMARY KEY (release_id, kind, level, branch)
);
-- the seals: the shards of noisy counts
CREATE VIEW seals AS
SELECT
    release_id AS release_id,           -- the release's id
    level AS level,                     -- the level of the tree, or the number of a view; 0 is everything
    branch AS branch,                   -- the branch's name; `trunk` for what is above all branches
    sha256 AS sha256,                   -- the hash of the shard
    shards."rows" AS cells,             -- how many cells the shard holds
    turn AS turn,                       -- as in `shards`
    shards.made_at AS sealed_at         -- UTC, ISO 8601
FROM shards WHERE kind = 'noisy';
-- one row per consistency check before publication
CREATE TABLE checks (
    release_id VARCHAR NOT NULL,        -- the release's id
    "check" VARCHAR NOT NULL,           -- the check's name
    level INTEGER NOT NULL,             -- the level of the tree; 0 is everything
    passed BOOLEAN NOT NULL,            -- whether the release passed it
    checked_at VARCHAR NOT NULL         -- UTC, ISO 8601
);
-- the ledger's events, each with a hash over the one before; what is spent is computed from them
CREATE TABLE ledger (
    position BIGINT PRIMARY KEY,        -- 0, 1, 2, … without a gap
    event VARCHAR NOT NULL,             -- canonical JSON
    hash VARCHAR NOT NULL               -- sha256 over the previous hash and the event
);
-- Prefect's flow runs, so that a crash is noticed
CREATE TABLE runs (
    run VARCHAR PRIMARY KEY,            -- Prefect's id of the flow run, which a retry keeps
    release_id VARCHAR NOT NULL,        -- the release's id
    began VARCHAR NOT NULL,             -- when it last began: UTC, ISO 8601
    is_open BOOLEAN NOT NULL            -- whether it runs, as far as the store knows: true until it ends or is found dead
);
-- one row per published level: its readable view
CREATE TABLE published_levels (
    release_id VARCHAR NOT NULL,        -- the release's id
    level INTEGER NOT NULL,             -- the level of the tree; 0 is everything
    view_name VARCHAR NOT NULL,         -- the view's name in the schema of the release, beside `level_<k>`
    "rows" BIGINT NOT NULL,             -- how many rows its table has
    PRIMARY KEY (release_id, level)
);
-- one row per release that was reserved under an approved plan
CREATE TABLE approvals (
    release_id VARCHAR PRIMARY KEY,     -- the release's id
    fingerprint VARCHAR NOT NULL,       -- the fingerprint of the plan: the sha256 over what it states of spec, codebooks and budget; the ledger has it too
    made VARCHAR NOT NULL,              -- when the plan was made: UTC, ISO 8601
    kept_at VARCHAR NOT NULL,           -- when the release was reserved: UTC, ISO 8601
    plan VARCHAR NOT NULL               -- the text of the file that was given as the approved plan: a page, or JSON
);
-- one row per turn of measuring a level of a branch: a turn that was given up is drawn anew by the next one, and nobody has read what it drew
CREATE TABLE turns (
    release_id VARCHAR NOT NULL,        -- the release's id
    level INTEGER NOT NULL,             -- the level of the tree, or the number of a view
    branch VARCHAR NOT NULL,            -- the branch's name; `trunk` for what is above all branches
    turn INTEGER NOT NULL,              -- 0, 1, 2, … without a gap
    state VARCHAR NOT NULL,             -- open: something may be drawn; closed: sealed; given up: who drew has gone, or the release was stopped
    PRIMARY KEY (release_id, level, branch, turn)
);
-- one row per release: what the ledger recognises its table by. It depends on the table, so it is for the keeper of the store alone, and neither the ledger nor anything published has it
CREATE TABLE recognised (
    release_id VARCHAR PRIMARY KEY,     -- the release's id
    columns VARCHAR,                    -- JSON: {codes: the columns of codes, count: that of counts or null}; null where an earlier Trellis has read the table
    records VARCHAR NOT NULL,           -- the keyed fingerprint of these columns of all records, in any order; empty where an earlier Trellis has read the table
    file VARCHAR NOT NULL,              -- the keyed fingerprint of the file, where it may hold other tables of the same people; otherwise empty
    different_people_from VARCHAR NOT NULL -- JSON: the datasets that had used the table when the caller said that it holds other people
);
-- what is published, one row per release and level: begin a query here
CREATE VIEW published AS
SELECT
    releases.id AS release,             -- the release's id
    levels.level AS level,              -- the level of the tree; 0 is everything
    published_levels.view_name AS "view", -- the view's name in the schema of the release, beside `level_<k>`
    published_levels."rows" AS "rows",  -- how many rows its table has
    levels.sigma AS sigma,              -- as in `levels`
    levels.bound AS bound,              -- as in `levels`
    releases.created AS created,        -- UTC, ISO 8601
    releases.supersedes AS supersedes   -- the id of the release that it replaces; null where it replaces none
FROM releases
JOIN levels ON levels.release_id = releases.id
JOIN published_levels ON published_levels.release_id = levels.release_id AND published_levels.level = levels.level
WHERE releases.state = 'published'
ORDER BY releases.created, releases.id, levels.level;
"""

# Step n brings a store from version n - 1 to n. A step is never edited once it is published: a change is a further step.
STEPS: tuple[str, ...] = (SCHEMA,)
