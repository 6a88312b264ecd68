"""Columns of typed tables as text: which types are none, and how whole numbers and days are written."""

import re
from collections.abc import Mapping, Sequence

from storage.database.connections import Connection
from tasks.ingest.tables import identifier

ANY = "ANY"  # of JSON, where each value has a type of its own; a common one would be chosen by all rows together
_TEXT = re.compile(rf"VARCHAR|ENUM\(.*\)|{ANY}", re.DOTALL)
_WITHIN = re.compile(r"\(.*\)", re.DOTALL)  # where a type may list values of the table, as ENUM does
_MOMENT = re.compile(r"TIMESTAMP(_S|_MS|_NS)?")  # without a time zone
_WHOLE = {"FLOAT": 2**24, "DOUBLE": 2**53, ANY: 2**53}  # below which such a type has every whole number
_DECIMAL = re.compile(r"DECIMAL\(.*\)")
_MIDNIGHT = " 00:00:00([.]0+)?$"  # which is left out of a day
_FRACTION = "^(-?(?:0|[1-9][0-9]*))[.]0+$"


def kinds_of(con: Connection, sql: str) -> dict[str, str]:
    """Return the types of the columns that SQL in FROM yields, by their names."""
    return {name: kind for name, kind, *_ in con.execute(f"DESCRIBE SELECT * FROM {sql}").fetchall()}


def not_text(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the columns whose values are not text, with the names of their types, which say nothing of what is in them."""
    return {name: _WITHIN.sub("", kind) for name, kind in kinds.items() if not _TEXT.fullmatch(kind)}


def left_out(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return, of columns whose texts are shorter than others write them, the form of what is written, and in it the text that is left."""
    numbers = {name: _FRACTION for name, kind in kinds.items() if kind in _WHOLE or _DECIMAL.fullmatch(kind)}
    return numbers | {name: f"^(.*){_MIDNIGHT}" for name, kind in kinds.items() if _MOMENT.fullmatch(kind)}


def texts_of(columns: Sequence[str], kinds: Mapping[str, str], sql: str) -> str:
    """Return the SQL, for use in FROM, of columns as text: a whole number is its digits, midnight its day, and a text of JSON as it is.

    The text of a value depends on it and on the type of its column, and on no other row.
    """
    texts = []
    for name in dict.fromkeys(columns):
        of, kind = identifier(name), kinds[name]
        text, number = f"{of}::VARCHAR", of
        if kind == ANY:
            text, is_number = f"json_extract_string({of}, '$')", f"json_type({of}) = 'DOUBLE'"
            number = f"CASE WHEN {is_number} THEN TRY_CAST({of}::VARCHAR AS DOUBLE) END"
        if kind in _WHOLE or _DECIMAL.fullmatch(kind):
            whole = f"{number} = trunc({number})" + (f" AND abs({number}) < {_WHOLE[kind]}" if kind in _WHOLE else "")
            text = f"coalesce(CASE WHEN {whole} THEN TRY_CAST({number} AS HUGEINT)::VARCHAR END, {text})"
        elif kind == "TIMESTAMP WITH TIME ZONE":  # the same on every machine
            text = f"timezone('UTC', {of})::VARCHAR || '+00'"
        elif _MOMENT.fullmatch(kind):
            text = f"regexp_replace({text}, '{_MIDNIGHT}', '')"
        texts.append(f"{text} AS {of}")
    return f"(SELECT {', '.join(texts)} FROM {sql})"
