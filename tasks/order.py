"""Orders: what a stage has to do, in public plain values, so that it can be done anywhere and by anybody who knows the same Trellis.

An order names its mechanism, its sampler and its optimiser by the terms of the release. It holds what the stage needs of the
release's record, and no more. It travels as JSON.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from storage.record import Record
from storage.releases.register import Release
from storage.releases.seals import TRUNK, Branch, EstimateShard, FrontierShard, Place, Seal
from storage.releases.terms import FileTerms, LevelTerms, Terms

_KINDS: Mapping[str, Callable[..., Any]] = {
    "branches": Branch,
    "seals": Seal,
    "frontiers": FrontierShard,
    "estimates": EstimateShard,
    "settled": FrontierShard,
    "statistics": EstimateShard,
    "priors": EstimateShard,
}


@dataclass(frozen=True, slots=True)
class Order:
    """What a stage of one branch has to do.

    Attributes:
        stage: its name, as `flows.walks.orders` knows them.
        level: the level; the first one of the branch, where the stage is about all of its levels.
        branch: the branch.
        turn: of measuring: how often this level of this branch was begun before; 0 for others.
        record: what the stage needs of the release's record. It has no charges, no path and no spec.
    """

    stage: str
    level: int
    branch: str
    turn: int
    record: Record

    @property
    def release_id(self) -> str:
        """The release."""
        return self.record.release.id

    def to_json(self) -> str:
        """Return the order as it travels."""
        record = self.record
        rows = {name: [asdict(row) for row in getattr(record, name).values()] for name in _KINDS}
        content = {"stage": self.stage, "level": self.level, "branch": self.branch, "turn": self.turn}
        return json.dumps(content | {"release": _plain_release(record.release)} | rows)

    @classmethod
    def from_json(cls, text: str) -> "Order":
        """Return the order that travelled."""
        content = json.loads(text)
        rows = {name: [kind(**row) for row in content[name]] for name, kind in _KINDS.items()}
        branches = {branch.name: branch for branch in rows.pop("branches")}
        places = {name: {(row.level, row.branch): row for row in of} for name, of in rows.items()}
        record = Record(_release_of(content["release"]), {}, branches, **places)
        return cls(content["stage"], content["level"], content["branch"], content["turn"], record)


def part_for(record: Record, branch: str) -> Record:
    """Return what the stages of a branch need of a record: its own rows, those on which it stands, and those of its parts.

    Args:
        record: of the release.
        branch: the branch.
    """
    parts, levels = record.parts(branch), record.levels_of(branch)
    own = record.branches.get(branch)
    branches = {name: record.branches[name] for name in ([branch] if own else []) + parts}

    def of(rows: Mapping[Place, Any]) -> dict[Place, Any]:
        return {
            (level, name): row
            for (level, name), row in rows.items()
            if name == branch
            or (own and (level, name) == (own.cut_level, own.parent))
            or (level == levels[-1] and name in parts)
        }

    return Record(
        _public(record.release),
        {},
        branches,
        of(record.seals),
        of(record.frontiers),
        of(record.estimates),
        of(record.settled),
        statistics=of(record.statistics),
        priors={place: prior for place, prior in record.priors.items() if place[1] == TRUNK},
    )


def _public(release: Release) -> Release:
    """Return a release without what no stage needs: its spec and its paths."""
    terms = replace(release.terms, published_spec={}, files=FileTerms("", {}))
    return replace(
        release, name="", state="running", reason="", created="", spec="", terms=terms, folder="", supersedes=None
    )


def _plain_release(release: Release) -> dict[str, Any]:
    return {
        "id": release.id,
        "dataset": release.dataset,
        "terms": release.terms.to_json(),
        "levels": _plain_levels(release.levels),
        "views": _plain_levels(release.views),
    }


def _release_of(content: Mapping[str, Any]) -> Release:
    return Release(
        id=content["id"],
        name="",
        dataset=content["dataset"],
        state="running",
        reason="",
        created="",
        spec="",
        terms=Terms.from_json(content["terms"]),
        folder="",
        levels=_levels_of(content["levels"]),
        views=_levels_of(content["views"]),
    )


def _plain_levels(levels: Iterable[LevelTerms]) -> list[dict[str, Any]]:
    return [asdict(terms) | {"rho": str(terms.rho), "tau": str(terms.tau)} for terms in levels]


def _levels_of(levels: Iterable[Mapping[str, Any]]) -> tuple[LevelTerms, ...]:
    return tuple(
        LevelTerms(**{**terms, "rho": Fraction(terms["rho"]), "tau": Fraction(terms["tau"])}) for terms in levels
    )
