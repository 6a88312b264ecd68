"""What the owner of the data should know of a plan that is possible all the same: each in one line, and none a refusal."""

from collections.abc import Iterator
from itertools import chain

from flows.forecast.worth import finest_above
from flows.planning.composition import releases_within
from flows.planning.plan import Plan
from flows.specification.starters.headers import is_weight
from flows.specification.units import is_of_events, is_unit, kinds_in
from storage.errors import TrellisError
from storage.ledger.accounts import Cap
from tasks.ingest.sources.locations import is_url
from tasks.ingest.tables import opened, reader
from tasks.uncertainty.bounds import WORTH
from tasks.words.levels import place
from tasks.words.numbers import format_cells, rounded_up
from tasks.words.protection import format_right_guess, right_guess

_SURE = 0.99  # a guess that is right more often than that is hardly limited
_MANY = 100  # releases that a cap allows


def remarks(plan: Plan, total: int | None, cap: Cap) -> Iterator[str]:
    """Yield remarks on the column of counts, δ, ε, the cap and levels that are all noise, given a public guess of the number of records."""
    epsilon, delta, many = plan.guarantee.epsilon, plan.guarantee.delta, releases_within(cap, plan.spending)
    count = plan.source.count
    if count and is_weight(count):
        yield (
            f"input.count: {count} seems to be a weight. A weight is no number of records, also where it is whole: an answer would move a"
            " count by its whole weight, and the noise hides one record. See docs/how-to/shape-your-table.md#survey-weights."
        )
    if total and delta * total > 1:
        yield (
            f"privacy.delta: {delta:g} is above 1 / {total:,}, one over the number of records. A mechanism with"
            " this δ could publish somebody's records unchanged. Choose δ far below 1 / (number of units)."
        )
    if right_guess(epsilon, delta) > _SURE:
        yield (
            f"privacy.epsilon: ε = {rounded_up(epsilon)} lets readers guess right {format_right_guess(epsilon, delta)} between two"
            " equally likely possibilities, which protects next to nothing. ε = 1 allows 73.2 of 100 times."
        )
    if many >= _MANY:
        yield f"budget.epsilon: the cap allows {many:,} releases like this one, so it hardly limits what they reveal together."
    if total and not (plan.levels[-1].threshold or plan.mechanism.of_groups or plan.file.spec.unlisted):
        yield from _of_noise(plan, total)


def _of_noise(plan: Plan, total: int) -> Iterator[str]:
    """Yield a remark where counts of the finest level are hopeless, and name the finest level that is worth it."""
    worth = finest_above(plan, total, WORTH) or 0
    if worth < (finest := plan.tree.depth):
        cells, sigma = plan.tree.possible_cells(finest), plan.deviations[finest]
        at = f"level {worth} ({place(plan.levels[worth].axes)})" if worth else "the total alone"
        yield (
            f"release.finest: {total:,} records spread evenly over the {format_cells(cells)} cells of level {finest} are {total / cells:,.2g}"
            f" each, less than σ / 100 = {WORTH * sigma:,.2g}. A table of zeros would be about as near to the truth there. The finest level that is"
            f" worth its noise is {at}: end there, or choose a larger privacy.epsilon."
        )


def remarks_on_unit(plan: Plan) -> Iterator[str]:
    """Yield remarks where a column seems to say whose record a row is, no key uses it, and the promise is about such units.

    Reads the header of the confidential table, and no row; a plan, which opens no confidential table, has no such remark.
    """
    spec, privacy, table = plan.file.spec, plan.file.spec.privacy, plan.source.table
    unit, most = spec.input.unit, privacy.max_records_per_unit
    if unit and most == 1:
        yield f"input.unit: where a {unit} has several records, ingest keeps one, drawn at random, and drops the others."
    if spec.input.matrix or is_url(table.location) or is_of_events(privacy.unit):  # no server is asked
        return
    used = {*chain(*map(spec.columns, spec.axes)), *(spec.input.group or ()), *filter(None, [spec.input.count, unit])}
    try:
        with reader(table) as con, opened(con, table) as rows:
            names = [*rows.names]
    except TrellisError:
        return  # whoever reads the table says why
    protected = kinds_in(privacy.unit)
    if not used <= {*names} or (unit and kinds_in(unit) & protected):  # otherwise the first line may be a record
        return
    known = [name for name in names if name not in used and is_unit(name)]
    alike = [name for name in known if kinds_in(name) & protected]
    if unit and alike:
        yield (
            f"input.unit: column {alike[0]} seems to identify the unit {privacy.unit} of privacy.unit, and {unit} does not. Ingest limits"
            f" the records of each {unit}, and of nobody else."
        )
    elif not unit and (alike or (known and (not protected or most == 1))):
        column = [*alike, *known][0]
        yield (
            f"input.unit: column {column} seems to say whose record a row is, and no key uses it. That privacy.max_records_per_unit"
            f" ({most}) holds is only your promise; with input.unit: {column}, ingest enforces it."
        )
