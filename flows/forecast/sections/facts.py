"""What the page of a plan is made from, and the words that several of its sections use."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from flows.forecast.values import Forecast, PlannedPart
from flows.forecast.worth import LevelWorth, Worth
from flows.planning.plan import Plan
from tasks.words.levels import Axes, place
from tasks.words.readers import Spec, axes_called, title_of


@dataclass(frozen=True, slots=True)
class PageFacts:
    """What a page is made from.

    Attributes:
        plan: the plan.
        forecast: of it.
        spec: as the manifest will publish it, with the words for readers.
        worth: at three ε, the planned one in the middle.
        further: how many releases like this one would fit the cap after it.
        left: the ε of one more release that would still fit, before this one and after it, as the ledger says it.
    """

    plan: Plan
    forecast: Forecast
    spec: Spec
    worth: Sequence[Worth]
    further: int
    left: tuple[float, float]

    @property
    def planned(self) -> Worth:
        """What the release would be worth as it is planned."""
        return next(worth for worth in self.worth if worth.is_planned)

    @property
    def title(self) -> str:
        """What heads the page: the title for readers, or the name of the spec."""
        return title_of(self.spec, self.forecast.name) if self.spec.get("title") else self.forecast.name

    @property
    def unit(self) -> str:
        """Who or what is protected, in words."""
        return self.plan.file.spec.privacy.unit

    @property
    def counted(self) -> str:
        """What a count is of, in a word."""
        return "groups" if self.plan.scheme.sizes else "records"

    @property
    def exact(self) -> list[PlannedPart]:
        """The levels that have no noise."""
        return [
            level for level, worth in zip(self.forecast.levels, self.planned.levels, strict=False) if worth.is_exact
        ]

    @property
    def with_hardly_any_noise(self) -> list[PlannedPart]:
        """The levels with so little noise that 19 of 20 counts are measured without any error."""
        return [
            level
            for level, worth in zip(self.forecast.levels, self.planned.levels, strict=False)
            if worth.within == 0 and not worth.is_exact
        ]

    @property
    def table(self) -> str:
        """The name of the confidential table or of its file, without its place."""
        return self.plan.source.table.name

    @property
    def parts(self) -> list[PlannedPart]:
        """The levels, then the views that have no level of their own."""
        return [*self.forecast.levels, *self.forecast.views]

    def place(self, axes: Axes) -> str:
        """Return how far a level is refined, in the words of readers, as HTML."""
        return escape(place(axes_called(self.spec, axes))) or "everything"


def of_level(worth: Worth, number: int) -> LevelWorth | None:
    """Return what the counts of a level or view would be worth; None where no noise in range gives the ε."""
    return worth.levels[number] if worth.levels else None


def within(worth: LevelWorth | None) -> str:
    """Return within how much of the truth 19 of 20 counts are measured, as text."""
    if worth is None or worth.within is None:
        return "–"
    return "exact" if worth.is_exact else f"± {worth.within:,}"


def named(facts: PageFacts, part: PlannedPart) -> str:
    """Return the number of a level, with the name of the view that it is; of a view without a level its name."""
    named = f"view {escape(part.view)}" if part.view else ""
    if part.level >= len(facts.forecast.levels):
        return named
    return f"{part.level} ({named})" if named else str(part.level)


def numbers_of(levels: Sequence[PlannedPart]) -> str:
    """Return the numbers of some levels in words, such as `levels 0 to 2`."""
    numbers = [level.level for level in levels]
    if len(numbers) == 1:
        return f"level {numbers[0]}"
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"levels {numbers[0]} to {numbers[-1]}"
    return f"levels {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def bullets(items: Sequence[str]) -> str:
    """Return a list of HTML."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"
