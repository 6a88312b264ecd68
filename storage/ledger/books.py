"""The books: what the ledger's events add up to, account by account. Nothing here reads or writes.

A charge goes reserved → drawing → sealed → released; only a reserved one can become void. Every charge that is not void
counts, so that nothing is drawn that is not paid for. Budgets are exact fractions of ρ.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from storage.errors import StoreError
from storage.ledger.accounts import Account, Cap, CapRaise, Charge, Claim, DatasetTerms, Series, Standing
from storage.ledger.spending import Contributions

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)  # what an event's wrong fields raise

_ALIKE = ("mechanism", "scale", "l2_sensitivity_squared", "view")  # on all days that the first one pays for
_BEFORE = {"drawing": "reserved", "sealed": "drawing", "released": "sealed", "void": "reserved"}
_CLAIMED = ("release", "dataset", "accountant", "epsilon", "delta", "table", "different_people")  # as an event has them


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

    def copy(self) -> "Books":
        """Return books to which events can be posted while these stay as they are."""
        accounts = {dataset: account.copy() for dataset, account in self.accounts.items()}
        return Books(accounts, {**self.holder}, {**self.charged_to}, [*self.to_come], self.others)

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
            account.enter(charge)

    def _advance(self, event: Mapping[str, Any]) -> None:
        release, level, state = event["release"], event["level"], event["event"]
        account = self.account_of(release)
        charge = account.charges.get((release, level)) if account else None
        if account is None or charge is None or charge.state != _BEFORE[state]:
            was = charge.state if charge else "not charged"
            raise StoreError(f"Level {level} of {release} cannot become {state}: it is {was}.")
        if state == "drawing" and charge.is_paid_before:
            self._check_paid(account, charge, account.claims[release].series)
        account.enter(replace(charge, state=state))

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


def _cap(recorded: Mapping[str, Any]) -> Cap:
    return Cap(recorded["epsilon"], recorded["delta"], Fraction(recorded["rho"]))


def _standing(recorded: Mapping[str, Any]) -> Standing:
    return Standing(float(recorded["epsilon"]), Fraction(recorded["left_rho"]), float(recorded["left_epsilon"]))
