"""The books: what the ledger's events add up to, account by account. Nothing here reads or writes.

A charge goes reserved → drawing → sealed → released; only a reserved one can become void. Every charge that is not void
counts, so that nothing is drawn that is not paid for. Budgets are exact fractions of ρ.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

from storage.errors import StoreError
from storage.ledger.spending import Contributions, Spending, for_one_unit
from storage.releases.parts import DISCRETE_GAUSSIAN, Part

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)  # what an event's wrong fields raise

_BEFORE = {"drawing": "reserved", "sealed": "drawing", "released": "sealed", "void": "reserved"}


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


_ALIKE = ("mechanism", "scale", "l2_sensitivity_squared", "view")  # on all days that the first one pays for

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


_CLAIMED = ("release", "dataset", "accountant", "epsilon", "delta", "table", "different_people")  # as an event has them


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
        charges: by release and level.
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
        kept: dict[str, list[Charge]] = {}
        for charge in self.charges.values():
            if charge.state != "void":
                kept.setdefault(self.claims[charge.release].series or charge.release, []).append(charge)
        return [self._spending(id_, charges) for id_, charges in kept.items()]

    def _spending(self, id_: str, charges: Sequence[Charge]) -> Spending:
        rho = sum((charge.rho for charge in charges), Fraction(0))
        only = tuple((charge.epsilon, charge.delta) for charge in charges if charge.epsilon)
        claim = self.claims[charges[0].release]
        stated = self.series[id_] if claim.series else claim
        tau = sum((charge.tau for charge in charges), Fraction(0))
        return Spending(rho, only, stated.epsilon, stated.delta, tau, claim.contributions)

    def with_reserved(self, claim: Claim, charges: Iterable[Charge]) -> "Account":
        """Return the account as it would be with one more release; this one stays as it is."""
        more = {(charge.release, charge.level): charge for charge in charges}
        return replace(self, charges=self.charges | more, claims=self.claims | {claim.release: claim})

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
        return {level: charge for (release, level), charge in self.charges.items() if release == release_id}


@dataclass(slots=True)
class Books:
    """All accounts, replayed event by event.

    Attributes:
        holder: by dataset, the first dataset of the same people.
        charged_to: by release, the first dataset of its people.
        to_come: the releases of a series that was just declared, with its id: the next events must reserve them, in their
            order. A release that was added later would be charged by a guarantee that is not about it.
        others: by release, the datasets that had used its table when the caller said that it holds other people. They depend on
            the table, so no event has them: the store keeps them beside the ledger.
    """

    accounts: dict[str, Account] = field(default_factory=dict)
    holder: dict[str, str] = field(default_factory=dict)
    charged_to: dict[str, str] = field(default_factory=dict)
    to_come: list[tuple[str, str]] = field(default_factory=list)
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def account(self, dataset: str | None) -> Account | None:
        """Return the account to which a dataset's releases are charged; None before its first."""
        return self.accounts[self.holder[dataset]] if dataset in self.holder else None

    def account_of(self, release_id: str) -> Account | None:
        """Return the account to which a release is charged; None if it is not reserved."""
        return self.accounts[self.charged_to[release_id]] if release_id in self.charged_to else None

    def charged_on(self, is_of_table: Callable[[Claim], bool]) -> list[str]:
        """Return the releases of a table that have not given back all that they reserved."""
        return [
            claim.release
            for account in self.accounts.values()
            for claim in account.claims.values()
            if is_of_table(claim)
            and any(charge.state != "void" for charge in account.charges_of(claim.release).values())
        ]

    def declared_series(self, dataset: str, name: str) -> Series | None:
        """Return the last series of a name that was declared for a dataset's people."""
        account = self.account(dataset)
        of_name = [series for series in account.series.values() if series.name == name] if account else []
        return of_name[-1] if of_name else None

    def post(self, event: Mapping[str, Any]) -> None:
        """Post the next event.

        Raises:
            StoreError: it contradicts the events before it.
        """
        kind = event["event"]
        if self.to_come and kind != "reserved":
            raise StoreError(f"{self.to_come[0][0]} is missing from its series.")
        if kind == "dataset":
            self._open(event)
        elif kind == "series":
            self._declare(event)
        elif kind == "reserved":
            self._reserve(event)
        elif kind in _BEFORE:
            self._advance(event)
        elif kind == "budget raised":
            self._raise(event)
        elif kind == "table" and (account := self.account_of(event["release"])):
            claim = account.claims[event["release"]]
            account.claims[claim.release] = replace(claim, table=str(event["table"]))
        elif kind == "abandoned" and (account := self.account_of(event["release"])):
            account.standing = _standing(event["standing"])

    def _open(self, event: Mapping[str, Any]) -> None:
        dataset = event["dataset"]
        if dataset in self.holder:
            raise StoreError(f"dataset {dataset} already has its terms.")
        if "same_people_as" in event:
            account = self._known(event["same_people_as"])
            account.datasets.append(dataset)
            self.holder[dataset] = account.terms.dataset
            return
        cap = _cap(event["cap"])
        terms = DatasetTerms(dataset, event["unit"], event["neighbours"], cap)
        self.accounts[dataset] = Account(terms, cap, [dataset], Standing(0.0, cap.rho, cap.epsilon))
        self.holder[dataset] = dataset

    def _declare(self, event: Mapping[str, Any]) -> None:
        account, releases = self._known(event["dataset"]), tuple(event["releases"])
        epsilon, delta = float(event["epsilon"]), float(event["delta"])
        if not releases or len(set(releases)) < len(releases) or not self.charged_to.keys().isdisjoint(releases):
            raise StoreError(f"series {event['name']} must name each of its releases once.")
        if not (epsilon >= 0 and 0 < delta < 1):
            raise StoreError(f"series {event['name']} must state an epsilon >= 0 and a delta between 0 and 1.")
        terms = event["name"], event["dataset"], releases, epsilon, delta, event.get("charged_once", False)
        account.series[releases[0]] = Series(releases[0], *terms)
        self.to_come = [(release, releases[0]) for release in releases]

    def _reserve(self, event: Mapping[str, Any]) -> None:
        release, account = event["release"], self._known(event["dataset"])
        if release in self.charged_to:
            raise StoreError(f"{release} is already reserved; a release is charged once.")
        series = event.get("series", "")
        if self.to_come and (release, series) != self.to_come[0]:
            raise StoreError(f"{self.to_come[0][0]} is missing from its series.")
        if series and not (self.to_come and series in account.series):
            raise StoreError(f"{release} does not belong to series {series}.")
        self.to_come = self.to_come[1:]
        self.charged_to[release] = account.terms.dataset
        account.claims[release] = Claim(
            **{name: event[name] for name in _CLAIMED},
            unprotected=tuple(event["unprotected"]),
            contributions=Contributions(**event["contributions"]),
            series=series,
        )
        account.standing = _standing(event["standing"])
        for level in event["levels"]:
            charge = Charge(
                release,
                level["level"],
                "reserved",
                Fraction(level["rho"]),
                level["sigma"],
                level["l2_sensitivity_squared"],
                level["mechanism"],
                level.get("epsilon", 0.0),  # of a mechanism that is only (ε, δ), like delta
                level.get("delta", 0.0),
                Fraction(level.get("tau", 0)),  # of a sampler that is not exact
                level.get("view", ""),
                level.get("scale", 0.0),
            )
            if series and charge.is_paid_before:
                self._check_paid(account, charge, series)
            elif not (charge.rho > 0 or (charge.rho == 0 and charge.epsilon > 0 and charge.delta >= 0)):
                raise StoreError(f"level {charge.level} of {release} is charged nothing.")
            if charge.tau < 0:
                raise StoreError(f"level {charge.level} of {release} has a tau below 0.")
            if (release, charge.level) in account.charges:
                raise StoreError(f"level {charge.level} of {release} is charged twice.")
            account.charges[release, charge.level] = charge

    def _advance(self, event: Mapping[str, Any]) -> None:
        release, level, state = event["release"], event["level"], event["event"]
        account = self.account_of(release)
        charge = account.charges.get((release, level)) if account else None
        if account is None or charge is None or charge.state != _BEFORE[state]:
            was = charge.state if charge else "not charged"
            raise StoreError(f"Level {level} of {release} cannot become {state}: it is {was}.")
        if state == "drawing" and charge.is_paid_before:
            self._check_paid(account, charge, account.claims[release].series)
        account.charges[release, level] = replace(charge, state=state)

    def _check_paid(self, account: Account, charge: Charge, series: str) -> None:
        """Refuse a charge of nothing on a later day of a series, unless its first day is charged for the same noise, and stays so."""
        first = account.charges.get((series, charge.level))
        same = first is not None and all(getattr(first, name) == getattr(charge, name) for name in _ALIKE)
        is_once = series in account.series and account.series[series].is_charged_once
        if first is None or first.state == "void" or not (is_once and first.rho > 0 and same):
            raise StoreError(
                f"level {charge.level} of {charge.release} is not what the first day of its series is charged for."
            )

    def _raise(self, event: Mapping[str, Any]) -> None:
        account, cap = self._known(event["dataset"]), _cap(event["cap"])
        before = account.terms.cap
        if not (cap.epsilon > before.epsilon and cap.delta == before.delta):
            raise StoreError(f"the new cap of dataset {account.terms.dataset} is not above its old one.")
        account.raises.append(CapRaise(event["at"], before.epsilon, cap.epsilon, event["reason"]))
        account.terms = replace(account.terms, cap=cap)
        account.standing = _standing(event["standing"])

    def _known(self, dataset: str) -> Account:
        account = self.account(dataset)
        if account is None:
            raise StoreError(f"dataset {dataset} has no terms.")
        return account


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


def _cap(recorded: Mapping[str, Any]) -> Cap:
    return Cap(recorded["epsilon"], recorded["delta"], Fraction(recorded["rho"]))


def _standing(recorded: Mapping[str, Any]) -> Standing:
    return Standing(float(recorded["epsilon"]), Fraction(recorded["left_rho"]), float(recorded["left_epsilon"]))
