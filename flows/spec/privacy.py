"""The keys of a spec that say who is protected, how strongly, and at most for how much."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from flows.spec.rules import Confidence, Delta, Keys, Name, Positive, as_list, no_boolean, refuse
from tasks.accounting.sensitivity import MOST_RECORDS, SUBSTITUTION

# pydantic puts these among the keys of an error
_BY_NAME, _BY_RATIO, _BY_FINEST, _BY_LIST = "<by name>", "<by ratio>", "<by finest>", "<by list>"
SPLIT_TAGS = {_BY_NAME, _BY_RATIO, _BY_FINEST, _BY_LIST}


def _kind_of_split(value: object) -> str:
    """Return whether a split is named, a ratio, the weight of the finest level, or a list."""
    if isinstance(value, Finest) or (isinstance(value, dict) and "finest" in value):
        return _BY_FINEST
    if isinstance(value, dict | Geometric):
        return _BY_RATIO
    return _BY_LIST if isinstance(value, list) else _BY_NAME


class Target(Keys):
    """An error bound that is asked for, in place of a budget.

    Attributes:
        level: the level that it is about, by its name in the hierarchy.
        max_error: records by which no count of the level may be further off.
        confidence: the probability with which that holds for all of them.
    """

    level: str
    max_error: Positive
    confidence: Confidence


class Geometric(Keys):
    """Shares of ρ each of which is so many times that of the level above.

    Attributes:
        geometric: how many times.
    """

    geometric: Positive


class Finest(Keys):
    """Equal shares of ρ for all levels but the finest, which has so many times as much.

    Attributes:
        finest: how many times.
    """

    finest: Positive


class PrivacyKeys(Keys):
    """Who is protected, from what change, and how strongly.

    Attributes:
        unit: who or what is protected, in words that are printed, such as one person or one job.
        neighbours: the change that must not show: substitution (one unit's records are replaced by another's) or add_remove
            (they come or go, and the total is measured like any level).
        max_records_per_unit: how many records one unit has at most; ingest cuts what is beyond where input.unit names units,
            otherwise the data owner promises it.
        exact_records_per_unit: whether each unit has exactly so many, which makes the total public; if left out, where it
            is 1 and the neighbours are by substitution.
        distinct: a level in different cells of which all records of a unit lie, which takes less noise; not promised if
            left out.
        epsilon: what the whole release costs, at this δ; or rho, or target.
        rho: the same as zero-concentrated differential privacy; in place of epsilon.
        target: an error bound that is met with as little as it takes; in place of epsilon.
        delta: the probability that may be left over; far less than one by the number of units.
        accountant: how (ε, δ) becomes noise: pld (the tightest, for one record per unit), zcdp, or lemma (the papers'
            formula); the tightest that applies if left out.
        split: how ρ is shared among the levels: uniform, or {finest: 1.5}, {geometric: 1.5}, or a list of shares.
        invariants: levels down to which counts are published exactly and are not protected.
        i_accept_unprotected: must be said for invariants.
    """

    unit: str = Field(min_length=1)
    neighbours: Literal["substitution", "add_remove"]
    max_records_per_unit: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=MOST_RECORDS, strict=True)]
    exact_records_per_unit: bool | None = None
    distinct: Name | None = None
    epsilon: Positive | None = None
    rho: Positive | None = None
    target: Target | None = None
    delta: Delta
    accountant: Literal["pld", "zcdp", "lemma"] | None = None
    split: Annotated[
        Annotated[Literal["uniform"], Tag(_BY_NAME)]
        | Annotated[Geometric, Tag(_BY_RATIO)]
        | Annotated[Finest, Tag(_BY_FINEST)]
        | Annotated[list[Positive], Field(min_length=1), Tag(_BY_LIST)],
        Discriminator(_kind_of_split),
    ] = "uniform"
    invariants: Annotated[list[str], BeforeValidator(as_list)] = Field(default_factory=list)
    i_accept_unprotected: bool = False

    @property
    def total_is_public(self) -> bool:
        """Whether every unit has the same number of records, so that no substitution moves the total."""
        exact = self.max_records_per_unit == 1 if self.exact_records_per_unit is None else self.exact_records_per_unit
        return self.neighbours == SUBSTITUTION and exact

    @model_validator(mode="after")
    def _fits_together(self) -> "PrivacyKeys":
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[str]:
        given = [key for key in ("epsilon", "rho", "target") if getattr(self, key) is not None]
        if len(given) != 1:
            yield f"epsilon, rho or target must be given, one of them; got {' and '.join(given) or 'none'}."
        if self.exact_records_per_unit and self.neighbours != SUBSTITUTION:
            yield "exact_records_per_unit says nothing under add_remove, where units come and go; leave it out."
        if self.invariants and self.neighbours != SUBSTITUTION:
            yield "invariants cannot be kept under add_remove: one unit more would change them."
        if self.invariants and not self.i_accept_unprotected:
            yield "invariants are published exactly and not protected: say i_accept_unprotected: true if that must be."


class BudgetKeys(Keys):
    """The cap on all releases of a dataset together.

    Attributes:
        epsilon: which all releases about the same people may come to.
        delta: at which that holds.
    """

    epsilon: Positive
    delta: Delta
