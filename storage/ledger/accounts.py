"""What the ledger knows of some people: terms and caps, releases and series, charges, and what these cost one unit. Nothing here reads or writes.

Budgets are exact fractions of ρ.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction

from storage.ledger.spending import Contributions, Spending, for_one_unit
from storage.releases.parts import DISCRETE_GAUSSIAN, Part


@dataclass(frozen=True, slots=True)
class Cap:
    """What all releases about the same people may cost together: (ε, δ), and the ρ that zCDP converts it to."""

    epsilon: float
    delta: float
    rho: Fraction


@dataclass(frozen=True, slots=True)
class DatasetTerms:
    """The terms under which releases about some people are made; the people's first release fixes them.

    Attributes:
        dataset: the first dataset of these people; others are charged to its account.
        unit: who or what is protected, in words.
        neighbours: `substitution` or `add_remove`.
    """

    dataset: str
    unit: str
    neighbours: str
    cap: Cap


@dataclass(frozen=True, slots=True)
class Asked:
    """What a spec says about its dataset.

    Attributes:
        cap: its `budget`; None where it has none.
        same_people_as: the dataset whose account it is to be charged to; None for an account of its own.
    """

    dataset: str
    unit: str
    neighbours: str
    cap: Cap | None = None
    same_people_as: str | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """What one level of one release costs, and how far its measurement has come.

    Attributes:
        mechanism: what was drawn: `discrete_gaussian`, charged in ρ, or one that is only (ε, δ).
        rho: 0 for mechanisms that are only (ε, δ), and on the later days of a series whose first day is charged for all.
        sigma: the standard deviation of the noise, records.
        scale: the scale of the noise, records; 0 where it is the standard deviation.
        epsilon: of a mechanism that is only (ε, δ), otherwise 0; likewise `delta`.
        tau: how far the sampler may be from its law, in total variation over the cells that one unit can touch.
        view: the name of the view that was measured; empty for a level that no view names.
    """

    release: str
    level: int
    state: str
    rho: Fraction
    sigma: float
    l2_sensitivity_squared: int = 0
    mechanism: str = DISCRETE_GAUSSIAN
    epsilon: float = 0.0
    delta: float = 0.0
    tau: Fraction = Fraction(0)
    view: str = ""
    scale: float = 0.0

    @property
    def is_paid_before(self) -> bool:
        """Whether the first day of its series is charged for it."""
        return not (self.rho or self.epsilon)


_CHARGED = [of.name for of in fields(Charge)[3:]]  # what a charge has of the terms of its level


@dataclass(frozen=True, slots=True)
class Claim:
    """What a release states of itself.

    Attributes:
        accountant: by which it is (ε, δ)-differentially private.
        epsilon: of its own guarantee, with `delta`.
        table: the confidential table's path.
        unprotected: what it publishes exactly, beyond a total that is public anyway.
        different_people: whether the caller said that the table holds other people than datasets that had used it.
        series: the declared series that it belongs to; empty if it belongs to none.
    """

    release: str
    dataset: str
    accountant: str
    epsilon: float
    delta: float
    table: str
    unprotected: tuple[str, ...]
    different_people: bool
    contributions: Contributions
    series: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Releases that were declared together, before the first of them was made.

    Attributes:
        id: of the first one.
        name: of the spec.
        releases: their ids, in the order of their days.
        epsilon: of the guarantee of all of them together, with `delta`.
        is_charged_once: whether its first day is charged for all, since the counts of its days are measured together.
    """

    id: str
    name: str
    dataset: str
    releases: tuple[str, ...]
    epsilon: float
    delta: float
    is_charged_once: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the releases about the same people stand against their cap.

    Attributes:
        epsilon: all of them composed, at the cap's δ.
        left_rho: what one more release may cost.
        left_epsilon: the ε at the cap's δ that `left_rho` is enough for, by zCDP's conversion.
    """

    epsilon: float
    left_rho: Fraction
    left_epsilon: float


@dataclass(frozen=True, slots=True)
class CapRaise:
    """One raise of a cap: when, from and to which ε, and why."""

    at: str
    before: float
    epsilon: float
    reason: str


@dataclass(slots=True)
class Account:
    """What the ledger knows of some people: the terms, the datasets that hold them, and what was charged.

    Attributes:
        terms: with the cap as it is now.
        first_cap: the cap that the first release fixed.
        datasets: whose releases are charged here, the first one first.
        standing: as the last event that changed it recorded.
        charges: by release and level, as `enter` has put them there.
        claims: by release.
        series: the declared ones, by id.
    """

    terms: DatasetTerms
    first_cap: Cap
    datasets: list[str]
    standing: Standing
    charges: dict[tuple[str, int], Charge] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    raises: list[CapRaise] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)
    _levels: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False)  # that are charged, by release
    _spent: dict[str, Spending | None] = field(
        default_factory=dict, repr=False, compare=False
    )  # by release or series, until a charge changes

    def enter(self, charge: Charge) -> None:
        """Enter a charge of a release that is claimed, or the next state of one."""
        if (charge.release, charge.level) not in self.charges:
            self._levels[charge.release] = (*self._levels.get(charge.release, ()), charge.level)
        self.charges[charge.release, charge.level] = charge
        self._spent.pop(self.claims[charge.release].series or charge.release, None)

    def copy(self) -> "Account":
        """Return an account that can be changed while this one stays as it is."""
        return Account(
            self.terms,
            self.first_cap,
            [*self.datasets],
            self.standing,
            {**self.charges},
            {**self.claims},
            [*self.raises],
            {**self.series},
            {**self._levels},
            {**self._spent},
        )

    @property
    def spent(self) -> Fraction:
        """ρ of all charges that are not void, as they cost one unit."""
        return sum((spending.rho for spending in for_one_unit(self.spendings)), Fraction(0))

    @property
    def days_together(self) -> bool:
        """Whether a declared series measures its days together, so that their tables count as one."""
        return any(series.is_charged_once for series in self.series.values())

    @property
    def contributions(self) -> list[Contributions | None]:
        """How many records a unit has by each release or declared series that has not given everything back."""
        return [spending.contributions for spending in self.spendings]

    @property
    def spendings(self) -> list[Spending]:
        """What every release or declared series has spent or reserved, as it was charged, without those that gave everything back."""
        ids = dict.fromkeys(claim.series or claim.release for claim in self.claims.values())
        self._spent |= {id_: self._spending(id_) for id_ in ids if id_ not in self._spent}
        return [spending for id_ in ids if (spending := self._spent[id_])]

    def _spending(self, id_: str) -> Spending | None:
        releases = self.series[id_].releases if id_ in self.series else (id_,)
        of_all = (charge for release in releases for charge in self.charges_of(release).values())
        charges = [charge for charge in of_all if charge.state != "void"]
        if not charges:
            return None
        rho = sum((charge.rho for charge in charges), Fraction(0))
        only = tuple((charge.epsilon, charge.delta) for charge in charges if charge.epsilon)
        claim = self.claims[charges[0].release]
        stated = self.series[id_] if claim.series else claim
        tau = sum((charge.tau for charge in charges), Fraction(0))
        return Spending(rho, only, stated.epsilon, stated.delta, tau, claim.contributions)

    def with_reserved(self, claim: Claim, charges: Iterable[Charge]) -> "Account":
        """Return the account as it would be with one more release; this one stays as it is."""
        account = self.copy()
        account.claims[claim.release] = claim
        for charge in charges:
            account.enter(charge)
        return account

    def declared_with(self, release_id: str) -> tuple[str, ...]:
        """Return the releases that were declared together with a release, itself included."""
        series = self.series.get(self.claims[release_id].series)
        return tuple(release for release in series.releases if release in self.claims) if series else (release_id,)

    @property
    def unprotected(self) -> list[str]:
        """What releases about these people have published exactly, which weakens the guarantee of all of them."""
        return list(dict.fromkeys(what for claim in self.claims.values() for what in claim.unprotected))

    def charges_of(self, release_id: str) -> dict[int, Charge]:
        """Return the charges of one release, by level."""
        return {level: self.charges[release_id, level] for level in self._levels.get(release_id, ())}


def reserved_charges(release_id: str, levels: Iterable[Part]) -> list[Charge]:
    """Return the charges that a release makes when it is reserved: of the levels on which noise is drawn."""
    return [
        Charge(release_id, level.level, "reserved", *(getattr(level, name) for name in _CHARGED))
        for level in levels
        if level.is_charged
    ]


def as_charged(terms: Part, charge: Charge | None) -> bool:
    """Return whether a level is as the ledger has it: measured as it is charged, or exact or summed and not charged."""
    if charge is None:
        return not (terms.is_charged or terms.rho or terms.epsilon)
    if charge.is_paid_before:  # the books compare it with what the first day of its series is charged
        charge = replace(charge, rho=terms.rho)
    return terms.is_charged and all(getattr(charge, name) == getattr(terms, name) for name in _CHARGED)
