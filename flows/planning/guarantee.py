"""The guarantee of a release: which levels are measured, how ρ is shared among them, and the (ε, δ) that follows."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context
from fractions import Fraction
from math import inf

from flows.mechanisms import Mechanism
from flows.spec.privacy import Finest, Geometric, PrivacyKeys, Target
from storage.errors import SpecError
from storage.ledger.books import Charge
from tasks.accounting.accountants import ACCOUNTANTS, Accountant
from tasks.accounting.allocation import Allocation, Measurement, finest, geometric, rho_of, shares_of, tau_of, uniform
from tasks.accounting.conversions import zcdp_epsilon, zcdp_rho
from tasks.accounting.floats import float_above, float_below
from tasks.accounting.pld import check_pld
from tasks.accounting.sensitivity import derivation, l2_sensitivity_squared, touched_cells
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.laws.named import LAWS
from tasks.laws.thresholded import THRESHOLDED_LAPLACE, Thresholded, thresholded_for
from tasks.laws.thresholded import derivation as thresholded_derivation
from tasks.tree.order import Tree
from tasks.tree.views import AddUp

PRIVACY_MAP = "privacy_map"  # the accountant of a mechanism that is charged the (ε, δ) of its own privacy map

_CURVE = (0.25, 0.5, 0.75, 1.0, 1.25)  # a plan shows δ at these multiples of ε


@dataclass(frozen=True, slots=True, eq=False)
class Scheme:
    """What a release measures, without the amount of noise.

    Attributes:
        keys: the spec's section `privacy`.
        tree: the axes and their order.
        mechanism: the mechanism, for its error bounds.
        most_distinct: per level, the most cells of the level `privacy.distinct` that meet one node; None without a promise.
        first_measured: the first tree level that is measured. Levels above it are published exactly or are sums.
        allocation: how any ρ is shared among the measured levels.
    """

    keys: PrivacyKeys
    tree: Tree
    mechanism: Mechanism
    most_distinct: tuple[int, ...] | None
    first_measured: int
    allocation: Allocation

    @property
    def is_summed(self) -> bool:
        """Whether the levels above the measured one are its sums."""
        return isinstance(self.mechanism.finish, AddUp)

    def noises(self, measured: Sequence[LevelNoise]) -> list[LevelNoise]:
        """Return the noise of levels 0 to T, given that of the measured levels; of sums that of the widest cell.

        Sums of leaves that reached a threshold have none that could be stated: they miss the leaves that are left out.
        """
        if self.mechanism.law.keeps_some or not self.is_summed:
            return [NO_NOISE] * self.first_measured + list(measured)
        leaves = self.tree.axis_levels(self.tree.depth)
        widest = (self.tree.most_cells_below(self.tree.axis_levels(of), leaves) for of in range(self.tree.depth + 1))
        return [replace(measured[0], terms=terms) for terms in widest]

    def bounds(self, measurements: Sequence[Measurement], confidence: float) -> list[float] | None:
        """Return the error bounds of levels 0 to T; None where the mechanism states none."""
        if self.mechanism.bounds is None:
            return None
        possible = [self.tree.possible_cells(level) for level in range(self.tree.depth + 1)]
        return self.mechanism.bounds(self.noises(gaussians(measurements)), possible, confidence)

    def derivation(self, level: int) -> str:
        """Return how Δ₂² of a level is computed, in words, or why the level has no Δ₂²."""
        if level < self.first_measured:
            return "sums of the finest level's counts" if self.is_summed else "published exactly"
        if self.mechanism.law.keeps_some:
            return thresholded_derivation(self.keys.neighbours, self.keys.max_records_per_unit)
        return derivation(
            self.keys.neighbours,
            self.keys.max_records_per_unit,
            self.most_distinct[level] if self.most_distinct else None,
            is_root=level == 0,
        )


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The δ that holds at an ε."""

    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(ε, δ)-differential privacy, and the measurements that give it.

    Attributes:
        accountant: the accountant that computes it.
        rho: the cost of all measurements together, exact.
        measurements: one per measured level, from the first to the finest.
        thresholded: the measurement of a mechanism without ρ, in place of `measurements`; None for other mechanisms.
    """

    accountant: Accountant
    epsilon: float
    delta: float
    rho: Fraction
    measurements: tuple[Measurement, ...]
    thresholded: Thresholded | None = None

    @property
    def approximate(self) -> tuple[tuple[float, float], ...]:
        """(ε, δ) of the measurement without ρ, as the ledger charges it; empty for other mechanisms."""
        return ((self.thresholded.epsilon, self.thresholded.delta),) if self.thresholded else ()

    @property
    def noises(self) -> tuple[LevelNoise, ...]:
        """The noise of the measured levels, from the first to the finest."""
        if self.thresholded:
            return (LevelNoise(THRESHOLDED_LAPLACE, self.thresholded.scale),)
        return tuple(gaussians(self.measurements))

    @property
    def tau(self) -> Fraction:
        """How far the samplers may be from their laws, in total variation over the cells that one unit can touch."""
        return tau_of(self.measurements)

    def curve(self) -> list[CurvePoint]:
        """Return the δ that holds at five values of ε around the stated one. Without ρ, return none: the map has one point."""
        if self.thresholded:
            return []
        points = (part * self.epsilon for part in _CURVE)
        return [
            CurvePoint(epsilon, min(1.0, self.accountant.least_delta(self.measurements, epsilon))) for epsilon in points
        ]


def gaussians(measurements: Sequence[Measurement]) -> list[LevelNoise]:
    """Return the noise of measurements that are charged in ρ."""
    return [LevelNoise(GAUSSIAN, of.sigma) for of in measurements]


def epsilon_of_series(guarantee: Guarantee, releases: int, delta: float) -> float:
    """Return an ε such that this number of releases with the same guarantee, declared in advance, is together (ε, δ)-private.

    Nothing about a release is chosen after seeing another, so privacy loss distributions compose over all of them. Costs
    without ρ add up, ε and δ separately. The result is infinite where the sum of δ exceeds `delta`.
    """
    if guarantee.approximate:
        epsilons, deltas = (
            releases * sum(map(Fraction, of), Fraction(0)) for of in zip(*guarantee.approximate, strict=True)
        )
        return float_above(epsilons) if deltas <= Fraction(delta) else inf
    measurements = guarantee.measurements * releases
    epsilon = ACCOUNTANTS["zcdp"].least_epsilon(measurements, delta)
    if guarantee.accountant.name == "pld":
        with suppress(ValueError):  # the measurements are outside the range of `check_pld`
            epsilon = min(epsilon, guarantee.accountant.least_epsilon(measurements, delta))
    return epsilon


def holds_together(charges: Sequence[Charge], accountants: Collection[str], epsilon: float, delta: float) -> bool:
    """Return whether the charges of a series give the (ε, δ) that was stated for all its releases together.

    Args:
        charges: the charges of all its releases, also those that were given back.
        accountants: the accountants of its releases. Privacy loss distributions are used only if they are the accountant of
            all releases, and each unit moves at most two counts of a level, by one each.
        epsilon: the stated ε.
        delta: the stated δ.
    """
    only = [charge for charge in charges if not _is_in_rho(charge)]
    if any(charge.rho or not charge.epsilon > 0 for charge in only):
        return False
    epsilon = float_below(Fraction(epsilon) - sum(Fraction(charge.epsilon) for charge in only))
    delta = float_below(Fraction(delta) - sum(Fraction(charge.delta) for charge in only))
    if len(only) == len(charges):
        return epsilon >= 0 and delta >= 0
    if only and not (epsilon > 0 and delta > 0):
        return False
    measurements = [
        Measurement(charge.rho, charge.sigma, charge.l2_sensitivity_squared, charge.tau)
        for charge in charges
        if _is_in_rho(charge)
    ]
    if ACCOUNTANTS["zcdp"].holds(measurements, epsilon, delta):
        return True
    if only or set(accountants) != {"pld"} or any(charge.l2_sensitivity_squared > 2 for charge in charges):
        return False
    try:
        check_pld(measurements, epsilon, delta)
    except ValueError:
        return False
    return ACCOUNTANTS["pld"].holds(measurements, epsilon, delta)


def _is_in_rho(charge: Charge) -> bool:
    """Return whether a charge is for noise that costs ρ, as that of the Euclidean norm does."""
    law = LAWS.get(charge.mechanism)
    return law is not None and law.norm == 2


def scheme_of(keys: PrivacyKeys, tree: Tree, whole: Tree, mechanism: Mechanism, sampler: str) -> Scheme:
    """Return the measurements of a spec, without their noise.

    Args:
        keys: the spec's section `privacy`.
        tree: the tree that is released.
        whole: the same tree with all levels of the codebooks. `privacy.distinct` may name any of them.
        mechanism: the mechanism.
        sampler: the sampler of the mechanism that draws the noise.
    Raises:
        SpecError: a level that the spec names does not exist, or the split does not fit the levels.
    """
    most_distinct = None
    promised = promised_levels(keys, whole)
    if keys.distinct and mechanism.law.norm == 2:  # ℓ₁ depends on the number of records alone
        most_distinct = tuple(
            whole.most_cells_below(tree.axis_levels(level), promised) for level in range(tree.depth + 1)
        )
    first = mechanism.views(tree)[0].number
    if keys.total_is_public and first == 0:
        first = 1
    if keys.invariants:
        first = 1 + max(_released_level(tree, name, "privacy.invariants") for name in keys.invariants)
    if first > tree.depth:
        raise SpecError("privacy.invariants must leave a level to measure.", field="privacy.invariants")
    measured = range(first, tree.depth + 1)
    squares = tuple(
        l2_sensitivity_squared(
            keys.neighbours,
            keys.max_records_per_unit,
            most_distinct[level] if most_distinct else None,
            is_root=level == 0,
        )
        for level in measured
    )
    per_draw = mechanism.law.samplers[sampler].tau
    taus = tuple(
        per_draw * touched_cells(keys.neighbours, keys.max_records_per_unit, is_root=level == 0) for level in measured
    )
    allocation = Allocation(_shares(keys, len(measured)), squares, taus)
    return Scheme(keys, tree, mechanism, most_distinct, first, allocation)


def promised_levels(keys: PrivacyKeys, whole: Tree) -> tuple[int, ...]:
    """Return, per axis, the axis level at which a unit's records are promised distinct; 0 without a promise."""
    level = whole.level_named(keys.distinct) if keys.distinct else 0
    return whole.axis_levels(level or 0)


def guarantee_of(scheme: Scheme) -> Guarantee:
    """Return the guarantee with the least noise that a spec's epsilon or rho allows, or of the least ρ that meets its target.

    Raises:
        SpecError: the accountant does not apply, the target names no measured level, or the noise is out of range.
    """
    keys = scheme.keys
    try:
        if scheme.mechanism.law.keeps_some:
            return _guarantee_by_map(keys)
        if keys.epsilon is not None:
            accountant = _accountant(keys, scheme.allocation, keys.epsilon)
            rho = accountant.largest_rho(scheme.allocation, keys.epsilon, keys.delta)
            return _checked(accountant, keys.epsilon, keys.delta, scheme.allocation.measurements(rho))
        if keys.target is not None:
            return guarantee_for(scheme, keys.target)
        return _guarantee_from(scheme, Fraction(keys.rho or 0))
    except ValueError as fault:
        field = "epsilon" if keys.epsilon is not None else "rho" if keys.rho is not None else "target"
        raise SpecError(f"privacy.{field}: {fault}", field=f"privacy.{field}") from None


def _guarantee_by_map(keys: PrivacyKeys) -> Guarantee:
    """Return the guarantee of a thresholded histogram: the (ε, δ) of its privacy map, which gives nothing at a smaller ε."""
    noise = thresholded_for(keys.neighbours, keys.max_records_per_unit, keys.epsilon or 0.0, keys.delta)
    by_map = Accountant(
        name=PRIVACY_MAP,
        holds=lambda _, epsilon, delta: noise.epsilon <= epsilon and noise.delta <= delta,
        largest_rho=lambda *_: Fraction(0),
        least_epsilon=lambda _, delta: noise.epsilon if noise.delta <= delta else inf,
        least_delta=lambda _, epsilon: noise.delta if noise.epsilon <= epsilon else 1.0,
    )
    return Guarantee(by_map, keys.epsilon or 0.0, keys.delta, Fraction(0), (), noise)


def guarantee_for(scheme: Scheme, target: Target) -> Guarantee:
    """Return the guarantee of the least ρ with which every count of a level stays within the target's error.

    Raises:
        SpecError: no measured level has the target's name.
        ValueError: no noise in range meets the target.
    """
    return _guarantee_from(scheme, _rho_for(scheme, target))


def largest_epsilon_within(scheme: Scheme, rho: Fraction) -> float:
    """Return the ε, rounded down to four digits, of a release like this one that costs at most ρ; 0 if there is none."""
    if rho <= 0:
        return 0.0
    try:
        return round_down(_guarantee_from(scheme, rho * Fraction(9_999, 10_000)).epsilon)
    except ValueError:
        return 0.0


def _guarantee_from(scheme: Scheme, rho: Fraction) -> Guarantee:
    keys, measurements = scheme.keys, scheme.allocation.measurements(rho)
    accountant = _accountant(keys, scheme.allocation, zcdp_epsilon(rho, keys.delta))
    return _checked(accountant, accountant.least_epsilon(measurements, keys.delta), keys.delta, measurements)


def _checked(accountant: Accountant, epsilon: float, delta: float, measurements: tuple[Measurement, ...]) -> Guarantee:
    """Return a guarantee after checking that it holds by the accountant's own computation, to the last digit."""
    if not accountant.holds(measurements, epsilon, delta):
        raise ValueError(f"the noise does not give epsilon {epsilon:g} by accountant {accountant.name}.")
    return Guarantee(accountant, epsilon, delta, rho_of(measurements), measurements)


def _accountant(keys: PrivacyKeys, allocation: Allocation, epsilon: float) -> Accountant:
    """Return the accountant that a spec names, or the tightest one that applies near this ε."""
    if keys.accountant == "pld" and keys.max_records_per_unit > 1:
        raise SpecError(
            f"privacy.accountant: pld needs max_records_per_unit 1, got {keys.max_records_per_unit}; use zcdp.",
            field="privacy.accountant",
        )
    if keys.accountant:
        return ACCOUNTANTS[keys.accountant]
    if keys.max_records_per_unit > 1:
        return ACCOUNTANTS["zcdp"]
    try:
        check_pld(allocation.measurements(zcdp_rho(epsilon, keys.delta)), epsilon, keys.delta)
    except ValueError:
        return ACCOUNTANTS["zcdp"]
    return ACCOUNTANTS["pld"]


def _rho_for(scheme: Scheme, target: Target) -> Fraction:
    level = _released_level(scheme.tree, target.level, "privacy.target.level")
    if scheme.mechanism.bounds is None:
        raise SpecError(
            f"privacy.target: mechanism {scheme.mechanism.name} states no error bound.",
            field="privacy.target",
            hint="Choose a mechanism that states one, such as mechanism: inftda.",
        )
    if level < scheme.first_measured and not scheme.is_summed:
        raise SpecError(
            f"privacy.target.level must be a measured level: {target.level} is published exactly, without error.",
            field="privacy.target.level",
        )

    return scheme.allocation.least_rho(_error_at(scheme, level, target.confidence), target.max_error)


def _error_at(scheme: Scheme, level: int, confidence: float) -> Callable[[tuple[Measurement, ...]], float]:
    return lambda measurements: (scheme.bounds(measurements, confidence) or [inf])[level]


def _released_level(tree: Tree, name: str, field: str) -> int:
    level = tree.level_named(name)
    if level is None:
        names = dict.fromkeys(name for axis in tree.axes for name in axis.level_names)
        raise SpecError(f"{field} must be one of the released levels {', '.join(names)}, got {name}.", field=field)
    return level


def _shares(keys: PrivacyKeys, measured: int) -> tuple[Fraction, ...]:
    if isinstance(keys.split, Geometric):
        return geometric(_decimal(keys.split.geometric), measured)
    if isinstance(keys.split, Finest):
        return finest(_decimal(keys.split.finest), measured)
    if isinstance(keys.split, list):
        if len(keys.split) != measured:
            raise SpecError(
                f"privacy.split must list {measured} shares, one per measured level, got {len(keys.split)}.",
                field="privacy.split",
            )
        return shares_of([_decimal(share) for share in keys.split])
    return uniform(measured)


def _decimal(written: float) -> Fraction:
    """Return the number that was written: 0.1 is exactly one tenth."""
    return Fraction(repr(written))


def round_down(value: float) -> float:
    """Return a number rounded down to four digits."""
    return float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(value))
