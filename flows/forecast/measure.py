"""Which cells of the tree a planned release would measure, and by which public rule."""

from flows.forecast.values import MeasureForecast
from flows.planning.compatibility import most_measured
from flows.planning.plan import Plan
from storage.releases.terms import ABOVE, ALL
from tasks.mechanisms import MECHANISMS
from tasks.words.numbers import format_cells


def planned_measure(plan: Plan) -> MeasureForecast | None:
    """Return which cells of the tree are measured and why; None where the mechanism has no choice."""
    if not plan.mechanism.chooses_cells:
        return None
    asked = plan.file.spec.measure or MECHANISMS[plan.mechanism.name].measure
    cells = sum(level.possible_cells or 0 for level in plan.levels if level.is_measured)
    return MeasureForecast(
        asked=asked,
        chosen=plan.measure,
        measured_cells=cells if plan.measure == ALL else None,
        rule=_rule(plan, asked, cells),
    )


def _rule(plan: Plan, asked: str, cells: int) -> str:
    """Return what is measured and why, as one sentence without a full stop."""
    tree, spec = plan.tree, plan.file.spec
    finest, above = tree.depth, tree.depth - 1
    most = f"{asked} measures every cell of a level of at most {most_measured(spec):,}"
    has, has_above = (format_cells(tree.possible_cells(level)) for level in (finest, above))
    if plan.measure == ALL:
        return f"every cell of every level is measured, {cells:,} in all: level {finest} has {has} cells, and {most}"
    if plan.measure == ABOVE:
        return (
            f"every cell of levels 0 to {above} is measured, and at level {finest} the children of what survives: level {finest} has"
            f" {has} cells and level {above} has {has_above}, and {most}"
        )
    below = "at every level the children of what survives above it are measured"
    if asked == "survivors":
        return f"{below}: {'the spec asks for that' if spec.measure else 'the spec does not ask for more'}"
    return f"{below}: level {max(above, 1)} has {has_above if above else has} cells, and {most}"
