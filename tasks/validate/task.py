"""The validate stage: each check of a level, as rows for the store."""

from storage.books import Charge, as_charged
from storage.database import store
from storage.ledger import charges_of
from storage.releases import LevelTerms, find_release
from storage.seals import list_frontiers, list_seals
from storage.shards import is_shard, noisy_path
from tasks.stage import stage
from tasks.tree.task import load_level, tree_of
from tasks.validate.checks import adds_to_total, areas_known_once, children_add_up, counts_whole_and_positive

CheckRow = tuple[str, int, bool]


@stage("validate level {level}")
def validate_level(release_id: str, level: int) -> list[CheckRow]:
    """Return (check, level, passed) for every check of one level."""
    with store() as con:
        release = find_release(con, release_id)
        frontiers, seals = list_frontiers(con, release_id), list_seals(con, release_id)
        charge = charges_of(con, release_id).get(level)
    tree = tree_of(release)
    nodes = load_level(release, level, frontiers)
    total = int(load_level(release, 0, frontiers).counts[0])
    found = {
        "counts_whole_and_positive": counts_whole_and_positive(nodes),
        "children_add_up": level == 0 or children_add_up(tree, load_level(release, level - 1, frontiers), nodes),
        "adds_to_total": adds_to_total(nodes, total),
        "areas_known_once": areas_known_once(tree, nodes),
        "seals_match": all(
            is_shard(noisy_path(release_id, level, branch), seal.sha256)
            for (of, branch), seal in seals.items()
            if of == level
        ),
        "charged_as_planned": _charged_as_planned(release.levels[level], charge),
    }
    return [(check, level, passed) for check, passed in found.items()]


def _charged_as_planned(terms: LevelTerms, charge: Charge | None) -> bool:
    drawn = charge is None or charge.state in {"sealed", "released"}
    return drawn and as_charged(terms, charge)
