"""Columns of typed tables as text: which types are none, and how whole numbers and days are written."""

import re
from collections.abc import Mapping, Sequence

from storage.database.connections import Connection
from tasks.ingest.tables import identifier

_MOMENT = re.compile(r"TIMESTAMP(_S|_MS|_NS)?")  # without a time zone
_MIDNIGHT = " 00:00:00([.]0+)?$"  # which is left out of a day


def kinds_of(con: Connection, sql: str) -> dict[str, str]:
    """Return the types of the columns that SQL in FROM yields, by their names."""
    return {name: kind for name, kind, *_ in con.execute(f"DESCRIBE SELECT * FROM {sql}").fetchall()}


def not_text(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the columns, with their types, whose values are not text."""
    return {name: kind for name, kind in kinds.items() if not kind.startswith(("VARCHAR", "ENUM"))}


def texts_of(columns: Sequence[str], kinds: Mapping[str, str], sql: str) -> str:
    """Return the SQL, for use in FROM, of columns as text: a whole number is its digits, and midnight its day."""
    texts = []
    for name in dict.fromkeys(columns):
        text, kind = f"{identifier(name)}::VARCHAR", kinds[name]
        if re.fullmatch(r"FLOAT|DOUBLE|DECIMAL\(.*\)", kind):  # 1e16 is written out
            of = identifier(name)
            digits = f"CASE WHEN {of} = trunc({of}) THEN TRY_CAST({of} AS HUGEINT)::VARCHAR END"
            text = f"coalesce({digits}, {text})"
        elif _MOMENT.fullmatch(kind):
            text = f"regexp_replace({text}, '{_MIDNIGHT}', '')"
        texts.append(f"{text} AS {identifier(name)}")
    return f"(SELECT {', '.join(texts)} FROM {sql})"
