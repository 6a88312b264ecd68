"""The views of a release: what its spec names beside the tree, over the codebooks. And mechanism and order, where it names none."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flows.planning.compatibility import incompatible_keys, mechanism_asked_for
from flows.planning.scheme import Scheme, check_memory
from flows.specification.keys import Spec
from flows.specification.rules import wrong_key
from flows.specification.sections.views import ATTRIBUTES, NO_VIEWS, ONE_WAY
from storage.errors import SpecError
from storage.releases.terms import DEFAULT_FOR_SIZES, SURVIVORS, VIEWS, Terms, ViewTerms
from tasks.ingest.derived import read_derived
from tasks.ingest.task import TableSource
from tasks.laws.law import NO_NOISE
from tasks.mechanisms import MOST_MEASURED, MOST_SETTLED, OTHERWISE, WITH_BOUND, WITH_PRIORS, can_settle_views
from tasks.settle.task import memory_to_settle
from tasks.tree.order import Tree
from tasks.tree.views import Derived, Partition, View, every_level, have_same_cells
from tasks.unbiased.views import MOST_CELLS, MOST_OPERATIONS, level_refining
from tasks.uncertainty.bounds import finest_above_noise
from tasks.uncertainty.mixture import ABOVE_THE_NOISE
from tasks.words.levels import place
from tasks.words.numbers import format_cells
from tasks.words.spelling import entry_of

MOST_VIEW_CELLS = 10**7

_THEN = "the attributes follow, those with the fewest codes first"
_IS_PUBLIC = "expected_total decides this, and the order is published: give a guess that may be known"
# what is said of views that Trellis chooses
BESIDE = (
    "beside the tree, the totals of each axis are measured, those by each attribute in the coarsest areas, and those by pairs of a few attributes"
    f" (release.views: {ATTRIBUTES}; none leaves them out)"
)


def derived_columns(of: TableSource, tree: Tree) -> dict[str, Derived]:
    """Return the derived columns of a spec, by name. Does not open the confidential table."""
    codes = {column for axis in of.axes for column in axis.columns}
    return {column.name: read_derived(column, of.table, codes, of.count, tree) for column in of.derived}


def views_of(spec: Spec, tree: Tree, derived: Mapping[str, Derived]) -> tuple[tuple[ViewTerms, View], ...]:
    """Return the views of a spec, in its order, with their terms; one with the axis levels of a tree level has the number of that.

    A rule such as `margins` leaves out totals that others hold by the codebooks, and those without room. The views of a grid are all tables that are no levels of its tree.
    Where there are too many leaves to settle all of it together, all cells of levels 0 and 1 alone are measured, and views must be
    totals of one axis that are no finer level.

    Raises:
        SpecError: two views have the same cells, one has those of the leaves, or too many, or is not the total of one axis where it
            must be; or `margins` leaves out all.
    """
    levels, views = every_level(tree), list[tuple[ViewTerms, View]]()
    number, by_rule = len(levels), isinstance(spec.release.views, str)
    together = can_settle_views(tree) or bool(spec.release.group_sizes)  # whose views are sums, and cost nothing
    for name, of in spec.views.items():
        view = _view(number, of, tree, derived)
        if spec.release.grid:
            views.append((ViewTerms(name, number, view.axis_levels), view))
            number += 1
            continue
        if not together and (len(of) > 1 or view.derived):
            if by_rule:
                continue
            _refuse_crossing(name, tree)
        own = next((level for level in levels if view.is_same_as(level)), None)
        is_lower = not together and own is not None and own.number > 1
        if by_rule and (is_lower or _is_held_by_another(tree, view) or math.prod(view.sizes(tree)) > MOST_VIEW_CELLS):
            continue
        if own is not None and is_lower:
            raise wrong_key(
                f"release.views.{name}",
                f"must be left out: level {own.number} is this table.",
                hint="With so many leaves, views are totals of one axis that no level has.",
            )
        _check_cells(name, tree, view)
        for terms, other in views:
            if have_same_cells(tree, view, other):
                raise wrong_key(
                    f"release.views.{name}",
                    f"must not repeat another view: it has the cells of {terms.name}.",
                    hint=f"By the codebooks, both are the same table. Leave out {name} or {terms.name}.",
                )
        if own is None:
            number += 1
        view = own or view
        columns = tuple(column.name for column in view.derived)
        views.append((ViewTerms(name, view.number, view.axis_levels, columns), view))
    if spec.views and not views:
        raise SpecError(
            f"release.views: {spec.release.views} must stand for some totals, but by the codebooks each is everything or the leaves.",
            field="release.views",
            hint="Leave release.views out, with a mechanism that walks the tree: nothing else is left to measure.",
        )
    return tuple(views)


def _refuse_crossing(name: str, tree: Tree) -> None:
    """Refuse a view that can only be settled together with the leaves, where there are too many of them."""
    leaves = tree.possible_cells(tree.depth)
    raise wrong_key(
        f"release.views.{name}",
        f"must be the totals of one axis, since there are {format_cells(leaves)} leaves: settling other groupings takes numbers for"
        f" each leaf, also where nobody is, and memory for at most {MOST_SETTLED:,} of them.",
        hint="Name totals of one axis, such as views: margins, or choose a coarser finest level.",
    )


def _is_held_by_another(tree: Tree, view: View) -> bool:
    """Return whether the totals of one axis are the total, the leaves, or those of a finer level, of which each area has one."""
    held = any(
        axis.last_alike(level) != level for axis, level in zip(tree.axes, view.axis_levels, strict=True) if level
    )
    return held or math.prod(view.sizes(tree)) in {1, tree.possible_cells(tree.depth)}


def _check_cells(name: str, tree: Tree, view: View) -> None:
    """Refuse a view with too many cells, or with those of the leaves."""
    if (cells := math.prod(view.sizes(tree))) > MOST_VIEW_CELLS:
        raise wrong_key(
            f"release.views.{name}",
            f"must have at most {MOST_VIEW_CELLS:,} cells, got {cells:,}.",
            hint="Name coarser levels, or leave an axis out.",
        )
    if cells > 1 and len(Partition(tree, view)) == tree.possible_cells(tree.depth):
        raise wrong_key(
            f"release.views.{name}",
            "must be coarser than the leaves, which are measured anyway: by the codebooks, each of its"
            " cells is one leaf.",
            hint="Leave the view out, or name a level above.",
        )


def settling_memory(scheme: Scheme) -> int | None:
    """Return how many bytes the arrays of settling take at most; None where nothing is settled together."""
    if not scheme.mechanism.settles_together:
        return None
    depth = scheme.tree.depth
    numbers = {*range(1, scheme.first_measured), *scheme.of_measured([NO_NOISE] * len(scheme.measured))} - {depth}
    return memory_to_settle(scheme.tree, [scheme.view(number) for number in sorted(numbers)])


def check_settling(scheme: Scheme, max_memory: int | None) -> None:
    """Refuse leaves and views if settling them together may take more memory or time than a release has."""
    if scheme.mechanism.covariance == VIEWS and scheme.views:
        _check_least_squares(scheme)
    leaves = f"{format_cells(scheme.tree.possible_cells(scheme.tree.depth))} leaves with all levels and views"
    otherwise = f"choose a coarser finest level, or name fewer views, or none with mechanism {OTHERWISE}"
    check_memory(settling_memory(scheme) or 0, max_memory, leaves, otherwise)


def _check_least_squares(scheme: Scheme) -> None:
    """Refuse views beside a tree of which every node is measured, if exact variances would take too long."""
    cells = sum(len(Partition(scheme.tree, view)) for view in scheme.views)
    refined = scheme.tree.possible_cells(level_refining(scheme.tree, scheme.views))
    dense = f"least squares factors a dense matrix with a row for each of the {cells:,} cells of all views"
    hint = "Name fewer or coarser views, or choose mechanism inftda_shrunk or cbdp, which state no exact variances."
    if cells > MOST_CELLS:
        raise wrong_key(
            "release.views",
            f"must have at most {MOST_CELLS:,} cells together with mechanism {scheme.mechanism.name}: {dense}.",
            hint=hint,
        )
    if refined * cells**2 > MOST_OPERATIONS:
        most = math.isqrt(MOST_OPERATIONS // refined)
        raise wrong_key(
            "release.views",
            f"must have at most {most:,} cells together with mechanism {scheme.mechanism.name}: {dense}, and solves with it for each of"
            f" the {format_cells(refined)} cells of the coarsest level that tells all of these apart.",
            hint=hint,
        )


def _view(number: int, of: Mapping[str, str], tree: Tree, derived: Mapping[str, Derived]) -> View:
    levels = tuple(axis.level_names.index(of[axis.name]) + 1 if axis.name in of else 0 for axis in tree.axes)
    columns = tuple(column for name, column in derived.items() if name in of)
    names: dict[str, str | None] = {axis.name: of.get(axis.name) for axis in tree.axes}
    return View(number, levels, names | {column.name: column.name for column in columns}, columns)


# the mechanism, where a spec leaves it to Trellis: by the spec and the codebooks alone ---------------------------------------------


@dataclass(frozen=True, slots=True)
class ChosenMechanism:
    """What takes the place of `mechanism`, and of `release.views` where the spec leaves that out too and its order is not chosen.

    Attributes:
        name: of the mechanism.
        reason: why, as one sentence without a full stop.
        views: a rule for views; None for none.
    """

    name: str
    reason: str
    views: str | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the rule.

    Attributes:
        against: from a spec and its tree, of which there may be none yet, to what speaks against the mechanism; empty for nothing.
        reason: as in `ChosenMechanism`; {above} is how many cells the level above the finest has, {against} what speaks against the row before.
    """

    name: str
    against: Callable[[Spec, Tree | None], str]
    reason: str
    views: str | None = None


def _against_priors(spec: Spec, tree: Tree | None) -> str:
    """Return what speaks against priors and the measured totals of each axis; empty for nothing."""
    if not spec.has_ends:
        return "the table is not of trips between areas"
    if tree is None or not _share_a_codebook(tree):
        return "the ends have different codebooks"
    if (above := tree.possible_cells(tree.depth - 1)) > MOST_MEASURED:
        return f"the level above the finest has {format_cells(above)} cells, more than {MOST_MEASURED:,}"
    key = next(
        filter(None, _not_with_priors(with_mechanism(spec, ChosenMechanism(WITH_PRIORS, "", ONE_WAY)), tree)), ""
    )
    return key and f"{key} does not go with priors and measured totals"


def _not_with_priors(spec: Spec, tree: Tree) -> Iterator[str]:
    """Yield the keys of a spec that do not go with priors and the views that it asks for, or that it gets."""
    if spec.release.views == NO_VIEWS:
        yield "release.views: none"
    if is_open(spec) and spec.release.views is None:
        yield without_views(spec)
        spec = with_views(spec)
    if isinstance(spec.privacy.split, list):
        yield "privacy.split"
    if spec.measure == SURVIVORS and can_settle_views(tree):
        yield "measure: survivors"
    yield from (fault.field for fault in incompatible_keys(spec, mechanism_asked_for(spec, tree)))
    if spec.release.views == ONE_WAY:
        yield _too_large(spec, tree)


def _too_large(spec: Spec, tree: Tree) -> str:
    """Return `run.max_memory` if all levels and views cannot be settled within it, or `release.views` if there is none; empty otherwise."""
    try:
        views = [view for _, view in views_of(spec, tree, {})]
    except SpecError as fault:
        return fault.field
    beside = [*every_level(tree)[:-1], *(view for view in views if view.number > tree.depth)]
    most = spec.run.max_memory if can_settle_views(tree) else None
    return "run.max_memory" if most and memory_to_settle(tree, beside) > most else ""


def _share_a_codebook(tree: Tree) -> bool:
    """Return whether both ends have the same levels with the same codes, as far down as both are released."""
    origin, destination = (tree.axes[end] for end in tree.ends or ())
    common = min(origin.depth, destination.depth)
    alike = zip(origin.codes[:common], destination.codes[:common], strict=True)
    return origin.level_names[:common] == destination.level_names[:common] and all(a.equals(b) for a, b in alike)


# the first row that nothing speaks against
_RULE = (
    _Row(
        DEFAULT_FOR_SIZES,
        lambda spec, _: "" if spec.release.group_sizes else "it counts records",
        "groups are counted by their size",
    ),
    _Row(
        WITH_BOUND,
        lambda spec, _: "" if spec.privacy.target else "it wants no bound",
        "privacy.target wants an error bound that holds before anything is drawn",
    ),
    _Row(
        WITH_PRIORS,
        _against_priors,
        "both ends share a codebook, and the level above the finest has no more than"
        f" {MOST_MEASURED:,} cells ({{above}}): each count is drawn towards what its level shows to be likely, beside measured totals of each axis",
        ONE_WAY,
    ),
    _Row(
        OTHERWISE,
        lambda *_: "",
        "{against}: each count is estimated from its own measurement and those below it, without priors",
    ),
)


def default_mechanism(spec: Spec, tree: Tree | None = None) -> ChosenMechanism:
    """Return the mechanism of a spec that names none, by public things alone: the keys of the spec, and the codebooks.

    Args:
        tree: over the codebooks; without it no priors are chosen.
    Guarantees:
        Reads no table.
    """
    against = ""
    for row in _RULE:
        found = row.against(spec, tree)
        if not found:
            above = format_cells(tree.possible_cells(tree.depth - 1)) if tree and "{above}" in row.reason else ""
            return ChosenMechanism(row.name, row.reason.format(above=above, against=against), row.views)
        against = found
    raise ValueError("the last row of the rule speaks against nothing.")


def with_mechanism(spec: Spec, chosen: ChosenMechanism) -> Spec:
    """Return a spec that names a mechanism and its views, as far as it leaves them to Trellis."""
    if spec.mechanism:
        return spec
    release = spec.release
    if chosen.views and release.views is None and not (release.grid or is_open(spec)):
        release = release.model_copy(update={"views": chosen.views})
    return spec.model_copy(update={"mechanism": chosen.name, "release": release})


def as_reserved(spec: Spec, terms: Terms) -> Spec:
    """Return a spec that names the mechanism with which a release was reserved, whatever the rule would choose now."""
    return with_mechanism(spec, ChosenMechanism(terms.mechanism, "", ONE_WAY if terms.views else None))


# the order of trips with attributes, and their views, where a spec leaves both to Trellis: by public things alone ------------------


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
    return spec.has_ends and bool(spec.input.features) and not (spec.release.order or spec.release.grid)


def order_of_places(spec: Spec) -> ChosenOrder | None:
    """Return the order of regions and attributes of groups; None where there are no attributes, or the spec lists it."""
    if not (spec.release.group_sizes and spec.input.features) or spec.release.order:
        return None
    reason = "attributes follow the coarsest regions: they have few values, so that sums over them bear less noise than sums over regions"
    return ChosenOrder(tuple(spec.order), reason)


def with_order(spec: Spec, order: Sequence[str]) -> Spec:
    """Return a spec that lists its order."""
    return spec.model_copy(update={"release": spec.release.model_copy(update={"order": [*order], "tree": None})})


def with_views(spec: Spec) -> Spec:
    """Return a spec with views of attributes, unless it names views itself, or `without_views` says what does not go with them."""
    return spec if spec.release.views is not None or without_views(spec) else _with_attributes(spec)


def without_views(spec: Spec) -> str:
    """Return the key of a spec without views that leaves no room for views of attributes; empty where there is none.

    Where every node is measured, views are left to the spec: their cells may be too many for exact variances.
    """
    asked = _with_attributes(spec)
    mechanism = mechanism_asked_for(asked)
    if spec.measure == SURVIVORS:
        return "measure: survivors"
    if "split" in spec.privacy.model_fields_set:
        return "privacy.split"
    if mechanism.is_unbiased or not mechanism.measures_views:
        return f"mechanism {mechanism.name}"
    return next((fault.field for fault in incompatible_keys(asked, mechanism)), "")


def _with_attributes(spec: Spec) -> Spec:
    return spec.model_copy(update={"release": spec.release.model_copy(update={"views": ATTRIBUTES})})


def geography_first(tree: Tree) -> tuple[str, ...]:
    """Return the order in which the ends take turns down to their finest levels, and attributes follow, those with the fewest codes first.

    Args:
        tree: of which the ends are refined first.
    """
    steps = tree.steps[: _geography(tree)]
    return (*_entries(tree, steps), *_attributes(tree))


def chosen_order(tree: Tree, sigmas: Sequence[float] | None, total: int | None, beside: str) -> ChosenOrder:
    """Return the order that the codebooks and a guess of the number of records speak for.

    The ends come first, down to the finest level at which the mean count is at least twice the noise. Attributes follow, and after
    them what is left of the ends. Without a guess, or where levels are sums of leaves whatever their order, all of the ends come first.

    Args:
        tree: in the order of `geography_first`.
        sigmas: σ of its levels, records; None where levels are sums of leaves.
        total: the guess, records; None without one.
        beside: what is said of the views of attributes beside the tree; empty where they are not left to Trellis.
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
    return ChosenOrder(order, f"{reason}; {beside}" if beside else reason)


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
