"""The guarantee of a release: the noise of its measurements, and the (ε, δ) that follows. What was computed before on this machine is remembered."""

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from math import inf

from flows.planning.scheme import Scheme, released_level
from flows.specification.rules import wrong_key
from flows.specification.sections.privacy import Target
from storage.errors import SpecError, StoreError
from storage.ledger.accounts import Charge
from storage.machine.files import beside
from storage.machine.home import place_of_home
from tasks.accounting.accountants import ACCOUNTANTS, PRIVACY_MAP, Accountant, delta_left, least_with_tau
from tasks.accounting.allocation import Measurement, cost_of, rho_of, tau_of
from tasks.accounting.conversions import float_above, float_below, zcdp_epsilon
from tasks.accounting.pld import check_pld, check_pld_within, remember_deltas, remembered_deltas
from tasks.accounting.sensitivity import joint_part
from tasks.laws.days import LEAST_DEVIATION, Days
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import LevelCost, LevelNoise
from tasks.laws.named import GAUSSIAN_OVER_DAYS, LAWS

DELTAS = "deltas.json"  # in TRELLIS_HOME; it may be deleted

_MOST = 4096  # of the last ones

_CURVE = (0.25, 0.5, 0.75, 1.0, 1.25)  # a plan shows δ at these multiples of ε


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The δ that holds at an ε."""

    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class MappedLevel:
    """A measured level that is charged (ε, δ), by the privacy map of its noise.

    Attributes:
        threshold: the least noisy count that is kept, records; 0 where all are.
        cost: what it is charged: by the map, and beside a measured total its part of what all levels cost any unit together.
        tau: how far, in total variation, the sampler's draws may be from that noise, over all the cells of the level that
            one unit can touch.
    """

    noise: LevelNoise
    threshold: int
    cost: LevelCost
    tau: Fraction


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(ε, δ)-differential privacy, and the measurements that give it.

    Attributes:
        measurements: one per measured level, from the first to the finest, where the noise costs ρ; otherwise none.
        by_map: one per measured level where the noise costs (ε, δ); otherwise none.
        days: the factor over the days of a series that these measurements are about; None where a release stands alone.
        before: how many days precede the one whose noise is meant.
    """

    accountant: Accountant
    epsilon: float
    delta: float
    measurements: tuple[Measurement, ...]
    by_map: tuple[MappedLevel, ...] = ()
    days: Days | None = None
    before: int = 0

    @property
    def rho(self) -> Fraction:
        """The cost of all measurements together, exact; 0 where there are none."""
        return rho_of(self.measurements)

    @property
    def approximate(self) -> tuple[tuple[float, float], ...]:
        """(ε, δ) of every level without ρ, as the ledger charges it."""
        return tuple((level.cost.epsilon, level.cost.delta) for level in self.by_map)

    @property
    def noises(self) -> tuple[LevelNoise, ...]:
        """The noise of the counts of the measured levels, from the first to the finest."""
        if self.days:
            of_day = (self.days.deviation(of.sigma, self.before) for of in self.measurements)
            return tuple(LevelNoise(GAUSSIAN_OVER_DAYS, deviation) for deviation in of_day)
        return tuple(gaussians(self.measurements)) or tuple(level.noise for level in self.by_map)

    @property
    def tau(self) -> Fraction:
        """How far the samplers may be from their laws, in total variation over the cells that one unit can touch."""
        return tau_of(self.measurements) + sum((level.tau for level in self.by_map), Fraction(0))

    def curve(self) -> list[CurvePoint]:
        """Return the δ that holds at five values of ε around the stated one. Without ρ, return none: a map has one point."""
        if not self.measurements:
            return []
        least_delta = partial(self.accountant.least_delta, self.measurements)
        with _remembering():
            return [CurvePoint(at, min(1.0, least_delta(at))) for at in (times * self.epsilon for times in _CURVE)]

    def check(self) -> None:
        """Check the guarantee before it is charged, by its accountant, which uses nothing that it remembers.

        Raises:
            StoreError: what an earlier process kept is wrong.
        """
        costs_no_more = cost_of(self.measurements) <= self.rho
        if not (costs_no_more and self.accountant.holds(self.measurements, self.epsilon, self.delta)):
            raise StoreError(
                f"the noise does not give epsilon {self.epsilon:g} by accountant {self.accountant.name}: {DELTAS} in"
                " TRELLIS_HOME has been altered.",
                field="TRELLIS_HOME",
                hint=f"Delete {DELTAS} there; what it holds is computed again.",
            )


def check_noise_of_days(guarantee: Guarantee) -> None:
    """Refuse so little noise over the days of a series that the rounding of a day would depend on it.

    Raises:
        SpecError: it is less than half a record a day.
    """
    if guarantee.days and min(of.sigma for of in guarantee.measurements) < LEAST_DEVIATION * guarantee.days.weights[0]:
        raise SpecError(
            f"schedule.cumulative: the noise of a day must be at least {LEAST_DEVIATION} records, and with this budget it is less.",
            field="schedule.cumulative",
            hint="Lower privacy.epsilon, or leave schedule.cumulative out.",
        )


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
        left = Fraction(delta) - deltas
        return (
            least_with_tau(lambda _: float_above(epsilons), float_below(left), guarantee.tau * releases)
            if left >= 0
            else inf
        )
    # a unit may come in one month and stay in another, and both are less than what each level is moved at most
    measurements = tuple(replace(of, is_total=False) for of in guarantee.measurements) * releases
    epsilon = ACCOUNTANTS["zcdp"].least_epsilon(measurements, delta)
    if guarantee.accountant.name == "pld":
        with suppress(ValueError), _remembering():  # the measurements are outside the range of `check_pld`
            epsilon = min(epsilon, guarantee.accountant.least_epsilon(measurements, delta))
    return epsilon


def holds_together(charges: Sequence[Charge], accountants: Collection[str], epsilon: float, delta: float) -> bool:
    """Return whether the charges of a series give the (ε, δ) that was stated for all its releases together.

    Args:
        charges: of all its releases, also those that were given back.
        accountants: of its releases. Privacy loss distributions are used only if they are the accountant of all releases, and
            each unit moves at most two counts of a level, by one each.
    """
    charges = [charge for charge in charges if not (charge.is_paid_before and _is_in_rho(charge))]
    only = [charge for charge in charges if not _is_in_rho(charge)]
    if any(charge.rho or not charge.epsilon > 0 for charge in only):
        return False
    stated, epsilon = epsilon, float_below(Fraction(epsilon) - sum(Fraction(charge.epsilon) for charge in only))
    delta = float_below(Fraction(delta) - sum(Fraction(charge.delta) for charge in only))
    tau = sum((charge.tau for charge in only), Fraction(0))
    if len(only) == len(charges):
        return epsilon >= 0 and delta_left(delta, stated, tau) >= 0
    if only and not (epsilon > 0 and delta > 0):
        return False
    measurements = [
        Measurement(charge.rho, charge.scale or charge.sigma, charge.l2_sensitivity_squared, charge.tau)
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
    """Return whether a charge is for noise that costs ρ."""
    law = LAWS.get(charge.mechanism)
    return law is not None and law.costs_rho


def guarantee_of(scheme: Scheme) -> Guarantee:
    """Return the guarantee with the least noise that a spec's epsilon or rho allows, or of the least ρ that meets its target.

    What was computed for an earlier plan is remembered. `Guarantee.check` computes it again before a release is charged.

    Raises:
        SpecError: the accountant does not apply, the target names no measured level, or the noise is out of range.
    """
    keys = scheme.keys
    try:
        if keys.target is not None:
            return guarantee_for(scheme, keys.target)
        if not scheme.law.costs_rho:
            return _guarantee_by_map(scheme, keys.epsilon or 0.0)
        if scheme.rho is not None or keys.epsilon is None:
            return _guarantee_from(scheme, scheme.rho or Fraction(keys.rho or 0))
        accountant = _accountant(scheme, keys.epsilon)
        with _remembering():
            rho = accountant.largest_rho(scheme.allocation, keys.epsilon, keys.delta)
        return Guarantee(accountant, keys.epsilon, keys.delta, scheme.allocation.measurements(rho))
    except ValueError as fault:
        stated = {"split.targets": scheme.rho, "epsilon": keys.epsilon, "rho": keys.rho}
        key = next((key for key, value in stated.items() if value is not None), "target")
        raise SpecError(f"privacy.{key}: {fault}", field=f"privacy.{key}") from None


def _guarantee_by_map(scheme: Scheme, epsilon: float) -> Guarantee:
    """Return the guarantee of noise that costs (ε, δ) by its privacy map: what the levels cost, added up.

    Nothing is known of it at a smaller ε. What an inexact sampler costs is taken off δ, as by the other accountants.
    """
    keys, levels = scheme.keys, _mapped_levels(scheme, epsilon)
    cost = sum((Fraction(level.cost.epsilon) for level in levels), Fraction(0))
    spent = sum((Fraction(level.cost.delta) for level in levels), Fraction(0))
    tau = scheme.allocation.tau

    def least_epsilon(_: object, delta: float) -> float:
        left = Fraction(delta) - spent
        return least_with_tau(lambda _: float_above(cost), float_below(left), tau) if left >= 0 else inf

    by_map = Accountant(
        name=PRIVACY_MAP,
        holds=lambda _, epsilon, delta: least_epsilon(_, delta) <= epsilon,
        largest_rho=lambda *_: Fraction(0),
        least_epsilon=least_epsilon,
        least_delta=lambda _, at: (keys.delta if tau else float_above(spent)) if cost <= Fraction(at) else 1.0,
    )
    if tau and not by_map.holds((), epsilon, keys.delta):
        raise ValueError(
            f"noise.sampler table needs more delta than {keys.delta:g} at epsilon {epsilon:g}; use opendp."
        )
    return Guarantee(by_map, epsilon, keys.delta, (), levels)


def _mapped_levels(scheme: Scheme, epsilon: float) -> tuple[MappedLevel, ...]:
    """Return the measured levels, each with its share of ε and of the spec's δ, as far as its noise needs them.

    Shares are exact, and rounded down: the costs of all levels never add up to more than ε. Beside a measured total, a level is
    charged its share of what all levels cost any unit together, and costs more alone.
    """
    levels, allocation, law = [], scheme.allocation, scheme.law
    shares = [float_below(Fraction(epsilon) * share) for share in allocation.shares]
    total = 0.0 if scheme.total is None else shares[scheme.total]
    together = joint_part(Fraction(total), sum(map(Fraction, shares), Fraction(0)))
    for share, own, sensitivity, tau in zip(
        allocation.shares, shares, scheme.sensitivities, allocation.taus, strict=True
    ):
        delta = float_below(Fraction(scheme.keys.delta) * share)
        scale, threshold = law.fit(LevelCost(epsilon=float_below(Fraction(own) / together), delta=delta), sensitivity)
        cost = law.cost(scale, threshold, sensitivity)
        charged = cost if together == 1 else replace(cost, epsilon=own)
        levels.append(MappedLevel(LevelNoise(law, scale), threshold, charged, tau))
    return tuple(levels)


def noises_like(scheme: Scheme, guarantee: Guarantee) -> list[LevelNoise]:
    """Return the noise of what another scheme measures at the cost of a guarantee: its ρ, or its ε without τ, shared by the scheme."""
    if guarantee.measurements:
        return gaussians(scheme.allocation.measurements(guarantee.rho))
    return [level.noise for level in _mapped_levels(scheme, guarantee.epsilon)]


def guarantee_for(scheme: Scheme, target: Target) -> Guarantee:
    """Return the guarantee of the least ρ with which every count of a level stays within the target's error.

    Raises:
        SpecError: no measured level has the target's name.
        ValueError: no noise in range meets the target.
    """
    if not scheme.law.costs_rho:
        return _guarantee_by_map(scheme, _epsilon_for(scheme, target))
    level = _bounded_level(scheme, target)

    def error(measurements: tuple[Measurement, ...]) -> float:
        return (scheme.bounds(gaussians(measurements), target.confidence) or [inf])[level]

    return _guarantee_from(scheme, scheme.allocation.least_rho(error, target.max_error))


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
    accountant = _accountant(scheme, zcdp_epsilon(rho, keys.delta))
    with _remembering():
        epsilon = accountant.least_epsilon(measurements, keys.delta)
    return Guarantee(accountant, epsilon, keys.delta, measurements)


@contextmanager
def _remembering() -> Iterator[None]:
    """Let privacy loss distributions remember what they have computed, from one process to the next.

    A file that is missing, altered or of another version is not used; nothing is kept where there is no TRELLIS_HOME to write in.
    """
    place, composer = place_of_home() / DELTAS, version("dp-accounting")
    with suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads(place.read_bytes())
        if kept["version"] == composer:
            remember_deltas({str(of): float(delta) for of, delta in kept["deltas"].items()})
    before = len(remembered_deltas())
    yield
    deltas = remembered_deltas()
    with suppress(OSError):
        if len(deltas) > before and place.parent.is_dir():
            text = json.dumps({"version": composer, "deltas": dict(list(deltas.items())[-_MOST:])}, indent=0)
            with beside(place) as file:
                file.write(text.encode())


def _accountant(scheme: Scheme, epsilon: float) -> Accountant:
    """Return the accountant that a spec names, or the tightest one that applies near this ε.

    Privacy loss distributions compose moves by one: where one unit can move a number further, they are not used.
    """
    keys, allocation = scheme.keys, scheme.allocation
    if keys.accountant == "pld" and keys.max_records_per_unit > 1:
        raise SpecError(
            f"privacy.accountant: pld needs max_records_per_unit 1, got {keys.max_records_per_unit}; use zcdp.",
            field="privacy.accountant",
        )
    if keys.accountant == "pld" and scheme.designs:
        raise SpecError(
            f"privacy.accountant: must be zcdp with mechanism {scheme.mechanism.name}, got pld: one record moves many sums by whole numbers"
            " at once, and the exact law of such a combination of draws is not computed.",
            field="privacy.accountant",
        )
    if keys.accountant == "pld" and scheme.cascades:
        raise SpecError(
            "privacy.accountant: must be zcdp with the split cascade where areas have different numbers of children, got pld: the noise of a"
            " level then differs from area to area, and pld composes one scale of each level.",
            field="privacy.accountant",
            hint="Leave accountant out, or choose mechanism: unbiased_tree with split: worst_node.",
        )
    moves_further = any(of.largest > 1 for of in scheme.sensitivities)
    if keys.accountant == "pld" and moves_further:
        raise SpecError(
            f"privacy.accountant: pld needs numbers that one unit moves by at most 1, and mechanism {scheme.mechanism.name} measures"
            f" others with neighbours {keys.neighbours}; use zcdp.",
            field="privacy.accountant",
        )
    if keys.accountant:
        return ACCOUNTANTS[keys.accountant]
    if keys.max_records_per_unit > 1 or moves_further or scheme.cascades:
        return ACCOUNTANTS["zcdp"]
    try:
        check_pld_within(allocation, epsilon, keys.delta)
    except ValueError:
        return ACCOUNTANTS["zcdp"]
    return ACCOUNTANTS["pld"]


def _epsilon_for(scheme: Scheme, target: Target) -> float:
    """Return the least ε, to a part in 10¹², with which every count of a level stays within the target's error."""
    level = _bounded_level(scheme, target)

    def error(epsilon: float) -> float:
        noises = [of.noise for of in _mapped_levels(scheme, epsilon)]
        return (scheme.bounds(noises, target.confidence) or [inf])[level]

    ratio = error(1.0) / target.max_error  # the scales shrink as ε grows, and the error with them, nearly in proportion
    if not 1e-100 < ratio < 1e100:
        raise ValueError(f"max_error must be a number of records that noise can reach, got {target.max_error:g}.")
    low = high = ratio
    while error(low) <= target.max_error:
        low /= 1.01
    while error(high) > target.max_error:
        high *= 1.01
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if error(middle) <= target.max_error else (middle, high)
    return high


def _bounded_level(scheme: Scheme, target: Target) -> int:
    """Return the level that a target is about."""
    level = released_level(scheme.tree, target.level, "privacy.target.level")
    if scheme.mechanism.bounds is None:
        views = " with release.views" if scheme.names else ""
        raise SpecError(
            f"privacy.target: mechanism {scheme.mechanism.name} states no error bound{views}.",
            field="privacy.target",
            hint=f"Choose a mechanism that states one, such as mechanism: inftda{' without release.views' if views else ''}.",
        )
    if scheme.own(level) < scheme.first_measured and not scheme.mechanism.adds_up_leaves:
        raise wrong_key(
            "privacy.target.level", f"must be a measured level: {target.level} is published exactly, without error."
        )
    return level


def round_down(value: float) -> float:
    """Return a number rounded down to four digits."""
    return float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(value))
