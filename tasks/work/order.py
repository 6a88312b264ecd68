"""Steps and orders: what there is to do of a release, in public plain values, so that anybody can do it who knows the same Trellis.

An order is a step with what it needs of the release's record, and no more. It names its mechanism, its sampler and its optimiser by the
terms of the release, and travels as JSON.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from storage.record import EarlierDay, Record
from storage.releases.parts import Part
from storage.releases.register import Release
from storage.releases.shards import TRUNK, Branch, Shard, by_kind
from storage.releases.terms import FileTerms, Terms

# measure: draw the noisy counts of a level of a branch. repair: turn them into consistent ones. repeat: give the cells of a level, each the
# only one in its parent, the counts of their parents. sum: add up the level below. estimate: estimate the nodes of a branch from all
# that is sealed of it and below it. gather, fit, share: gather what is to be learnt of a level from a branch, fit the prior of the level
# to what all branches have gathered, and share the counts above out by it. settle: turn the estimates of a branch into released counts.
# together: turn all that is sealed into released counts at once. calibrate: make levels add up to totals of single axes. cut: cut a
# branch after a level.
StepKind = Literal[
    "measure", "repair", "repeat", "sum", "estimate", "gather", "fit", "share", "settle", "together", "calibrate", "cut"
]


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do of one level of one branch.

    Attributes:
        level: the level; of what is about all levels of a branch, its first one.
    """

    kind: StepKind
    level: int
    branch: str = TRUNK


@dataclass(frozen=True, slots=True)
class Order:
    """A step with what it needs.

    Attributes:
        turn: of measuring: how often this level of this branch was begun before; 0 for others.
        record: what the stage needs of the release's record. What travels has no charges, no path and no spec.
    """

    step: Step
    turn: int
    record: Record

    @property
    def kind(self) -> StepKind:
        """What to do."""
        return self.step.kind

    @property
    def level(self) -> int:
        """The level of its step."""
        return self.step.level

    @property
    def branch(self) -> str:
        """The branch of its step."""
        return self.step.branch

    @property
    def release_id(self) -> str:
        """The release."""
        return self.record.release.id

    def to_json(self) -> str:
        """Return the order as it travels."""
        record = self.record
        rows = {
            "branches": [asdict(branch) for branch in record.branches.values()],
            "shards": [asdict(shard) for shard in record.all_shards],
        }
        content = {"step": asdict(self.step), "turn": self.turn, "runs": record.runs}
        content["earlier"] = [[day.release_id, [asdict(seal) for seal in day.seals.values()]] for day in record.earlier]
        return json.dumps(content | {"release": _plain_release(record.release)} | rows)

    @classmethod
    def from_json(cls, text: str) -> "Order":
        """Return the order that travelled."""
        content = json.loads(text)
        branches = {row["name"]: Branch(**row) for row in content["branches"]}
        shards = by_kind(Shard(**row) for row in content["shards"])
        days = [(day, [Shard(**seal) for seal in seals]) for day, seals in content["earlier"]]
        earlier = tuple(EarlierDay(day, {seal.level: seal for seal in seals}) for day, seals in days)
        runs = tuple(content["runs"])
        record = Record(_release_of(content["release"]), {}, branches, shards, runs, earlier)
        return cls(Step(**content["step"]), content["turn"], record)


def part_for(record: Record, branch: str) -> Record:
    """Return what the stages of a branch need of a record: its own rows, those on which it stands, and those of its pieces."""
    pieces, levels = record.pieces(branch), record.levels_of(branch)
    own = record.branches.get(branch)
    branches = {name: record.branches[name] for name in ([branch] if own else []) + pieces}

    def is_needed(shard: Shard) -> bool:
        if shard.kind == "calibrated":
            return False
        return (
            shard.branch == branch
            or (shard.kind == "prior" and shard.branch == TRUNK)
            or (own is not None and shard.place == (own.cut_level, own.parent))
            or (shard.level == levels[-1] and shard.branch in pieces)
        )

    needed = by_kind(filter(is_needed, record.all_shards))
    return Record(_public(record.release), {}, branches, needed, record.runs, record.earlier)


def _public(release: Release) -> Release:
    """Return a release without what no stage needs: its spec and its paths."""
    terms = replace(release.terms, published_spec={}, files=FileTerms("", {}))
    return _needed(release.id, release.dataset, terms, release.levels, release.views)


def _needed(release_id: str, dataset: str, terms: Terms, levels: tuple[Part, ...], views: tuple[Part, ...]) -> Release:
    """Return a release of which nothing is known but what stages need."""
    return Release(
        id=release_id,
        name="",
        dataset=dataset,
        state="running",
        reason="",
        created="",
        spec="",
        terms=terms,
        folder="",
        levels=levels,
        views=views,
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
    terms, levels, views = Terms.from_json(content["terms"]), content["levels"], content["views"]
    return _needed(content["id"], content["dataset"], terms, _levels_of(levels), _levels_of(views))


def _plain_levels(levels: Iterable[Part]) -> list[dict[str, Any]]:
    return [asdict(terms) | {"rho": str(terms.rho), "tau": str(terms.tau)} for terms in levels]


def _levels_of(levels: Iterable[Mapping[str, Any]]) -> tuple[Part, ...]:
    return tuple(Part(**{**terms, "rho": Fraction(terms["rho"]), "tau": Fraction(terms["tau"])}) for terms in levels)
