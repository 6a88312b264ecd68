"""The section `utility` of a spec: what a comparison needs to measure how useful released counts are."""

from typing import Any

from pydantic import ConfigDict, model_validator

from flows.spec.rules import Keys
from flows.spec.sections.fleet import FleetKeys
from tasks.validate.utility import UTILITIES
from tasks.words.nearest import with_question


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
        found: Keys | dict[str, Any] | None = getattr(self, name, None)
        return found
