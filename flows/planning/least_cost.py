"""What a release costs at the very least, from the keys of a spec that has no plan yet since something else is wrong."""

from fractions import Fraction
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from flows.mechanisms import MECHANISMS
from flows.planning.budget import cap_of
from flows.spec.privacy import BudgetKeys, PrivacyKeys
from storage.ledger.books import Asked, Spending
from tasks.accounting.conversions import rho_from_epsilon, zcdp_rho

M = TypeVar("M", bound=BaseModel)

# Of the ρ that zcdp makes of ε: what a sampler takes of δ, and what privacy loss distributions are rounded by, is far less.
_AT_LEAST = Fraction(99, 100)


def asked_by_keys(keys: dict[str, Any]) -> Asked | None:
    """Return what a spec says about its dataset; None where its keys are not fit to tell, or its releases are a series.

    Args:
        keys: as written.
    """
    privacy, dataset, same = _section(PrivacyKeys, keys.get("privacy")), keys.get("dataset"), keys.get("same_people_as")
    budget = _section(BudgetKeys, keys.get("budget"))
    if privacy is None or not isinstance(dataset, str) or not isinstance(same, str | None) or keys.get("schedule"):
        return None
    if budget is None and keys.get("budget") is not None:
        return None
    try:
        cap = cap_of(budget.epsilon, budget.delta) if budget else None
    except ValueError:  # beyond use
        return None
    return Asked(dataset, privacy.unit, privacy.neighbours, cap, same)


def least_spendings(keys: dict[str, Any]) -> list[Spending]:
    """Return the least that a release may spend, by each kind of mechanism that it may have; empty where keys do not tell.

    Args:
        keys: as written.
    """
    privacy, name = _section(PrivacyKeys, keys.get("privacy")), keys.get("mechanism")
    if privacy is None or privacy.target is not None:
        return []
    epsilon, delta = privacy.epsilon, privacy.delta
    if epsilon is None:
        return [Spending(Fraction(privacy.rho or 0), (), float("inf"), delta)]
    try:
        rho = (rho_from_epsilon if privacy.accountant == "lemma" else zcdp_rho)(epsilon, delta) * _AT_LEAST
    except ValueError:
        return []
    gaussian = Spending(rho, (), epsilon, delta)
    thresholded = Spending(Fraction(0), ((epsilon, delta),), epsilon, delta)
    if not isinstance(name, str) or name not in MECHANISMS:
        return [gaussian, thresholded] if name is not None else [gaussian]
    return [thresholded if MECHANISMS[name].is_thresholded else gaussian]


def _section(model: type[M], keys: object) -> M | None:
    try:
        return model.model_validate(keys)
    except ValidationError:
        return None
