"""The section `utility` of a spec: what a comparison needs to measure how useful released counts are, in vehicles too."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from flows.specification.rules import Keys, Name, Positive, as_list, no_boolean
from storage.tables import ENDS
from tasks.validate.utility import UTILITIES
from tasks.words.spelling import with_question


def _one_or_two(zone: list[str]) -> list[str]:
    """Refuse anything but one level for both ends, or one for each."""
    if len(zone) not in {1, 2}:
        raise ValueError(f"must name one level for both ends, or one for each; got {len(zone)}.")
    return zone


class FleetKeys(Keys):
    """Vehicles on demand: how many the released trips need for each one that the true trips need.

    Attributes:
        period: The feature that says when a trip begins. Its codes are consecutive periods: in the order in which the spec lists
            them, otherwise by number if all are whole numbers, and otherwise as text.
        minutes: The length of a period.
        capacity: The seats of a vehicle.
        durations: The public table of the minutes from stop to stop: the columns are the names of the two features that are the
            ends of a trip, and minutes. Every pair of codes is there once, also a stop with itself.
        origin: The feature that says where a trip begins. If left out, the first of the other two features.
        destination: The feature that says where a trip ends. If left out, the second of the other two features.
        zone: The level of both ends whose areas are zones, or a list with one for each end. Zones have the same codes at both ends.
            If left out, the coarsest level of each end.
    """

    TABLES: ClassVar = ("durations",)
    EXAMPLE: ClassVar = "utility: {fleet: {period: hour, minutes: 60, capacity: 8, durations: minutes.csv}}"

    period: Name
    minutes: Positive
    capacity: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, strict=True)]
    durations: Name
    origin: Name | None = None
    destination: Name | None = None
    zone: Annotated[list[str], BeforeValidator(as_list), AfterValidator(_one_or_two)] | None = None

    def faults(self, levels: Mapping[str, Sequence[str]], unlisted: Sequence[str]) -> Iterator[str]:
        """Yield what does not fit the features, in sentences that begin with the key.

        Args:
            levels: the released levels of each feature, coarse to fine; none for trips.
            unlisted: the features without a codebook.
        """
        if not levels:
            yield "utility.fleet needs input.features, one of which is the period in which a trip begins."
            return
        named = {key: name for key in ("period", *ENDS) if (name := getattr(self, key)) is not None}
        for key, name in named.items():
            if name not in levels:
                rule = f"utility.fleet.{key} must be one of input.features ({', '.join(levels)})"
                yield with_question(f"{rule}, got {name}.", name, levels)
                return
        if len(set(named.values())) < len(named):
            yield "utility.fleet must name another feature for period, origin and destination each."
            return
        left = len(levels) - len(named)
        if (missing := [end for end in ENDS if end not in named]) and left != len(missing):
            yield f"utility.fleet.{missing[0]} must be given: besides the named ones there are {left} features."
            return
        yield from self._faults_of_zones(levels)
        for name in (self.period, *self.ends(levels)):
            if name in unlisted:
                yield f"utility.fleet needs hierarchy.{name}.table, which lists all codes of {name}."

    def _faults_of_zones(self, levels: Mapping[str, Sequence[str]]) -> Iterator[str]:
        for end, zone in zip(self.ends(levels), self.zones(levels), strict=True):
            if zone not in levels[end]:
                rule = f"utility.fleet.zone must be one of the released levels of {end} ({', '.join(levels[end])})"
                yield with_question(f"{rule}, got {zone}.", zone, levels[end])

    def ends(self, features: Mapping[str, Any]) -> tuple[str, str]:
        """Return the features that say where a trip begins and ends, without faults among `features`, which are in their order."""
        left = (name for name in features if name not in {self.period, self.origin, self.destination})
        return self.origin or next(left), self.destination or next(left)

    def zones(self, levels: Mapping[str, Sequence[str]]) -> tuple[str, str]:
        """Return the level of each end whose areas are zones, without faults among the features with `levels`."""
        named = self.zone or [levels[end][0] for end in self.ends(levels)]
        return named[0], named[-1]

    def terms(self, levels: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Return every key with its value, those that were left out too."""
        origin, destination = self.ends(levels)
        given = self.model_dump()
        return given | {"origin": origin, "destination": destination, "zone": self.zones(levels)}


class UtilityKeys(Keys):
    """What `trellis compare --utility` measures on a public table, by the name of the measure. A release does not depend on it.

    Measures of your own take any keys.

    Attributes:
        fleet: The vehicles that trips on demand need.
    """

    model_config = ConfigDict(extra="allow")

    fleet: FleetKeys | None = None

    @model_validator(mode="before")
    @classmethod
    def _are_known(cls, sections: object) -> object:
        """Refuse measures that do not exist, and sections without keys."""
        for name, keys in sections.items() if isinstance(sections, dict) else ():
            if name not in UTILITIES:
                fault = f"must name measures ({', '.join(UTILITIES)}), got {name}."
                raise ValueError(with_question(fault, str(name), UTILITIES))
            if name not in cls.model_fields and not isinstance(keys, dict):
                raise ValueError(f"must have keys with values for {name}.")
        return sections

    def section(self, name: str) -> Keys | dict[str, Any] | None:
        """Return what the spec says of a measure: checked keys, or any keys as they were written; None if nothing."""
        section: Keys | dict[str, Any] | None = getattr(self, name, None)
        return section
