"""What is tried in a comparison: a mechanism or a baseline at one ε, by the name that was asked for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flows.planning.compatibility import check_listed, faults_of_counted, measured_by, rule_for_nodes
from flows.planning.guarantee import guarantee_of
from flows.planning.plan import Plan
from flows.planning.scheme import check_leaves
from flows.planning.shares import parts_of, scheme_of
from flows.planning.splits import least_mean_variance
from flows.run.reservation import reserved_release
from flows.specification.sections.privacy import Minimise, Workload, rules_of_axes
from flows.trials.baselines import BASELINES, USUAL, baseline_entry
from flows.trials.contestants import Contestant, privacy_defaults, sampler_of
from flows.trials.in_memory import PublicTable, Trial, try_release
from flows.trials.sizes import RelaxedTrial
from storage.errors import SpecError, UsageError
from storage.ledger.accounts import reserved_charges
from storage.releases.terms import ALL, SURVIVORS, Intervals
from tasks.laws.law import Law, LevelNoise
from tasks.mechanisms import MECHANISMS, Mechanism, can_settle_views, mechanism_with
from tasks.settle.task import Together
from tasks.tree.axis import FloatArray
from tasks.tree.order import Tree
from tasks.unbiased.dense import MOST_CODES
from tasks.unbiased.variance import tree_variances
from tasks.unbiased.workloads import LEAVES, NODES, mean_variances, range_variances
from tasks.uncertainty.intervals import margins_of, rounding_step
from tasks.uncertainty.sources import for_every_level, own_levels
from tasks.validate.coverage import Bounds, measured_bounds, summed_bounds, thresholded_bounds

WITHOUT_VIEWS = "without_views"  # behind a colon: as if the spec named none

CELLS = (ALL, SURVIVORS)  # likewise: as if the spec had this `measure`

_REPLACED = ("epsilon", "rho", "target")  # by the ε at which a comparison is asked for


@dataclass(frozen=True, slots=True, eq=False)
class Entry(Contestant):
    """A mechanism at one ε; behind a colon its name has the priority or which cells it measures, where one was named.

    Attributes:
        plan: what a release of it would be.
    """

    plan: Plan

    @property
    def makes_releases(self) -> bool:
        """Whether a release is made by it: not by a relaxation, whose group sizes need not add up."""
        groups = self.plan.mechanism.of_groups
        return groups is None or groups.is_consistent

    @property
    def sigmas(self) -> list[float]:
        """σ of levels 0 to T, 0 where a level is exact."""
        return [noise.sigma for noise in self.noises]

    @property
    def noises(self) -> list[LevelNoise]:
        """The noise of levels 0 to T."""
        return self.plan.scheme.noises(self.plan.guarantee.noises)

    @property
    def variances(self) -> Mapping[str, float]:
        """By workload, the mean variance of its queries, where every node or every leaf is measured and none is pruned."""
        scheme, measured = self.plan.scheme, self.plan.guarantee.noises
        if scheme.mechanism.is_unbiased:
            return scheme.released(measured).mean_variances()
        if not scheme.mechanism.adds_up_leaves or scheme.law.keeps_some:
            return {}
        precisions = [0.0] * scheme.tree.depth + [1 / measured[-1].variance]
        return mean_variances(tree_variances(scheme.tree, precisions), scheme.tree.ordered)

    @property
    def range_variances(self) -> FloatArray | None:
        """Those of the noise, where every node, every leaf or their combinations are measured and none is pruned."""
        scheme, measured = self.plan.scheme, self.plan.guarantee.noises
        if scheme.mechanism.is_unbiased:
            return None if scheme.is_grid else range_variances(scheme.released(measured).covariance)
        if not scheme.mechanism.adds_up_leaves or scheme.law.keeps_some:
            return None
        return range_variances(measured[-1].variance * np.eye(scheme.tree.possible_cells(scheme.tree.depth)))

    def least_mean_variance(self, workload: str) -> float | None:
        """Return the bound at the ρ of the release."""
        return least_mean_variance(self.plan.scheme, self.plan.guarantee.rho, workload)

    def try_on(self, table: PublicTable) -> Trial | RelaxedTrial:
        """Make a release in memory, by the steps of a release."""
        plan = self.plan
        release = reserved_release(plan, self.name, Path())
        release = replace(release, terms=replace(release.terms, unlisted=()))  # the codes are in the tree of the table
        sampler = plan.scheme.law.samplers[release.terms.sampler].draw
        trial = try_release(table, release, reserved_charges(release.id, release.parts), plan.mechanism, sampler)
        groups = plan.mechanism.of_groups
        return RelaxedTrial(trial.job, groups.estimate) if groups and not self.makes_releases else trial

    def bounds(self, tree: Tree, trial: Trial, terms: Intervals) -> list[Bounds | None]:
        """Return the intervals of levels 0 to T as a release would state them; None where it would state none."""
        plan, confidence, noises = self.plan, terms.confidence, self.plan.guarantee.noises
        if threshold := max((level.threshold for level in plan.guarantee.by_map), default=0):
            leaves = thresholded_bounds(tree, trial.released[-1], noises[-1], threshold, confidence)
            return [None] * tree.depth + [leaves]
        if plan.mechanism.settles_whole_parts:
            return [None] * (tree.depth + 1)
        if plan.mechanism.adds_up_leaves:
            return [summed_bounds(tree, nodes, noises[-1], confidence) for nodes in trial.released]
        steps = [rounding_step(sigma) if terms.rounded else 1 for sigma in self.sigmas]
        own = [self.noises[level.level] for level in own_levels(plan.levels)]
        margins = for_every_level(plan.levels, margins_of(own, confidence))
        return list[Bounds | None](measured_bounds(tree, trial.measured, trial.released, margins, steps))


@dataclass(frozen=True, slots=True)
class Candidates:
    """What came of one name: entries at every ε at which it can be tried, and why it cannot be tried at the others.

    Attributes:
        notes: which keys of the spec hold for it in another way than for the others, in sentences.
    """

    entries: Sequence[Contestant]
    reasons: Sequence[str]
    notes: Sequence[str]


def usual_names(plan: Plan) -> list[str]:
    """Return what is tried where nobody names anything: of group sizes every mechanism that counts them; otherwise the usual ones and the spec's.

    Of one ordered axis, what is measured for its ranges is a usual one.
    """
    own = plan.mechanism.name
    for_ranges = [name for name, of in MECHANISMS.items() if of.is_dense and has_ranges(plan.tree)]
    if plan.mechanism.counts_groups:
        return [name for name, mechanism in MECHANISMS.items() if mechanism.counts_groups]
    if plan.mechanism.settles_together and not MECHANISMS[own].settles_together:  # as all of a tree are, with views
        return [own, *(f"{name}:{WITHOUT_VIEWS}" for name in USUAL), *for_ranges]
    return [*USUAL, *for_ranges, own]


def has_ranges(tree: Tree) -> bool:
    """Return whether a tree is of one ordered axis that is small enough for the exact variances of all its ranges."""
    return len(tree.axes) == 1 and bool(tree.ordered) and tree.possible_cells(tree.depth) <= MOST_CODES


def check_name(name: str) -> None:
    """Refuse a name of no mechanism and no baseline, or of a priority that its mechanism has not."""
    if name not in BASELINES:
        _named(name)


def entries_of(plan: Plan, name: str, epsilons: Sequence[float]) -> Candidates:
    """Return a mechanism, or a baseline, by its name such as `inftda:least_squares`, at every ε at which it can be tried, once at each."""
    mechanism, named = (BASELINES[name].mechanism, "") if name in BASELINES else _named(name)
    for fault in faults_of_counted(plan.file.spec, mechanism):
        return Candidates([], [str(fault)], [])
    if name in BASELINES:
        entries, reasons = _at_every(epsilons, lambda epsilon: baseline_entry(plan, name, epsilon))
        return Candidates(entries, reasons, _left_out(plan, mechanism) if entries else [])
    try:
        tried = _with_views(plan, mechanism, named)
        asked = named if named in CELLS else plan.file.spec.measure if tried.chooses_cells else None
        measuring = replace(plan, file=replace(plan.file, spec=plan.file.spec.model_copy(update={"measure": asked})))
        tried = measured_by(measuring.file.spec, tried, plan.tree)
        check_listed(plan.file.spec, tried)
        check_leaves(plan.file.spec, plan.tree, tried)
    except SpecError as reason:
        return Candidates([], [str(reason)], [])
    priority = next((of for of in (named, plan.file.spec.priority or "") if of in tried.repair), "")
    entries, reasons = _at_every(epsilons, lambda epsilon: _entry(measuring, name, tried, priority, epsilon))
    return Candidates(entries, reasons, _notes(plan, mechanism, named) if entries else [])


def _at_every(epsilons: Sequence[float], make: Callable[[float], Contestant]) -> tuple[list[Contestant], list[str]]:
    entries, reasons = list[Contestant](), []
    for epsilon in dict.fromkeys(epsilons):
        try:
            entries.append(make(epsilon))
        except SpecError as reason:
            reasons.append(f"At epsilon {epsilon:g}: {reason}")
    return entries, reasons


def _named(name: str) -> tuple[Mechanism, str]:
    """Return the mechanism, and what is named behind a colon: one of its priorities, which cells it measures, or `without_views`."""
    of, _, priority = name.partition(":")
    if of not in MECHANISMS:
        names = dict.fromkeys([*MECHANISMS, *BASELINES])
        if of in BASELINES:
            raise UsageError(
                f"--mechanisms: there is no baseline {name}, only {', '.join(BASELINES)}.", field="--mechanisms"
            )
        raise UsageError(f"--mechanisms must be among {', '.join(names)}, got {of}.", field="--mechanisms")
    others = [WITHOUT_VIEWS] if MECHANISMS[of].cells == "survivors" else []
    others += CELLS if MECHANISMS[of].chooses_cells else []
    if priority and priority not in [*MECHANISMS[of].repair, *others]:
        of_it = ", ".join([*MECHANISMS[of].repair, *others]) or "none"
        raise UsageError(f"--mechanisms: {of} has the priorities {of_it}; got {priority}.", field="--mechanisms")
    return MECHANISMS[of], priority


def _with_views(plan: Plan, mechanism: Mechanism, named: str) -> Mechanism:
    """Return a mechanism as it is with the spec's views, unless it is asked for without them."""
    has_views = bool(plan.named_views) and named != WITHOUT_VIEWS
    if mechanism.cells == "views" and not has_views:
        raise SpecError(f"release.views must be given for mechanism {mechanism.name}.", field="release.views")
    if named in mechanism.repair and named:
        return mechanism
    together, is_grid = can_settle_views(plan.tree), bool(plan.file.spec.release.grid)
    return mechanism_with(mechanism, has_views=has_views, together=together, is_grid=is_grid)


def _notes(plan: Plan, mechanism: Mechanism, named: str) -> list[str]:
    """Return which keys of the spec hold for a mechanism in another way than for the others, in sentences."""
    spec, notes, law = plan.file.spec, _left_out(plan, mechanism), _law(plan, mechanism)
    tried = _with_views(plan, mechanism, named)
    if spec.noise.sampler not in law.samplers:
        notes.append(f"noise.sampler is {sampler_of(plan, law)}, because it has no {spec.noise.sampler}.")
    if tried.finish == Together() and not mechanism.settles_together:
        notes.append(
            "its counts are settled together with the views, which gives the same for every mechanism of a tree without priors;"
            f" {mechanism.name}:{WITHOUT_VIEWS} measures no views."
        )
    if plan.named_views and named != WITHOUT_VIEWS and not (tried.measures_views or tried.counts_groups):
        what = "combinations of levels of release.grid" if spec.release.grid else "views"
        notes.append(f"it measures no {what}: these are added up from what it releases.")
    if plan.scheme.rho is not None and mechanism.is_unbiased and "split" not in mechanism.refused:
        notes.append("privacy.split.targets share the budget of each epsilon, and are met only where it suffices.")
    if spec.measure and not tried.chooses_cells:
        notes.append("measure is left out, because it has no choice of the cells that it measures.")
    if spec.priority and not named:
        has = spec.priority in mechanism.repair
        notes.append(
            f"priority is {spec.priority}." if has else f"priority is left out, because it has no {spec.priority}."
        )
    return notes


def _left_out(plan: Plan, mechanism: Mechanism) -> list[str]:
    """Return which keys of the spec's privacy are left out, with the reasons, in sentences."""
    privacy, refused = plan.file.spec.privacy, _refused(plan, mechanism)
    return [
        f"privacy.{key} is left out: {refused[key]}."
        for key, default in privacy_defaults(refused).items()
        if key not in _REPLACED and getattr(privacy, key) != default
    ]


def _law(plan: Plan, mechanism: Mechanism) -> Law:
    """Return the law of the spec's noise where the mechanism has it, otherwise its default."""
    return mechanism.laws.get(plan.law, mechanism.default_law)


def _refused(plan: Plan, mechanism: Mechanism) -> dict[str, str]:
    """Return the keys of the spec's privacy that a mechanism does not take with its law, with the reasons."""
    refused = {**_law(plan, mechanism).refused, **mechanism.refused}
    if rule_for_nodes(plan.file.spec.privacy.split) and not mechanism.is_unbiased:
        refused.setdefault("split", "it is a rule for mechanisms that measure every node")
    if mechanism.is_dense:
        privacy = plan.file.spec.privacy
        split = privacy.split
        is_own = rules_of_axes(split) and plan.mechanism.is_dense
        if not is_own and (not isinstance(split, Workload) or split.workload in (NODES, LEAVES)):
            refused["split"] = "it is measured for all ranges"
        if privacy.accountant == "pld":
            refused["accountant"] = "it is accounted by zcdp"
    return refused


def _entry(plan: Plan, name: str, mechanism: Mechanism, priority: str, epsilon: float) -> Entry:
    """Return a mechanism at an ε; the spec's other privacy keys hold where the mechanism uses them."""
    spec, law = plan.file.spec, _law(plan, mechanism)
    without = privacy_defaults(_refused(plan, mechanism))
    if mechanism.is_dense and "split" in without:
        without["split"] = Workload(workload="ranges")
    keys = spec.privacy.model_copy(update={**without, **dict.fromkeys(_REPLACED), "epsilon": epsilon})
    sampler = sampler_of(plan, law)
    has_views = mechanism.measures_views
    if isinstance(keys.split, dict | Minimise) and not (has_views or rules_of_axes(keys.split)):
        keys = keys.model_copy(update={"split": "uniform"})
    views = plan.scheme.named_views if has_views else []
    scheme = scheme_of(keys, plan.tree, plan.whole, mechanism, sampler, law, views)
    scheme = replace(scheme, rho=None)  # targets share the budget here, and do not fix it
    guarantee = guarantee_of(scheme)
    tried = spec.model_copy(
        update={
            "mechanism": mechanism.name,
            "priority": priority or None,
            "privacy": keys,
            "noise": spec.noise.model_copy(update={"sampler": sampler}),
        }
    )
    return Entry(
        name,
        epsilon,
        replace(
            plan,
            file=replace(plan.file, spec=tried),
            mechanism=mechanism,
            law=plan.law if plan.law in mechanism.laws else next(iter(mechanism.laws)),
            scheme=scheme,
            guarantee=guarantee,
            parts=parts_of(scheme, guarantee),
            named_views=plan.named_views if has_views else (),
        ),
    )
