"""What a spec and its mechanism allow together: the keys of the spec, and the law that draws the noise."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from flows.planning.guarantee import Guarantee, guarantee_of
from flows.planning.scheme import Scheme
from flows.planning.shares import scheme_of
from flows.specification.keys import Spec
from flows.specification.rules import wrong_key
from flows.specification.sections.hierarchy import Ordered
from flows.specification.sections.privacy import OF_AN_ORDER, PrivacyKeys, Targets, Workload, rules_of_axes
from storage.errors import SpecError
from storage.releases.terms import ALL, COUNTS_POSITIVE, SURVIVORS
from storage.tables import SIGNAL
from tasks.mechanisms import AUTO, MECHANISMS, MOST_MEASURED, Mechanism, can_settle_views, measuring, mechanism_with
from tasks.tree.order import Tree
from tasks.tree.views import View
from tasks.words.numbers import format_cells
from tasks.words.spelling import did_you_mean

_MOST_BY_OPENDP = 10**6  # cells of one level that `measure: auto` measures whatever survives: each takes some 10 µs


def mechanism_named(name: str) -> Mechanism:
    """Return the mechanism with a name.

    Raises:
        SpecError: no mechanism has this name.
    """
    if name not in MECHANISMS:
        raise wrong_key(
            "mechanism",
            f"must be one of {', '.join(MECHANISMS)}, got {name}.",
            hint=did_you_mean(name, MECHANISMS),
        )
    return MECHANISMS[name]


def mechanism_asked_for(spec: Spec, tree: Tree | None = None) -> Mechanism:
    """Return the mechanism of a spec, as it is with its views or without; few leaves are assumed where there is no tree yet."""
    together = tree is None or can_settle_views(tree)
    named = mechanism_named(spec.mechanism)
    return mechanism_with(named, has_views=bool(spec.views), together=together, is_grid=bool(spec.release.grid))


def most_measured(spec: Spec) -> int:
    """Return how many cells of one level a spec lets be measured whatever survives."""
    is_slow = spec.noise.sampler == "opendp" and spec.measure != ALL
    return _MOST_BY_OPENDP if is_slow else MOST_MEASURED


def measured_by(spec: Spec, mechanism: Mechanism, tree: Tree) -> Mechanism:
    """Return a mechanism with the cells that it measures of a tree: as the spec asks for, or as its rule says.

    Raises:
        SpecError: every cell is asked for, and there are too many; or the survivors' are, and every cell is measured.
    """
    if mechanism.cells == "views" and spec.measure == SURVIVORS:
        raise wrong_key(
            "measure",
            "must be all or left out with release.views: every cell is measured and settled with the views, got survivors.",
        )
    if not mechanism.chooses_cells:
        return mechanism
    asked = AUTO if spec.measure == ALL else spec.measure or mechanism.measure
    decided = measuring(replace(mechanism, measure=asked), tree, most_measured(spec))
    if spec.measure == ALL and decided.measure == SURVIVORS:
        cells = format_cells(tree.possible_cells(max(tree.depth - 1, 1)))
        which = "the level above the finest" if tree.depth > 1 else "a single level"
        but = "" if tree.depth > 1 else ", and all are measured anyway"
        raise wrong_key(
            "measure",
            f"must not be all where {which} has more than {MOST_MEASURED:,} cells: it has {cells}{but}.",
            hint="Leave measure out, write survivors or auto, or release a coarser level.",
        )
    return decided


def _able(is_able: Callable[[Mechanism], bool], between: str = ", ") -> str:
    """Return the names of the mechanisms that are able to do something."""
    return between.join(name for name, mechanism in MECHANISMS.items() if is_able(mechanism))


def incompatible_keys(spec: Spec, mechanism: Mechanism) -> Iterator[SpecError]:
    """Yield an error for each key that a mechanism does not use, or needs and does not have."""
    for key, reason in mechanism.refused.items():
        is_of_views = key == "split" and mechanism.measures_views and isinstance(spec.privacy.split, dict)
        is_of_views = is_of_views and not rules_of_axes(spec.privacy.split)
        if key in spec.privacy.model_fields_set and getattr(spec.privacy, key) and not is_of_views:
            yield wrong_key(f"privacy.{key}", f"must be left out with mechanism {mechanism.name}: {reason}.")
    yield from faults_of_counted(spec, mechanism)
    if mechanism.counts_groups != bool(spec.release.group_sizes):
        return
    if spec.run.workers == "dask" and mechanism.cells != "survivors":
        yield wrong_key(
            "run.workers",
            f"must not be dask with mechanism {mechanism.name}: it runs at home, and has nothing to share out.",
            hint="Set run.workers to threads.",
        )
    yield from _faults_of_split(spec, mechanism)
    yield from _faults_of_views(spec, mechanism)
    if spec.priority and spec.priority not in mechanism.repair and not spec.views:
        able = _able(lambda of: spec.priority in of.repair)
        yield wrong_key(
            "priority",
            f"must be left out with mechanism {mechanism.name}, got {spec.priority}, which only {able} can use.",
        )
    yield from _faults_of_measure(spec)
    yield from _faults_of_tables(spec, mechanism)
    if spec.release.intervals.simultaneous and spec.unlisted:
        yield wrong_key(
            "release.intervals.simultaneous",
            "must be left out without a codebook: the number of cells for which the"
            " intervals must hold at once is unknown.",
        )
    yield from _faults_of_noise(spec, mechanism)
    yield from _faults_of_listing(spec, mechanism)
    if spec.schedule and spec.schedule.cumulative:
        yield from _faults_of_days(spec, mechanism)


def _faults_of_days(spec: Spec, mechanism: Mechanism) -> Iterator[SpecError]:
    """Yield what a series whose days are measured together cannot have."""
    days, keys = "with schedule.cumulative", spec.privacy
    if not (spec.schedule and spec.schedule.measured_days):
        yield wrong_key(
            "schedule.until", f"must be a number of days {days}, such as 90 releases: the noise depends on it."
        )
    if not mechanism.is_unbiased or mechanism.is_dense or spec.views or spec.release.grid:
        able = _able(lambda of: of.is_unbiased and not of.is_dense)
        yield wrong_key(
            "mechanism",
            f"must be one of {able}, without release.views or grid, {days}: the same cells must be measured every day, and the noise"
            " of all levels grow alike.",
        )
    if keys.total_is_public:
        yield wrong_key(
            "privacy.exact_records_per_unit",
            f"must be false {days}: a record may be on another day, so that the total of a day is not public.",
        )
    if keys.distinct:
        yield wrong_key(
            "privacy.distinct", f"must be left out {days}: it says nothing about the records of several days."
        )
    if spec.input.unit:
        yield wrong_key(
            "input.unit",
            f"must be left out {days}: ingest sees the table of one day, and cannot bound the records that a unit has in all days together.",
            hint="Promise max_records_per_unit for the tables of all days together.",
        )
    if isinstance(keys.split, Targets):
        yield wrong_key(
            "privacy.split.targets", f"must be left out {days}; give epsilon, and `trellis plan` states the deviations."
        )
    if spec.noise.sampler != "opendp":
        yield wrong_key("noise.sampler", f"must be opendp {days}, got {spec.noise.sampler}.")
    if not spec.keep_noisy_counts:
        yield wrong_key("keep_noisy_counts", f"must be true {days}: the next days follow from them.")


def faults_of_counted(spec: Spec, mechanism: Mechanism) -> Iterator[SpecError]:
    """Yield an error where the spec counts groups and the mechanism does not, or the other way round, or takes no list of them."""
    if mechanism.counts_groups and spec.release.group_sizes is None:
        yield wrong_key("release.group_sizes", f"must be given with mechanism {mechanism.name}.")
    elif spec.release.group_sizes and not mechanism.counts_groups:
        able = _able(lambda of: of.counts_groups)
        yield wrong_key(
            "mechanism",
            f"must be one of {able} for group sizes, got {mechanism.name}, which counts each record in one cell: one person"
            " moves a whole group from a size to the next, so the noise of a number of groups is that of sums over sizes.",
        )
    elif spec.input.groups and not mechanism.takes_list:
        able = _able(lambda of: of.takes_list, " or ")
        yield wrong_key(
            "input.groups",
            f"must be left out with mechanism {mechanism.name}, which Trellis releases without a list of groups.",
            hint=f"Choose mechanism {able}, or leave input.groups out.",
        )


def _faults_of_tables(spec: Spec, mechanism: Mechanism) -> Iterator[SpecError]:
    """Yield what cannot be published beside the full tables of a mechanism."""
    if spec.release.records and COUNTS_POSITIVE in mechanism.waived:
        yield wrong_key(
            "release.records", f"must be left out with mechanism {mechanism.name}: its counts may be below zero."
        )
    if spec.release.rows == SIGNAL and mechanism.shows_codes:
        yield wrong_key(
            "release.rows",
            f"must be all with mechanism {mechanism.name}, got {SIGNAL}: only cells with records have rows, so every row"
            " stands out.",
            hint="Leave release.rows out: the full tables are these rows.",
        )
    if spec.release.noisy_counts and mechanism.shows_codes:
        yield wrong_key(
            "release.noisy_counts",
            f"must be left out with mechanism {mechanism.name}: its released counts are its noisy counts.",
        )


def _faults_of_measure(spec: Spec) -> Iterator[SpecError]:
    """Yield an error where the spec asks a mechanism for other cells than those that it measures by nature."""
    mechanism = mechanism_named(spec.mechanism)
    by_nature = {"survivors": SURVIVORS, "universe": ALL, "views": ALL}.get(mechanism.cells)
    if mechanism.chooses_cells or spec.measure in {None, AUTO, by_nature}:
        return
    no_pass, same = "has no second pass, which alone would read other cells", "always measures the same cells"
    why = no_pass if by_nature == SURVIVORS else same
    yield wrong_key(
        "measure",
        f"must be left out with mechanism {mechanism.name}, which {why}, got {spec.measure}.",
        hint=f"Leave it out, or choose one of the mechanisms {_able(lambda of: of.chooses_cells)}.",
    )


def rule_for_nodes(split: object) -> str | None:
    """Return what messages call a split that is a rule for trees of which every node is measured; None for others."""
    if isinstance(split, Workload | Targets):
        [kind] = type(split).model_fields
        return f"privacy.split.{kind}"
    if rules_of_axes(split):
        return "privacy.split by axis"
    is_rule = isinstance(split, str) and split != PrivacyKeys.model_fields["split"].default
    return f"privacy.split {split}" if is_rule else None


def _faults_of_split(spec: Spec, mechanism: Mechanism) -> Iterator[SpecError]:
    """Yield an error where the split is a rule for trees of which every node is measured, and the mechanism measures others."""
    split = spec.privacy.split
    if (rule := rule_for_nodes(split)) and not mechanism.is_unbiased:
        yield SpecError(
            f"{rule} needs a mechanism that measures every node, got {mechanism.name}.",
            field="privacy.split",
            hint="Choose mechanism: unbiased_tree.",
        )
    if (named := rules_of_axes(split)) and not (spec.release.grid and named.keys() <= {*spec.axes}):
        yield SpecError(
            f"privacy.split must name axes of release.grid where it has a rule for each, got {', '.join(named)}.",
            field="privacy.split",
            hint="Write such as split: {age: {workload: prefix}, region: wavelet}, and name all axes in release.grid; or one rule for all.",
        )
    ordered = {axis for axis in spec.axes if isinstance(spec.hierarchy_of(axis)[1], Ordered)}
    of_axes = [(f"privacy.split.{axis}", rule, axis in ordered) for axis, rule in named.items()]
    for key, rule, is_ordered in of_axes or [("privacy.split", split, bool(ordered))]:
        if is_ordered or not isinstance(rule, Workload) or rule.workload not in OF_AN_ORDER:
            continue
        yield SpecError(
            f"{key}.workload {rule.workload} needs an ordered axis.",
            field=f"{key}.workload",
            hint="Give the codes of one axis in their order, as {ordered: …}, or choose workload: nodes or leaves.",
        )


def _faults_of_grid(mechanism: Mechanism) -> Iterator[SpecError]:
    """Yield what a release of all combinations of levels of its axes cannot have."""
    if not mechanism.is_unbiased:
        able = _able(lambda of: of.is_unbiased)
        yield wrong_key(
            "release.grid",
            f"needs a mechanism that measures every node ({able}), got {mechanism.name}.",
            hint="Choose mechanism: unbiased_tree, or name the axes in release.order.",
        )


def _faults_of_views(spec: Spec, mechanism: Mechanism) -> Iterator[SpecError]:
    """Yield what a release with views cannot have, or one of a mechanism that needs them lacks."""
    if spec.release.grid:
        yield from _faults_of_grid(mechanism)
        return
    if mechanism.cells == "views" and not spec.views:
        yield wrong_key(
            "release.views",
            f"must be given with mechanism {mechanism.name}, which measures them beside the leaves.",
            hint="For example views: margins, for the totals of every axis at every level.",
        )
    if not spec.views:
        return
    if not (mechanism.measures_views or mechanism.counts_groups):
        able = _able(lambda of: of.cells in {"survivors", "views"} or (of.is_unbiased and not of.is_dense))
        of_what = (
            "sums of all leaves, from which every sum follows"
            if mechanism.is_dense
            else "the leaves alone, and every view is a sum of leaves"
        )
        why = f"measures {of_what}"
        yield wrong_key(
            "release.views", f"must be left out with mechanism {mechanism.name}, which {why}; {able} measure views."
        )
    if spec.priority:
        yield wrong_key(
            "priority", "must be left out with release.views: counts are settled with the views, whatever the priority."
        )
    if spec.release.intervals.simultaneous and not mechanism.is_unbiased:
        yield wrong_key(
            "release.intervals.simultaneous",
            f"must be left out with release.views and mechanism {mechanism.name}: by the union bound, low and high hold for k cells at once where each misses"
            " with a k-th of the probability.",
            hint="For k cells at once with a probability of 1 − α, set release.intervals.confidence to 1 − α/k.",
        )


def _faults_of_noise(spec: Spec, mechanism: Mechanism) -> Iterator[SpecError]:
    named, sampler, law = spec.noise.law, spec.noise.sampler, mechanism.default_law
    if "law" in spec.noise.model_fields_set:
        law = mechanism.laws.get(named, law)
        if named not in {*mechanism.laws, AUTO}:
            laws = " or ".join(mechanism.laws)
            yield wrong_key("noise.law", f"must be {laws} with mechanism {mechanism.name}, got {named}.")
    if sampler not in law.samplers:
        yield wrong_key(
            "noise.sampler", f"must be {' or '.join(law.samplers)} with mechanism {mechanism.name}, got {sampler}."
        )
    for key, reason in law.refused.items():
        if key not in mechanism.refused and getattr(spec.privacy, key):
            yield wrong_key(f"privacy.{key}", f"must be left out with noise.law {named}: {reason}.")


def check_listed(spec: Spec, mechanism: Mechanism) -> None:
    """Refuse an axis without a codebook, unless the mechanism shows a code only where enough records have it."""
    for fault in _faults_of_listing(spec, mechanism):
        raise fault


def _faults_of_listing(spec: Spec, mechanism: Mechanism) -> Iterator[SpecError]:
    only = _able(lambda of: of.shows_codes, " or ")
    for axis in () if mechanism.shows_codes else spec.unlisted:
        yield wrong_key(
            f"{spec.hierarchy_of(axis)[0]}.table",
            f"must be given with mechanism {mechanism.name}, which measures every possible area:"
            " areas known only from the records would reveal who is in them.",
            hint=f"Give a public codebook of all areas, or choose mechanism {only}, which shows a code only where enough"
            " records have it.",
        )


def law_of(spec: Spec, mechanism: Mechanism, tree: Tree, whole: Tree, views: Sequence[tuple[str, View]] = ()) -> str:
    """Return the law of a release, by its name in specs.

    With `auto` it is the law whose standard deviation at the finest level is the smallest at the spec's ε; or, where the
    spec gives a target, the law that needs the smallest ε. With a schedule it is the mechanism's default, of which a cap
    holds more releases. All of that is public. `whole` and `views` are as in `scheme_of`.
    """
    default, named = next(iter(mechanism.laws)), spec.noise.law
    if "law" not in spec.noise.model_fields_set:
        return default
    if named != AUTO or spec.schedule or len(mechanism.laws) == 1:
        return named if named in mechanism.laws else default
    by_target = spec.privacy.target is not None
    worth = {
        name: guarantee.epsilon if by_target else scheme.finest_noise(guarantee.noises).sigma
        for name, scheme, guarantee in guarantees(spec, mechanism, tree, whole, views)
        if not any(getattr(spec.privacy, key) for key in mechanism.laws[name].refused)
    }
    return min(worth, key=worth.__getitem__) if worth else default  # whose guarantee fails with the reason


def guarantees(
    spec: Spec, mechanism: Mechanism, tree: Tree, whole: Tree, views: Sequence[tuple[str, View]] = ()
) -> Iterator[tuple[str, Scheme, Guarantee]]:
    """Yield what a spec's ε or target would give by each law that has the sampler and noise in range, by their names in specs.

    An accountant that a law does not take is left out.
    """
    for name, law in mechanism.laws.items():
        if spec.noise.sampler not in law.samplers or (spec.privacy.rho and "rho" in law.refused):
            continue
        keys = spec.privacy.model_copy(update={"accountant": None}) if "accountant" in law.refused else spec.privacy
        with suppress(SpecError):
            scheme = scheme_of(keys, tree, whole, mechanism, spec.noise.sampler, law, views)
            yield name, scheme, guarantee_of(scheme)
