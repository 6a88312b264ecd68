"""What the owner of the data should know of a plan that is possible all the same: each in one line, and none a refusal."""

from collections.abc import Iterator
from itertools import chain

import duckdb

from flows.planning.composition import releases_within
from flows.planning.plan import Plan
from flows.specification.units import is_unit, kinds_in
from storage.errors import TrellisError
from storage.ledger.books import Cap
from tasks.ingest.sources.locations import is_url
from tasks.ingest.tables import opened
from tasks.words.numbers import rounded_up
from tasks.words.protection import format_right_guess, right_guess

_SURE = 0.99  # a guess that is right more often than that is hardly limited
_MANY = 100  # releases that a cap allows


def remarks(plan: Plan, total: int | None, cap: Cap) -> Iterator[str]:
    """Yield remarks on δ, ε and the cap, given a public guess of the number of records."""
    epsilon, delta, many = plan.guarantee.epsilon, plan.guarantee.delta, releases_within(cap, plan.spending)
    if total and delta * total > 1:
        yield (
            f"privacy.delta: {delta:g} is above 1 / {total:,}, one over the number of records. It would allow to publish somebody's"
            " records as they are. Choose δ far below 1 / (number of units)."
        )
    if right_guess(epsilon, delta) > _SURE:
        yield (
            f"privacy.epsilon: ε = {rounded_up(epsilon)} lets readers guess right {format_right_guess(epsilon, delta)} between two"
            " equally likely possibilities, which protects next to nothing. ε = 1 allows 73.2 of 100 times."
        )
    if many >= _MANY:
        yield f"budget.epsilon: the cap allows {many:,} releases like this one, so it hardly limits what they reveal together."


def remarks_on_unit(plan: Plan) -> Iterator[str]:
    """Yield a remark where a column seems to say whose record a row is, no key uses it, and the promise is about such units.

    Reads the header of the confidential table, and no row; a plan, which opens no confidential table, has no such remark.
    """
    spec, privacy, table = plan.file.spec, plan.file.spec.privacy, plan.source.table
    if spec.input.unit or spec.input.matrix or is_url(table.location):  # no server is asked
        return
    used = {*chain(*map(spec.columns, spec.axes)), *(spec.input.group or ()), *filter(None, [spec.input.count])}
    try:
        with duckdb.connect() as con, opened(con, table) as rows:
            names = [*rows.names]
    except TrellisError:
        return  # whoever reads the table says why
    known = [name for name in names if name not in used and is_unit(name)]
    units = [name for name in known if kinds_in(name) & kinds_in(privacy.unit)]
    units += known if privacy.max_records_per_unit == 1 else []
    if units and used <= {*names}:  # otherwise the first line may be a record
        yield (
            f"input.unit: column {units[0]} seems to say whose record a row is, and no key uses it. That privacy.max_records_per_unit"
            f" ({privacy.max_records_per_unit}) holds is only your promise; with input.unit: {units[0]}, ingest sees to it."
        )
