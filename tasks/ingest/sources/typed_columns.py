"""Columns of typed tables as text: which types are none, and how whole numbers and days are written."""

import re
from collections.abc import Mapping, Sequence

from storage.database.connections import Connection
from tasks.ingest.tables import identifier

_TEXT = re.compile(r"VARCHAR|ENUM\(.*\)", re.DOTALL)
_WITHIN = re.compile(r"\(.*\)", re.DOTALL)  # where a type may list values of the table, as ENUM does
_MOMENT = re.compile(r"TIMESTAMP(_S|_MS|_NS)?")  # without a time zone
_MIDNIGHT = "[ T]00:00:00([.]0+)?$"  # which is left out of a day


def kinds_of(con: Connection, sql: str) -> dict[str, str]:
    """Return the types of the columns that SQL in FROM yields, by their names."""
    return {name: kind for name, kind, *_ in con.execute(f"DESCRIBE SELECT * FROM {sql}").fetchall()}


def not_text(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the columns whose values are not text, with the names of their types, which say nothing of what is in them."""
    return {name: _WITHIN.sub("", kind) for name, kind in kinds.items() if not _TEXT.fullmatch(kind)}


def texts_of(columns: Sequence[str], kinds: Mapping[str, str], sql: str, *, is_text: bool = False) -> str:
    """Return the SQL, for use in FROM, of columns as text: a whole number is its digits, and midnight its day.

    Args:
        is_text: whether the SQL yields text, whatever the types say.
    """
    texts = []
    for name in dict.fromkeys(columns):
        of, kind = identifier(name), kinds[name]
        text = f"{of}::VARCHAR"
        if re.fullmatch(r"FLOAT|DOUBLE|DECIMAL\(.*\)", kind):  # 1e16 is written out
            number = f"CASE WHEN {of} NOT SIMILAR TO '-?[0-9]+' THEN TRY_CAST({of} AS DOUBLE) END" if is_text else of
            text = f"coalesce(CASE WHEN {number} = trunc({number}) THEN TRY_CAST({number} AS HUGEINT)::VARCHAR END, {text})"
        elif kind == "TIMESTAMP WITH TIME ZONE" and not is_text:  # the same on every machine
            text = f"timezone('UTC', {of})::VARCHAR || '+00'"
        elif _MOMENT.fullmatch(kind):
            text = f"regexp_replace({text}, '{_MIDNIGHT}', '')"
        texts.append(f"{text} AS {of}")
    return f"(SELECT {', '.join(texts)} FROM {sql})"
