"""The store's tables, as steps that are never edited once they have landed; a later shape is a later step."""

_FIRST_STOREY = """
CREATE TABLE releases (
    id VARCHAR PRIMARY KEY,
    name VARCHAR NOT NULL,
    dataset VARCHAR NOT NULL,
    state VARCHAR NOT NULL,             -- reserved, running, published, failed, refused, abandoned
    reason VARCHAR NOT NULL,            -- public; empty unless failed or refused
    created VARCHAR NOT NULL,           -- UTC, ISO 8601
    spec VARCHAR NOT NULL,              -- as written
    terms VARCHAR NOT NULL,             -- JSON: what the stages need to know, public
    folder VARCHAR NOT NULL             -- where it is published
);
CREATE TABLE levels (
    release_id VARCHAR NOT NULL,
    level INTEGER NOT NULL,
    axes VARCHAR NOT NULL,              -- JSON: {axis: level name or null}
    possible_cells VARCHAR NOT NULL,    -- an integer that may exceed 64 bits
    is_invariant BOOLEAN NOT NULL,      -- published exactly, unprotected
    rho VARCHAR NOT NULL,               -- an exact fraction
    sigma DOUBLE NOT NULL,              -- 0 where the level is invariant
    l2_sensitivity_squared INTEGER NOT NULL,
    bound DOUBLE NOT NULL,
    PRIMARY KEY (release_id, level)
);
CREATE TABLE branches (
    release_id VARCHAR NOT NULL,
    branch VARCHAR NOT NULL,
    trunk_level INTEGER NOT NULL,       -- the trunk's last level, whose frontier the branch is a slice of
    first_node BIGINT NOT NULL,
    end_node BIGINT NOT NULL,           -- not included
    holds VARCHAR NOT NULL,             -- JSON: the codes of its first and last node
    PRIMARY KEY (release_id, branch)
);
CREATE TABLE seals (
    release_id VARCHAR NOT NULL,
    level INTEGER NOT NULL,
    branch VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,            -- of the shard of noisy counts
    cells BIGINT NOT NULL,
    sealed_at VARCHAR NOT NULL,
    PRIMARY KEY (release_id, level, branch)
);
CREATE TABLE frontiers (
    release_id VARCHAR NOT NULL,
    level INTEGER NOT NULL,
    branch VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,            -- of the shard of released counts
    nonzero BIGINT NOT NULL,
    cells_below BIGINT NOT NULL,        -- cells of the next level below it
    PRIMARY KEY (release_id, level, branch)
);
CREATE TABLE checks (
    release_id VARCHAR NOT NULL,
    "check" VARCHAR NOT NULL,
    level INTEGER NOT NULL,
    passed BOOLEAN NOT NULL,
    checked_at VARCHAR NOT NULL
);
CREATE TABLE ledger (
    position BIGINT PRIMARY KEY,
    event VARCHAR NOT NULL,             -- canonical JSON
    hash VARCHAR NOT NULL               -- sha256 over the previous hash and the event
);
"""

_DERIVED_SENSITIVITY = """
ALTER TABLE levels ALTER l2_sensitivity_squared TYPE BIGINT;
ALTER TABLE levels ADD COLUMN derivation VARCHAR DEFAULT '';    -- of l2_sensitivity_squared, in words
"""

_RUNS = """
CREATE TABLE runs (
    run VARCHAR PRIMARY KEY,            -- Prefect's id of the flow run, which a retry keeps
    release_id VARCHAR NOT NULL,
    began VARCHAR NOT NULL,             -- UTC, ISO 8601; the last time
    is_open BOOLEAN NOT NULL            -- until it ends, or is found to be dead
);
"""

_TAU = """
ALTER TABLE levels ADD COLUMN tau VARCHAR DEFAULT '0';          -- of the sampler, an exact fraction
"""

_BRANCHES_OF_BRANCHES = """
ALTER TABLE branches RENAME COLUMN trunk_level TO cut_level;    -- of the frontier of which the branch is a slice
ALTER TABLE branches ADD COLUMN parent VARCHAR DEFAULT 'trunk'; -- the branch whose frontier that is
"""

_SETTLING = """
CREATE TABLE estimates (
    release_id VARCHAR NOT NULL,
    level INTEGER NOT NULL,
    branch VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,            -- of the shard of estimates; of the parent branch's nodes at the level of the cut
    PRIMARY KEY (release_id, level, branch)
);
CREATE TABLE settled (
    release_id VARCHAR NOT NULL,
    level INTEGER NOT NULL,
    branch VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,            -- of the shard of released counts
    nonzero BIGINT NOT NULL,
    PRIMARY KEY (release_id, level, branch)
);
"""

_LEAVES_ONLY = """
ALTER TABLE levels ALTER bound DROP NOT NULL;                   -- null where a mechanism states none
ALTER TABLE levels ADD COLUMN is_summed BOOLEAN DEFAULT false;  -- not measured: the sums of the finest level's counts
ALTER TABLE levels ADD COLUMN mechanism VARCHAR DEFAULT 'discrete_gaussian';
ALTER TABLE levels ADD COLUMN epsilon DOUBLE DEFAULT 0;         -- of a mechanism that is only (epsilon, delta)
ALTER TABLE levels ADD COLUMN delta DOUBLE DEFAULT 0;
ALTER TABLE levels ADD COLUMN scale DOUBLE DEFAULT 0;           -- of discrete Laplace noise
ALTER TABLE levels ADD COLUMN threshold BIGINT DEFAULT 0;       -- the least noisy count that is kept
"""

_REVISIONS = """
ALTER TABLE releases ADD COLUMN supersedes VARCHAR;             -- the release whose place it takes; null where there is none
"""

_READABLE_VIEWS = """
CREATE TABLE published_levels (
    release_id VARCHAR NOT NULL,
    level INTEGER NOT NULL,
    view_name VARCHAR NOT NULL,         -- in the schema of the release; a release from before this step has no other than level_<k>
    "rows" BIGINT NOT NULL,
    PRIMARY KEY (release_id, level)
);
INSERT INTO published_levels
SELECT levels.release_id, levels.level, 'level_' || levels.level, coalesce(
    (SELECT sum(nonzero)::BIGINT FROM settled WHERE settled.release_id = levels.release_id AND settled.level = levels.level),
    (SELECT sum(nonzero)::BIGINT FROM frontiers WHERE frontiers.release_id = levels.release_id AND frontiers.level = levels.level),
    0
)
FROM levels JOIN releases ON releases.id = levels.release_id
WHERE releases.state = 'published';
CREATE VIEW published AS
SELECT releases.id AS release, levels.level AS level, published_levels.view_name AS "view", published_levels."rows" AS "rows",
    levels.sigma AS sigma, levels.bound AS bound, releases.created AS created, releases.supersedes AS supersedes
FROM releases
JOIN levels ON levels.release_id = releases.id
JOIN published_levels ON published_levels.release_id = levels.release_id AND published_levels.level = levels.level
WHERE releases.state = 'published'
ORDER BY releases.created, releases.id, levels.level;
"""

MIGRATIONS = (
    _FIRST_STOREY,
    _DERIVED_SENSITIVITY,
    _RUNS,
    _TAU,
    _BRANCHES_OF_BRANCHES,
    _SETTLING,
    _LEAVES_ONLY,
    _REVISIONS,
    _READABLE_VIEWS,
)
