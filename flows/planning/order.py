"""The order in which trips with attributes are refined, and their views, where a spec leaves both to Trellis. The rule reads public things alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.planning.compatibility import incompatible_keys, mechanism_asked_for
from flows.specification.keys import Spec
from flows.specification.sections.views import ATTRIBUTES
from storage.releases.terms import SURVIVORS
from tasks.tree.order import Tree
from tasks.uncertainty.bounds import finest_above_noise
from tasks.uncertainty.mixture import ABOVE_THE_NOISE
from tasks.words.levels import place
from tasks.words.numbers import format_cells
from tasks.words.spelling import entry_of

_THEN = "the attributes follow, those with the fewest codes first"
_IS_PUBLIC = "expected_total decides this, and the order is published: give a guess that may be known"
_BESIDE = (
    "beside the tree, the totals of each axis are measured, and those by each attribute in the coarsest areas"
    f" (release.views: {ATTRIBUTES}; none leaves them out)"
)


@dataclass(frozen=True, slots=True)
class ChosenOrder:
    """What takes the place of `release.order`.

    Attributes:
        order: as the spec would list it.
        reason: why, as one sentence without a full stop.
    """

    order: tuple[str, ...]
    reason: str


def is_open(spec: Spec) -> bool:
    """Return whether a spec leaves the order to Trellis."""
    return spec.has_ends and bool(spec.input.features) and spec.release.order is None


def with_order(spec: Spec, order: Sequence[str]) -> Spec:
    """Return a spec that lists its order."""
    return spec.model_copy(update={"release": spec.release.model_copy(update={"order": [*order], "tree": None})})


def with_views(spec: Spec) -> Spec:
    """Return a spec with views of attributes, unless it names views itself, or has what does not go with them."""
    if spec.release.views is not None or spec.measure == SURVIVORS or "split" in spec.privacy.model_fields_set:
        return spec
    asked = spec.model_copy(update={"release": spec.release.model_copy(update={"views": ATTRIBUTES})})
    is_possible = not any(incompatible_keys(asked, mechanism_asked_for(asked)))
    return asked if is_possible and mechanism_asked_for(asked).measures_views else spec


def geography_first(tree: Tree) -> tuple[str, ...]:
    """Return the order in which the ends take turns down to their finest levels, and attributes follow, those with the fewest codes first.

    Args:
        tree: of which the ends are refined first.
    """
    steps = tree.steps[: _geography(tree)]
    return (*_entries(tree, steps), *_attributes(tree))


def chosen_order(tree: Tree, sigmas: Sequence[float] | None, total: int | None, *, has_views: bool) -> ChosenOrder:
    """Return the order that the codebooks and a guess of the number of records speak for.

    The ends come first, down to the finest level at which the mean count is at least twice the noise. Attributes follow, and after
    them what is left of the ends. Without a guess, or where levels are sums of leaves whatever their order, all of the ends come first.

    Args:
        tree: in the order of `geography_first`.
        sigmas: σ of its levels, records; None where levels are sums of leaves.
        total: the guess, records; None without one.
        has_views: whether views of attributes are measured beside the tree.
    Guarantees:
        Reads no table.
    """
    geography = _geography(tree)
    cut, reason = geography, f"the ends come first, down to their finest levels; {_THEN}"
    if sigmas is None:
        reason += "; all levels are sums of leaves, so no order has less noise"
    elif total is None:
        reason += "; with expected_total, Trellis would ask down to which level counts stand out"
    else:
        possible = [tree.possible_cells(level) for level in range(geography + 1)]
        cut = finest_above_noise(total, sigmas[: geography + 1], possible) or 0
        reason = f"{_compared(tree, cut, total, sigmas)}; {_IS_PUBLIC}"
    steps = tree.steps[:geography]
    order = (*_entries(tree, steps[:cut]), *_attributes(tree), *_entries(tree, steps, cut))
    return ChosenOrder(order, f"{reason}; {_BESIDE}" if has_views else reason)


def _compared(tree: Tree, cut: int, total: int, sigmas: Sequence[float]) -> str:
    """Return how the mean count and the noise compare at the finest level of the ends that stands out, or at the first one."""
    level = cut or 1
    ends = {tree.axes[axis].name: tree.axes[axis].level_name(tree.axis_levels(level)[axis]) for axis in tree.ends or ()}
    cells, is_above = format_cells(tree.possible_cells(level)), "at least" if cut else "less than"
    mean = total / tree.possible_cells(level)
    noise = f"{is_above} {ABOVE_THE_NOISE:g} σ = {ABOVE_THE_NOISE * sigmas[level]:,.3g}"
    compared = f"{total:,} records spread evenly over the {cells} cells of {place(ends)} are {mean:,.3g} each, {noise}"
    if not cut:
        return f"{compared}, so the attributes come first, those with the fewest codes before others"
    rest = "" if cut == _geography(tree) else ", and then finer areas, in which it would be less"
    return f"{compared}, so the ends come first down to there; {_THEN}{rest}"


def _geography(tree: Tree) -> int:
    """Return how many levels of the ends there are."""
    return sum(tree.axes[axis].depth for axis in tree.ends or ())


def _attributes(tree: Tree) -> Iterator[str]:
    others = [axis for number, axis in enumerate(tree.axes) if number not in (tree.ends or ())]
    return (axis.name for axis in sorted(others, key=lambda axis: axis.areas(axis.depth)))


def _entries(tree: Tree, steps: Sequence[int], first: int = 0) -> Iterator[str]:
    """Yield the entries of an order for some steps, which are the first ones of a tree, from a given one on."""
    levels = {axis.name: axis.level_names for axis in tree.axes}
    for step in range(first, len(steps)):
        axis = tree.axes[steps[step]]
        yield entry_of(axis.name, steps[: step + 1].count(steps[step]), levels)
