"""The keys of a spec that say who is protected, how strongly, and within which budget."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from flows.specification.rules import Confidence, Delta, Keys, Name, Positive, Text, as_list, no_boolean, refuse
from tasks.accounting.sensitivity import MOST_RECORDS, SUBSTITUTION

# pydantic adds these names to the path of an error
_BY_NAME, _BY_RATIO, _BY_FINEST, _BY_LIST = "<by name>", "<by ratio>", "<by finest>", "<by list>"
_BY_ERROR, _BY_VIEW, _BY_WORKLOAD, _BY_TARGETS = "<by error>", "<by view>", "<by workload>", "<by targets>"
_BY_AXIS, _RULES = "<by axis>", ("uniform", "cascade", "worst_node", "wavelet")
_BY_KEY = {
    "finest": _BY_FINEST,
    "geometric": _BY_RATIO,
    "minimise": _BY_ERROR,
    "workload": _BY_WORKLOAD,
    "targets": _BY_TARGETS,
}
SPLIT_TAGS = {_BY_NAME, _BY_LIST, _BY_VIEW, _BY_AXIS, *_BY_KEY.values()}

_MOST_RANGES = 4096  # that a workload may list

TOTAL = "total"  # what `split.targets` calls level 0, if no other level has that name

OF_AN_ORDER = ("ranges", "prefix")  # workloads that only an ordered axis has


def _kind_of_split(value: object) -> str:
    """Return whether a split is a name, a ratio, a weight of the finest level, a list, an error to minimise, weights by view or rules by axis."""
    keys = value if isinstance(value, dict) else type(value).model_fields if isinstance(value, Keys) else ()
    by_key = _BY_AXIS if rules_of_axes(value) else _BY_VIEW
    otherwise = by_key if isinstance(value, dict) else _BY_LIST if isinstance(value, list) else _BY_NAME
    return next((tag for key, tag in _BY_KEY.items() if key in keys), otherwise)


def rules_of_axes(split: object) -> dict[str, Any]:
    """Return the rule of each axis that a split names; nothing where it is another kind of split."""
    has_rules = isinstance(split, dict) and any(of in _RULES or isinstance(of, dict | Keys) for of in split.values())
    return split if has_rules and isinstance(split, dict) else {}


def weights_of_views(split: object) -> dict[str, float]:
    """Return the weight of each view that a split names; nothing where it is another kind of split."""
    return split if isinstance(split, dict) and not rules_of_axes(split) else {}


class Target(Keys):
    """An error bound to reach, in place of a budget.

    Attributes:
        level: The name of the level in the hierarchy.
        max_error: The largest allowed error of any count of the level, in records.
        confidence: The probability with which all counts of the level keep within max_error.
    """

    level: str
    max_error: Positive
    confidence: Confidence


class Geometric(Keys):
    """Shares of ρ that change by the same factor from each level to the next.

    Attributes:
        geometric: Each level's share divided by the share of the level above.
    """

    geometric: Positive


class Finest(Keys):
    """Equal shares of ρ for all levels except the finest.

    Attributes:
        finest: The share of the finest level divided by the share of any other level.
    """

    finest: Positive


class Minimise(Keys):
    """Shares with which some views together have the least error.

    Attributes:
        minimise: The weight of each view, by name; `leaves` for the finest level. The shares that Trellis finds minimise the
            weighted sum of the mean variances of their counts, before these are made non-negative; leaves take a tenth at least.
            They depend on codebooks alone.
    """

    minimise: Annotated[dict[str, Positive], Field(min_length=1)]


class Workload(Keys):
    """Shares with which some kind of question has the least error. They depend on codebooks alone.

    Attributes:
        workload: ranges of an ordered axis, prefix (ranges from its first code on), nodes of the tree, or its leaves. The shares
            minimise the mean variance of all these questions. With mechanism optimal_ranges ranges, prefix, or a list of ranges
            such as [18..24, 25..64].
    """

    workload: (
        Annotated[Literal["ranges", "prefix", "nodes", "leaves"], Tag(_BY_NAME)]
        | Annotated[list[Text], Field(min_length=1, max_length=_MOST_RANGES), Tag(_BY_LIST)]
    ) = Field(discriminator=Discriminator(_kind_of_split))


_Rule = Annotated[
    Annotated[Literal["uniform", "cascade", "worst_node", "wavelet"], Tag(_BY_NAME)]
    | Annotated[Workload, Tag(_BY_WORKLOAD)],
    Discriminator(_kind_of_split),
]


class Targets(Keys):
    """The errors to reach, in place of a budget: the release spends as little as they need.

    Attributes:
        targets: The most standard deviation of a released count, in records, by the name of a level; `total` is everything
            together, if no level is called so. Levels above without a target are free. The finest level takes the target of the
            nearest level above that has one. With release.grid, by the name of a table, such as hour, day_month or
            region_by_age_by_sex; the finest table takes the largest target, if it has none.
    """

    targets: Annotated[dict[str, Positive], Field(min_length=1)]


class PrivacyKeys(Keys):
    """Who is protected, from what change, and how strongly.

    Attributes:
        unit: Who or what is protected, such as one person or one job. Reports print this text.
        neighbours: The change that the release must hide. substitution: one unit's records are replaced by another's.
            add_remove: one unit's records are added or removed; the total is then measured like any level.
        max_records_per_unit: The largest number of records that one unit has. If input.unit is given, ingest cuts the records
            beyond it; otherwise the data owner promises it.
        exact_records_per_unit: Whether each unit has exactly max_records_per_unit records, which makes the total public. If
            left out, true if max_records_per_unit is 1 and neighbours is substitution, otherwise false.
        distinct: A level at which all records of a unit lie in different cells. This promise reduces the noise. If left out,
            nothing is promised.
        epsilon: The ε that the whole release costs at delta. Give exactly one of epsilon, rho and target.
        rho: The ρ of zero-concentrated differential privacy that the whole release costs. Replaces epsilon.
        target: An error bound; the release spends as little as is needed to reach it. Replaces epsilon.
        delta: The δ of the guarantee, the small probability that ε does not cover; choose it far below 1 / (number of units).
        accountant: How (ε, δ) becomes noise: pld (the tightest, for one record per unit), zcdp, or lemma (the papers'
            formula). If left out, the tightest that applies.
        split: How ρ is shared among the levels: uniform, {finest: 1.5}, {geometric: 1.5}, or a list of shares. With
            release.views also {view: weight}, where `leaves` is the finest level of mechanism cbdp, and `tree` all levels of
            another mechanism together; or {minimise: {view: weight}}. For mechanism unbiased_tree also cascade, worst_node,
            wavelet, {workload: ranges} or {targets: {level: standard deviation}}; the latter replaces epsilon. With
            release.grid also a rule per axis, {axis: {workload: prefix}, other: cascade}; an axis without one has its best for
            ranges, or for nodes where it has no order. If left out, uniform, or what the mechanism says.
        invariants: The levels down to which counts are published exactly and are not protected.
        i_accept_unprotected: Must be true if invariants are given.
    """

    unit: Text
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
        Annotated[Literal["uniform", "cascade", "worst_node", "wavelet"], Tag(_BY_NAME)]
        | Annotated[Geometric, Tag(_BY_RATIO)]
        | Annotated[Finest, Tag(_BY_FINEST)]
        | Annotated[list[Positive], Field(min_length=1), Tag(_BY_LIST)]
        | Annotated[Minimise, Tag(_BY_ERROR)]
        | Annotated[Workload, Tag(_BY_WORKLOAD)]
        | Annotated[Targets, Tag(_BY_TARGETS)]
        | Annotated[dict[str, Positive], Field(min_length=1), Tag(_BY_VIEW)]
        | Annotated[dict[str, _Rule], Field(min_length=1), Tag(_BY_AXIS)],
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
        if isinstance(self.split, Targets):
            if given:
                yield f"split.targets replaces epsilon, rho and target, got {given[0]} as well: the targets say what the release costs."
        elif len(given) != 1:
            yield f"epsilon, rho or target must be given, exactly one of them; got {' and '.join(given) or 'none'}."
        if self.exact_records_per_unit and self.neighbours != SUBSTITUTION:
            yield "exact_records_per_unit must be left out with neighbours add_remove, under which units are added and removed."
        if self.invariants and self.neighbours != SUBSTITUTION:
            yield "invariants must be left out with neighbours add_remove: one more unit would change them."
        if self.invariants and not self.i_accept_unprotected:
            yield "invariants are published exactly and are not protected. To accept this, set i_accept_unprotected: true."


class BudgetKeys(Keys):
    """The cap on all releases of a dataset together.

    Attributes:
        epsilon: The largest ε that all releases about the same people may cost together.
        delta: The δ at which epsilon is computed.
    """

    epsilon: Positive
    delta: Delta
