"""The keys of a spec that say who is protected, how strongly, and at most for how much."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from flows.key_rules import Confidence, Delta, Keys, Name, Positive, as_list, no_boolean
from tasks.noise.sensitivity import MOST_RECORDS, SUBSTITUTION

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
    """An error bound that is asked for, in place of a budget."""

    level: str
    max_error: Positive
    confidence: Confidence


class Geometric(Keys):
    """Shares of ρ each of which is so many times that of the level above."""

    geometric: Positive


class Finest(Keys):
    """Equal shares of ρ for all levels but the finest, which has so many times as much."""

    finest: Positive


class PrivacyKeys(Keys):
    """Who is protected, from what change, and how strongly."""

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
        given = [key for key in ("epsilon", "rho", "target") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"epsilon, rho or target must be given, one of them; got {' and '.join(given) or 'none'}.")
        if self.exact_records_per_unit and self.neighbours != SUBSTITUTION:
            raise ValueError(
                "exact_records_per_unit says nothing under add_remove, where units come and go; leave it out."
            )
        if self.invariants and self.neighbours != SUBSTITUTION:
            raise ValueError("invariants cannot be kept under add_remove: one unit more would change them.")
        if self.invariants and not self.i_accept_unprotected:
            raise ValueError(
                "invariants are published exactly and not protected: say i_accept_unprotected: true if that must be."
            )
        return self


class BudgetKeys(Keys):
    """The cap on all releases of a dataset together."""

    epsilon: Positive
    delta: Delta
