"""The keys of a spec that say where the codes of an axis are listed, and how its levels nest."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from flows.spec.rules import Keys, differ
from tasks.ingest.codebook import MOST_CHILDREN

# pydantic adds these names to the path of an error
_BY_TABLE, _BY_LIST = "<by table>", "<by list>"
DOMAIN_TAGS = {_BY_TABLE, _BY_LIST}


def _kind_of_domain(value: object) -> str:
    """Return whether the codes of a feature are in a table or in the spec itself."""
    return (
        _BY_TABLE if isinstance(value, Hierarchy) or (isinstance(value, dict) and "values" not in value) else _BY_LIST
    )


def _as_values(value: object) -> object:
    """Return a number of codes, or codes as text; refuse blank and repeated codes. YAML reads some codes as numbers."""
    if isinstance(value, list):
        if not value:
            raise ValueError("must list at least one code.")
        wrong = next((code for code in value if isinstance(code, bool) or not isinstance(code, str | int)), None)
        if wrong is not None or None in value:
            raise ValueError(f"must list codes as text, got {wrong}; put it in quotes.")
        codes = tuple(str(code) for code in value)
        blank = any(not code.strip() for code in codes)
        if blank or len(set(codes)) < len(codes):
            raise ValueError("must list each code once, and no blank code.")
        return codes
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CHILDREN:
        raise ValueError(f"must be a number of codes from 1 to 2**20, or a list of codes, got {value}.")
    return value


class Hierarchy(Keys):
    """A public codebook and its columns, coarse to fine.

    Attributes:
        table: The codebook. If left out, the codes are those in the records, and they are as confidential as the records.
        levels: The columns of the codebook, coarse to fine.
        blank: What a blank code at a level above the finest is: an error (refuse), or own_area: the area stands alone at that
            level, with its own code, as districts do in a country without regions.
    """

    table: str | None = None
    levels: Annotated[list[str], Field(min_length=1), AfterValidator(differ)]
    blank: Literal["refuse", "own_area"] = "refuse"


class HierarchyPerEnd(Keys):
    """A codebook for each end of a trip.

    Attributes:
        origin: The codebook of the areas where trips begin.
        destination: The codebook of the areas where trips end.
    """

    origin: Hierarchy
    destination: Hierarchy


class Values(Keys):
    """The codes of a feature without levels. They are text.

    Attributes:
        values: A number n, for the codes 0 to n − 1; or a list of all possible codes, such as [f, m].
    """

    values: Annotated[int | tuple[str, ...], BeforeValidator(_as_values)]

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return {"values": value} if isinstance(value, list) else value


Domain = Annotated[
    Annotated[Hierarchy, Tag(_BY_TABLE)] | Annotated[Values, Tag(_BY_LIST)], Discriminator(_kind_of_domain)
]
