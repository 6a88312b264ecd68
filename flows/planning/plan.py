"""The plan of a release: its levels, noise, bounds and cost, computed only from the spec and the codebooks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from flows.planning.compatibility import incompatible_keys, law_of, measured_by, mechanism_asked_for, mechanism_named
from flows.planning.composition import cap_of
from flows.planning.guarantee import Guarantee, check_noise_of_days, epsilon_of_series, guarantee_of
from flows.planning.scheme import (
    Scheme,
    check_fan_out,
    check_leaves,
    check_memory_of_groups,
    promised_levels,
    tree_over,
)
from flows.planning.shares import parts_of, scheme_of
from flows.planning.views import (
    BESIDE,
    ChosenMechanism,
    ChosenOrder,
    check_settling,
    chosen_order,
    default_mechanism,
    derived_columns,
    geography_first,
    is_open,
    order_of_places,
    views_of,
    with_mechanism,
    with_order,
    with_views,
    without_views,
)
from flows.specification.file import SpecFile, located
from flows.specification.keys import Spec
from flows.specification.sections.run import RunKeys
from storage.database.connections import store
from storage.errors import SpecError, TrellisError
from storage.ledger.accounts import Asked, Claim
from storage.ledger.events import Reservation
from storage.ledger.recognition import RecognisedTable, known_contents
from storage.ledger.spending import Contributions, Spending
from storage.releases.approvals import ApprovedPlan, sha256_of_value
from storage.releases.parts import Part
from storage.releases.terms import (
    SURVIVORS,
    DerivedTerms,
    FileTerms,
    Intervals,
    Measure,
    Privacy,
    RunTerms,
    TableTerms,
    Terms,
    ViewTerms,
)
from storage.tables import SIZE
from tasks.accounting.conversions import float_above
from tasks.folder.export.formats import check_formats
from tasks.ingest.contents import read_content
from tasks.ingest.task import TableSource, check_areas, listed_groups, read_ends
from tasks.ingest.trips import AxisSource, End, Units
from tasks.laws.days import days_of
from tasks.mechanisms import AUTO, Mechanism, can_settle_views
from tasks.tree.order import Tree
from tasks.tree.views import Derived
from tasks.unbiased.dense import text_of
from tasks.words.levels import Axes, place
from tasks.words.numbers import rounded_up

_LIST = "input.groups: the list of groups is public, and with it how many groups each region has"


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A planned release. Nothing in it comes from the confidential table.

    Attributes:
        tree: the axes and their order, down to the finest released levels.
        whole: the same tree with all levels of the codebooks. `privacy.distinct` may name any of them.
        law: the law of the noise, by its name in specs; never `auto`.
        scheme: the measurements, without their noise.
        guarantee: the noise and the differential privacy that it gives.
        promised: per axis, the axis level at which a unit's records are promised distinct; 0 without a promise.
        parts: levels 0 to T, and after them the views that have not the cells of a level.
        named_views: every view that the spec names.
        shaped: by axis and axis level, how many areas have a shape, where some have one.
        approved: the approved plan that the release is held to; None where it is held to none.
        chosen: the order that takes the place of the spec's, where that leaves it to Trellis; `file` has it too.
        default: likewise the mechanism, and views with it.
    """

    file: SpecFile
    source: TableSource
    mechanism: Mechanism
    tree: Tree
    whole: Tree
    law: str
    scheme: Scheme
    guarantee: Guarantee
    promised: tuple[int, ...]
    parts: tuple[Part, ...]
    named_views: tuple[ViewTerms, ...] = ()
    derived: Mapping[str, Derived] = field(default_factory=dict)
    shaped: Mapping[tuple[str, int], int] = field(default_factory=dict)
    approved: ApprovedPlan | None = None
    chosen: ChosenOrder | None = None
    default: ChosenMechanism | None = None

    @property
    def levels(self) -> tuple[Part, ...]:
        """Levels 0 to T."""
        return self.parts[: self.tree.depth + 1]

    @property
    def views(self) -> tuple[Part, ...]:
        """The views that have not the cells of a level."""
        return self.parts[self.tree.depth + 1 :]

    def of_day(self, before: int) -> "Plan":
        """Return the plan of the release of a day of a series, given how many days precede it; this plan is that of the last day."""
        if not self.scheme.days:
            return self
        guarantee = replace(self.guarantee, before=before)
        return replace(self, guarantee=guarantee, parts=parts_of(self.scheme, guarantee))

    @property
    def units(self) -> Units:
        """The bound on contributions."""
        spec = self.file.spec
        keys = spec.privacy
        return Units(spec.input.unit, keys.max_records_per_unit, keys.distinct is not None, keys.total_is_public)

    @property
    def place_of_table(self) -> RecognisedTable:
        """The confidential table, as the ledger recognises it by its place. Does not open it."""
        return self.source.table.at_place()

    def read_table(self) -> RecognisedTable:
        """Return the confidential table as the ledger recognises it, also by its content. Reads all of it.

        Raises:
            StoreError: it is a file that cannot be read.
            InputError: it is no table, lacks a column, or is in a database that cannot be read.
        """
        with store() as con:
            known = known_contents(con)
        return read_content(self.source.table, self.source.columns, known.values())

    @property
    def exact_levels(self) -> list[Part]:
        """The levels whose counts are published exactly although one unit could change them."""
        first = 1 if self.file.spec.privacy.total_is_public else 0
        return [level for level in self.levels[first:] if level.is_invariant]

    @property
    def exact_by_choice(self) -> list[str]:
        """The counts of these levels, in words."""
        return [exact_in_words(level.level, level.axes) for level in self.exact_levels]

    @property
    def unprotected(self) -> list[str]:
        """All counts that are published exactly, in words."""
        keys = self.file.spec.privacy
        if self.mechanism.of_groups:
            attributes = " and ".join(self.file.spec.input.features or [])
            of_places = f"{_LIST}{attributes and f' with each value of {attributes}'}, those without a record too"
            return [of_places] if self.file.spec.input.groups else []
        if not keys.total_is_public or self.mechanism.adds_up_leaves:
            return self.exact_by_choice
        many = "one" if keys.max_records_per_unit == 1 else str(keys.max_records_per_unit)
        public = f"level 0: the total number of records (public, since every unit has exactly {many})"
        return [public, *self.exact_by_choice]

    def asked(self) -> Asked:
        """Return the dataset of the spec with its unit, neighbours, cap and `same_people_as`.

        Raises:
            SpecError: the cap is out of range.
        """
        spec = self.file.spec
        try:
            cap = cap_of(spec.budget.epsilon, spec.budget.delta) if spec.budget else None
        except ValueError as fault:
            raise SpecError(f"budget.{fault}", field="budget.epsilon") from None
        return Asked(spec.dataset, spec.privacy.unit, spec.privacy.neighbours, cap, spec.same_people_as)

    def reservation(self, release_id: str, *, different_people: bool = False) -> Reservation:
        """Return the reservation of the whole release for the ledger, once its guarantee is checked.

        Raises:
            StoreError: the guarantee does not hold.
        """
        self.guarantee.check()
        is_paid = bool(self.scheme.days and self.guarantee.before)  # by the first day of its series
        levels = tuple(replace(part, rho=Fraction(0)) for part in self.parts) if is_paid else self.parts
        claim = Claim(
            release=release_id,
            dataset=self.file.spec.dataset,
            accountant=self.guarantee.accountant.name,
            epsilon=self.guarantee.epsilon,
            delta=self.guarantee.delta,
            table=self.place_of_table.place,
            unprotected=tuple(self.exact_by_choice),
            different_people=different_people,
            contributions=self.contributions,
        )
        return Reservation(self.asked(), levels, claim)

    @property
    def spending(self) -> Spending:
        """What a release costs."""
        return self.spending_with(self.guarantee)

    def spending_with(self, of: Guarantee) -> Spending:
        """Return what a release would cost with another guarantee."""
        return Spending(of.rho, of.approximate, of.epsilon, of.delta, of.tau, self.contributions)

    def spending_of_series(self, releases: int, delta: float) -> Spending:
        """Return the cost of several releases that are declared together, and their (ε, δ) at the given δ."""
        one = self.spending
        if self.scheme.days:  # it is of all of them
            return replace(one, epsilon=epsilon_of_series(self.guarantee, 1, delta), delta=delta)
        return replace(
            one,
            rho=one.rho * releases,
            approximate=one.approximate * releases,
            epsilon=epsilon_of_series(self.guarantee, releases, delta),
            delta=delta,
            tau=one.tau * releases,
        )

    @property
    def deviations(self) -> dict[int, float]:
        """By the number of each level and view, the standard deviation of the error of a count of it, the widest, records.

        It is that of the noise, or, where all measurements settle each count without bias, that of the count.
        """
        if not self.mechanism.is_unbiased:
            return {part.level: part.sigma for part in self.parts}
        released = self.scheme.released(self.guarantee.noises)
        return {part.level: released.deviations(self.scheme.view(part.level))[1] for part in self.parts}

    @property
    def measure(self) -> Measure:
        """Which cells of the tree are measured, where the mechanism has a second pass; `survivors` of all others."""
        measure = self.mechanism.measure
        return SURVIVORS if measure == AUTO else measure

    @property
    def noisy_counts_asked(self) -> bool | None:
        """Whether to publish noisy counts; None where the spec leaves it open. False where they are not kept or do not exist."""
        may_be = self.file.spec.keep_noisy_counts and not self.mechanism.shows_codes
        return self.file.spec.release.noisy_counts if may_be else False

    @property
    def terms(self) -> Terms:
        """What the stages need to know of this plan, as the store keeps it."""
        spec = self.file.spec
        asked = spec.release.intervals
        is_exact = self.mechanism.adds_up_leaves or self.mechanism.is_unbiased
        is_rounded = not (spec.keep_noisy_counts or is_exact)
        return Terms(
            axes=tuple(axis.name for axis in self.tree.axes),
            steps=tuple(self.tree.steps),
            mechanism=self.mechanism.name,
            mechanism_reason=self.default.reason if self.default else "",
            priority=spec.priority,
            sampler=spec.noise.sampler,
            keep_vault=spec.keep_vault,
            keep_noisy_counts=spec.keep_noisy_counts,
            published_spec=self.file.published(),
            unprotected=tuple(self.unprotected),
            codebooks=self.source.codebooks,
            unlisted=tuple(spec.unlisted),
            waived=tuple(sorted(self.mechanism.waived)),
            how_counted=self.mechanism.how_counted,
            covariance=self.mechanism.covariance,
            statistic=self.mechanism.of_groups.measured.name if self.mechanism.of_groups else "",
            cascades=self.scheme.cascades,
            measure=self.measure,
            csv=spec.release.as_csv,
            records=spec.release.records,
            rows=spec.release.rows,
            formats=spec.release.more_formats,
            strategy=text_of(self.scheme.strategies),
            days=self.scheme.days.weights if self.scheme.days else (),
            noisy_counts=self.noisy_counts_asked,
            intervals=Intervals(
                confidence=asked.confidence,
                simultaneous=asked.simultaneous,
                rounded=is_rounded,
                signal_rate=spec.release.signal_rate,
            ),
            privacy=self.privacy,
            run=run_terms(spec.run),
            files=FileTerms(
                spec=str(self.file.path),
                tables={
                    key: TableTerms(table.location, self.source.hashes[key])
                    for key, table in self.source.public_tables.items()
                },
            ),
            views=self.named_views,
            derived=tuple(
                DerivedTerms(of.name, self.derived[of.name].of, self.source.hashes[of.table.field])
                for of in self.source.derived
            ),
        )

    @property
    def contributions(self) -> Contributions:
        """How many records a unit has, and whether ingest or the data owner's promise ensures it."""
        spec = self.file.spec
        return Contributions(
            bounded_by="ingest" if spec.input.unit else "promise",
            distinct=spec.privacy.distinct,
            exact_records_per_unit=spec.privacy.total_is_public,
            max_records_per_unit=spec.privacy.max_records_per_unit,
            distinct_cells=sha256_of_value(self._distinct_cells()) if spec.privacy.distinct else "",
        )

    def _distinct_cells(self) -> list[list[object]]:
        """Return what a promise of distinct records is about: per axis its columns, the level of the promise and the codebook."""
        columns, codebooks = {axis.name: self._cells(axis) for axis in self.source.axes}, self.source.codebooks
        promised = zip(self.whole.axes, self.promised, strict=True)
        return [[of.name, columns[of.name], level, codebooks[of.name]] for of, level in promised if level]

    def _cells(self, axis: AxisSource) -> list[str]:
        """Return what says, beside the codebook, in which cell a record is."""
        recoded = self.source.hashes[axis.recode.table.field] if axis.recode else None
        return [*axis.columns, *(str(of) for of in (axis.take, axis.unlisted, recoded) if of is not None)]

    @property
    def privacy(self) -> Privacy:
        """The guarantee as the manifest states it."""
        keys, guarantee, contributions = self.file.spec.privacy, self.guarantee, self.contributions
        return Privacy(
            unit=keys.unit,
            neighbours=keys.neighbours,
            max_records_per_unit=contributions.max_records_per_unit,
            exact_records_per_unit=contributions.exact_records_per_unit,
            distinct=contributions.distinct,
            bounded_by=contributions.bounded_by,
            epsilon=guarantee.epsilon,
            delta=guarantee.delta,
            rho=float(guarantee.rho),
            accountant=guarantee.accountant.name,
            sampler=self.file.spec.noise.sampler,
            tau=float_above(guarantee.tau),
            statement=self.statement(),
        )

    def statement(self) -> str:
        """Return the guarantee in a sentence or two."""
        keys, guarantee = self.file.spec.privacy, self.guarantee
        records = "one record" if keys.max_records_per_unit == 1 else f"{keys.max_records_per_unit} records"
        has = f"exactly {records}" if keys.total_is_public else f"at most {records}"
        change = "replaced by another's" if keys.neighbours == "substitution" else "added or removed"
        statement = (
            f"({rounded_up(guarantee.epsilon)}, {guarantee.delta:g})-differentially private for {keys.unit}, which has {has}:"
            f" neighbouring tables differ in the records of one unit, {change}."
        )
        if self.scheme.days:
            statement += (
                " The tables of all days of the series count as one table: this holds for all releases of the series together, and for a unit"
                f" that has at most {records} in all days together, whichever days those are."
            )
        if not self.exact_by_choice:
            return statement
        last = max(level.level for level in self.levels if level.is_invariant)
        return (
            f"{statement} This holds only between tables that agree on every count of the levels 0 to {last}, which are"
            f" published exactly; the release does not protect at all which of their cells a unit is in."
        )


def exact_in_words(level: int, axes: Axes) -> str:
    """Return that the counts of a level are published exactly, and what that means."""
    where = f" ({place(axes)})" if level else ""
    return f"level {level}{where}: every count, published exactly: a unit's place there is not protected"


def make_plan(file: SpecFile) -> Plan:
    """Return the plan of a spec. Reads the codebooks; does not read the confidential table.

    Raises:
        SpecError: the mechanism is unknown, a level does not exist, or the noise would be too small or too large.
        InputError: a table does not exist, or a codebook breaks a rule.
    """
    try:
        return _plan(file)
    except TrellisError as fault:
        raise located(fault, file.text) from None


def _plan(file: SpecFile) -> Plan:
    for fault in faults_of_keys(file.spec):
        raise fault
    source = file.source()
    ends = read_ends(source)
    tree = _tree_of(file.spec, ends)
    default = default_mechanism(file.spec, tree) if not file.spec.mechanism else None
    named = with_mechanism(file.spec, default) if default else file.spec
    if not is_open(named):
        plan = _over(replace(file, spec=named), source, ends, tree)
        return replace(plan, chosen=order_of_places(named), default=default)
    spec = with_order(with_views(named), geography_first(tree))
    plan = _over(replace(file, spec=spec), source, ends)
    sigmas = None if plan.mechanism.adds_up_leaves else [level.sigma for level in plan.levels]
    beside = BESIDE if plan.named_views else ""
    if key := without_views(named):
        beside = f"{key} leaves no room for views of attributes beside it"
    beside = "" if file.spec.release.views is not None else beside
    chosen = chosen_order(plan.tree, sigmas, spec.expected_total, beside)
    if [*chosen.order] != spec.release.order:
        plan = _over(replace(file, spec=with_order(spec, chosen.order)), source, ends)
    return replace(plan, chosen=chosen, default=default)


def faults_of_keys(spec: Spec) -> Iterator[SpecError]:
    """Yield what is wrong with the keys of a spec and its mechanism together, whatever the codebooks are."""
    spec = with_mechanism(spec, default_mechanism(spec))
    spec = with_views(spec) if is_open(spec) else spec
    yield from incompatible_keys(spec, mechanism_asked_for(spec))


def _tree_of(spec: Spec, ends: Sequence[End]) -> Tree:
    return tree_over({end.name: end.released_codebook for end in ends}, spec, spec.unlisted)


def _over(file: SpecFile, source: TableSource, ends: Sequence[End], tree: Tree | None = None) -> Plan:
    """Return the plan of a spec over its codebooks, whose tree may be known already."""
    spec = file.spec
    tree = tree or _tree_of(spec, ends)
    whole = tree_over({end.name: end.codebook for end in ends}, spec, spec.unlisted) if spec.privacy.distinct else tree
    mechanism = mechanism_asked_for(spec, tree)
    if not mechanism.shows_codes:  # otherwise no children are listed
        check_fan_out(tree, spec.run, memory_of_worker(spec.run))
    check_formats(spec.release.formats, tree)
    check_leaves(spec, tree, mechanism)
    listed_groups(source, ends)  # refuses a list that breaks a rule
    shaped = check_areas(ends)
    if mechanism.counts_groups:
        check_memory_of_groups(tree, spec.run.max_memory)
    derived = derived_columns(source, tree)
    views = views_of(spec, tree, derived)
    if not (can_settle_views(tree) or any(view.number > tree.depth for _, view in views)):
        mechanism = mechanism_named(spec.mechanism)  # its levels are these views
    mechanism = measured_by(spec, mechanism, tree)
    named = [(terms.name, view) for terms, view in views]
    law = law_of(spec, mechanism, tree, whole, named)
    many = spec.schedule.measured_days if spec.schedule else 0
    days = days_of(many) if many else None
    scheme = scheme_of(spec.privacy, tree, whole, mechanism, spec.noise.sampler, mechanism.laws[law], named, days)
    check_settling(scheme, spec.run.max_memory)
    guarantee = guarantee_of(scheme)
    if days:
        guarantee = replace(guarantee, days=days, before=many - 1)
        check_noise_of_days(guarantee)
    parts = parts_of(scheme, guarantee)
    if spec.input.groups:  # how many groups there are is public
        of_sizes = {name for name, of in derived.items() if len(tree.axes) - 1 in dict(of.of)}
        by_size = {SIZE, *of_sizes}
        parts = tuple(of if any(of.axes.get(name) for name in by_size) else replace(of, sigma=0.0) for of in parts)
    return Plan(
        file,
        source,
        mechanism,
        tree,
        whole,
        law,
        scheme,
        guarantee,
        promised_levels(spec.privacy, whole),
        parts,
        tuple(terms for terms, _ in views),
        derived,
        shaped,
    )


def memory_of_worker(keys: RunKeys) -> int | None:
    """Return the bytes for a branch at a worker, as the cluster file of this machine says. No cluster is asked.

    None where the spec wants no cluster, or no cluster file can be used: `check` and `release` say what is wrong with it.
    """
    if keys.workers != "dask":
        return None
    from storage.mailbox.cluster_file import read_cluster_file  # certificates take a while to import

    try:
        return int(read_cluster_file().memory_per_worker)
    except SpecError:
        return None


def run_terms(keys: RunKeys) -> RunTerms:
    """Return the terms that say how a release runs. Nothing that is published depends on them."""
    return RunTerms(keys.workers, None if keys.max_memory is None else int(keys.max_memory))
