"""Reads tables, views and queries of PostgreSQL databases, a batch of rows at a time. Every column is read as text.

A location names a server and a database, and never a user or a password: these come from libpq's environment variables. What
the driver says of a fault may quote rows or settings, so its text is compared with known causes and left behind.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from storage.database.connections import Connection
from storage.errors import InputError
from storage.ledger.recognition import RecognisedTable
from tasks.ingest.tables import Table, TableRows, identifier, json_line, literal, registered

URL = re.compile(r"postgres(?:ql)?://", re.IGNORECASE)

CREDENTIALS = "must hold no user and no password: a spec is stored and shown."
_CREDENTIALS_HINT = (
    "Leave out what is before the @, and set PGUSER and PGPASSWORD, or PGPASSFILE or PGSERVICE, in the environment."
)
_FORM = "postgresql://HOST:PORT/DATABASE::SCHEMA.TABLE, or ::SELECT … in place of the table"

# a host may stand in brackets, where colons belong to its address
_LOCATION = re.compile(r"(?P<server>postgres(?:ql)?://(?:\[[^\]]*\])?.*?)::(?P<inner>.*)", re.IGNORECASE | re.DOTALL)
_SERVER = re.compile(r"[a-z]+://(?P<host>\[[^\]]*\]|[^/:]*)(?::(?P<port>\d*))?(?:/(?P<database>[^/]*))?", re.IGNORECASE)
_IDENTIFIER = r'"(?:[^"]|"")+"|[^\W\d][\w$]*'
_RELATION = re.compile(rf"\s*(?P<schema>{_IDENTIFIER})\s*\.\s*(?P<table>{_IDENTIFIER})\s*")
_QUERY = re.compile(r"\s*(?:\(|(?:select|with|values|table)\b(?!\s*\.))", re.IGNORECASE)

# so that the same value is always the same text
_SETTINGS = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "SET LOCAL client_encoding TO 'UTF8'",
    "SET LOCAL datestyle TO 'ISO, YMD'",
    "SET LOCAL intervalstyle TO 'iso_8601'",
    "SET LOCAL timezone TO 'UTC'",
    "SET LOCAL bytea_output TO 'hex'",
    "SET LOCAL extra_float_digits TO 1",
)

_SIGNATURE = "trellis_row"  # no column of a table has this name by chance

_INSTALL = "Install Trellis with its extra for databases: pip install 'trellis[databases]'."
_LOGIN = "Set PGUSER and PGPASSWORD, or PGPASSFILE or PGSERVICE, in the environment in which Trellis runs."
_ONLY_READS = "The query must only read: it runs in a read-only transaction."
_NO_SERVER = "No server answers there. Check host and port, and that the server runs."

# SQLSTATEs, or their first two characters, and what to do about them.
_STATES = {
    "28": _LOGIN,
    "42501": "The user must have the right to read the table: GRANT SELECT.",
    "42P01": "There is no such table. Check its schema and name; a name with capital letters needs double quotes.",
    "3F000": "There is no such schema.",
    "42703": "The query names a column that does not exist.",
    "42702": "Two columns of the query have the same name: name each column once.",
    "42601": "The query must be one SELECT that only reads.",
    "0A000": "The query must be one SELECT that only reads, also in its WITH.",
    "25006": _ONLY_READS,
    "57014": "The server stopped it: see its statement_timeout.",
    "40001": "The server stopped it because of changes to the table. Run the command again.",
    "08": _NO_SERVER,
    "53300": "The server has no connection left. Run the command again later.",
}
# Parts of the texts of faults that have no SQLSTATE, and what to do about them.
_CAUSES = {
    r"password authentication failed|no password supplied|no pg_hba\.conf entry|role .* does not exist": _LOGIN,
    r"database .* does not exist": "There is no such database on that server.",
    r"Connection refused|could not translate host name|No such file or directory|timeout expired|No route": _NO_SERVER,
    r"definition of service .* not found": "PGSERVICE names a service that no service file describes.",
    r"server does not support SSL|SSL|certificate": "The server and PGSSLMODE do not agree on encryption.",
    r"in a read-only transaction": _ONLY_READS,
    r"server closed the connection|connection .* lost|terminating connection": "The server closed the connection. Run the command again.",
}


# what materialised views are made of, whose rows a plan reads without their tables
_BEHIND_KEPT = """
WITH RECURSIVE behind AS (
    SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'm' AND (n.nspname, c.relname) IN ({names})
    UNION
    SELECT d.refobjid FROM behind JOIN pg_rewrite r ON r.ev_class = behind.oid
    JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
)
SELECT n.nspname, c.relname FROM behind JOIN pg_class c ON c.oid = behind.oid JOIN pg_namespace n ON n.oid = c.relnamespace
"""


@dataclass(frozen=True, slots=True)
class Relation(Table):
    """A table, a view or a query of a PostgreSQL database.

    Attributes:
        server: the URL of the database, without credentials.
        place: what of the URL and the environment says which database it is.
        schema: of the table; empty for a query.
        table: its name; empty for a query.
        query: the query; empty for a table.
        snapshot: of which it is read, by the name that the server gave it; empty for the rows as they are when it is opened.
    """

    server: str
    place: str
    schema: str
    table: str
    query: str = ""
    snapshot: str = ""

    @property
    def name(self) -> str:
        """Schema and name of the table; of a query no more than that it is one."""
        return f"{self.schema}.{self.table}" if self.table else "the query"

    @property
    def location(self) -> str:
        """The URL, and behind `::` the table or the query."""
        return f"{self.server}::{self.query or f'{identifier(self.schema)}.{identifier(self.table)}'}"

    @property
    def kind(self) -> str:
        """PostgreSQL."""
        return "a table of PostgreSQL" if self.table else "a query of PostgreSQL"

    def at_place(self) -> RecognisedTable:
        """Return it by server, port, database, schema and name, or by the text of its query. Does not connect."""
        of_query = f"query {hashlib.sha256(self.query.encode()).hexdigest()}"
        return RecognisedTable(f"{self.place}::{of_query if self.query else self.name}")

    def is_same(self, other: Table) -> bool:
        """Return whether both are the same by their places. Does not connect."""
        return isinstance(other, Relation) and self.at_place() == other.at_place()

    def shows_rows_of(self, other: Table) -> bool:
        """Return whether it is a view or a query that reads a table which the other reads too."""
        if not isinstance(other, Relation) or self.place != other.place:
            return False
        with self._connected() as server:
            own = self._tables(server)
            is_table = len(own) == 1 and not self.query and own == {(self.schema, self.table)}
            return not is_table and not own.isdisjoint(other._tables(server))

    def sha256(self) -> str:
        """Return the hash of its rows as sorted JSON lists of texts, one per line, below that of the column names."""
        digest, failure = hashlib.sha256(), None
        try:
            with self._connected() as server:
                names = self._names(server)
                digest.update(json_line(names))
                texts = ", ".join(f"{identifier(name)}::text" for name in names)
                lines = f"SELECT array_to_json(ARRAY[{texts}]::text[])::text AS line FROM {self._from()}"
                for batch in server.read(f'SELECT line FROM ({lines}) AS lines ORDER BY line COLLATE "C"'):
                    for line in batch.column(0).to_pylist():
                        digest.update(line.encode() + b"\n")
        except (pa.ArrowException, OSError) as fault:  # what the server says while it sends
            failure = self.unreadable(self.cause(str(fault)))
        if failure:
            raise failure
        return digest.hexdigest()

    @contextmanager
    def rows(self, con: Connection) -> Iterator[TableRows]:
        """Open it in one read-only transaction; DuckDB then asks the server for a batch of rows at a time."""
        with self._connected() as server, registered(con) as register:

            def scan(columns: Sequence[str]) -> str:
                texts = ", ".join(f"{identifier(name)}::text AS {identifier(name)}" for name in dict.fromkeys(columns))
                return register(server.read(f"SELECT {texts} FROM {self._from()}"))

            yield TableRows(self._names(server), scan, decimal=".")

    def cause(self, message: str) -> str:
        """Return what a fault of the server comes from, by the driver's text."""
        return next((cause for sign, cause in _CAUSES.items() if re.search(sign, message)), "")

    @contextmanager
    def held(self) -> Iterator[Table]:
        """Yield it at one moment: whatever is written meanwhile, all who open it find the same rows."""
        with self._connected() as server:
            ((name,),) = server.fetch("SELECT pg_export_snapshot()")
            yield replace(self, snapshot=name)

    def _names(self, server: "_Server") -> list[str]:
        return server.names(f"SELECT * FROM {self._from()} LIMIT 0")

    def _tables(self, server: "_Server") -> set[tuple[str, str]]:
        """Return the tables that are read for it, by schema and name, also behind views; what a view keeps comes from its tables."""
        tables = set(_relations(server.plan(f"SELECT * FROM {self._from()}")))
        names = ", ".join(f"({literal(schema)}, {literal(name)})" for schema, name in tables)
        kept = server.fetch(_BEHIND_KEPT.format(names=names)) if tables else []
        return tables | {(schema, name) for schema, name in kept}

    def _from(self) -> str:
        if not self.query:
            return f"{identifier(self.schema)}.{identifier(self.table)} AS {_SIGNATURE}"
        return f"({self.query}\n) AS {_SIGNATURE}"  # the query may end in a comment

    @contextmanager
    def _connected(self) -> Iterator["_Server"]:
        try:
            from adbc_driver_postgresql import dbapi  # it is not installed with every Trellis
        except ImportError:
            raise self.fault("to read PostgreSQL, Trellis needs its driver.", _INSTALL) from None
        failure: InputError | None = None
        try:
            with ExitStack() as stack:
                connection = stack.enter_context(dbapi.connect(self.server, autocommit=True))
                server = _Server(connection, stack)
                server.run(_SETTINGS[0])
                if self.snapshot:
                    server.run(f"SET TRANSACTION SNAPSHOT '{self.snapshot}'")
                for setting in _SETTINGS[1:]:
                    server.run(setting)
                yield server
        except dbapi.Error as fault:
            state = fault.sqlstate or ""
            failure = self.unreadable(_STATES.get(state, _STATES.get(state[:2], "")) or self.cause(str(fault)))
        if failure:
            raise failure


@dataclass(frozen=True, slots=True)
class _Server:
    """A connection to a server, within a transaction that only reads; what it reads is closed before it."""

    connection: Any
    stack: ExitStack

    def run(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def plan(self, query: str) -> Any:
        """Return how the server would run a query, from its JSON."""
        with self.connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})  # which takes no EXPLAIN
            cursor.execute(f"EXPLAIN (VERBOSE, FORMAT JSON) {query}")
            return json.loads(cursor.fetchone()[0])

    def names(self, query: str) -> list[str]:
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            return [column[0] for column in cursor.description]

    def read(self, query: str) -> Any:
        """Return the rows of a query as a reader of Arrow's record batches, which holds one batch at a time."""
        cursor = self.stack.enter_context(self.connection.cursor())
        cursor.execute(query)
        return cursor.fetch_record_batch()


def _relations(plan: Any) -> Iterator[tuple[str, str]]:
    """Yield schema and name of every table that a plan of the server reads."""
    for part in plan.values() if isinstance(plan, dict) else plan if isinstance(plan, list) else ():
        yield from _relations(part)
    if isinstance(plan, dict) and "Relation Name" in plan:
        yield plan["Schema"], plan["Relation Name"]


def relation_at(field: str, location: str) -> Relation:
    """Return the table or the query at `postgresql://host:port/database::schema.table`. Does not connect.

    Raises:
        InputError: the location has another form, or holds credentials. The error does not repeat it.
    """
    if fault := fault_of_url(location):
        raise InputError(f"{field} {fault}", field=field, hint=_CREDENTIALS_HINT if fault == CREDENTIALS else "")
    match = _LOCATION.fullmatch(location)
    server = _SERVER.fullmatch(match["server"]) if match else None
    if match is None or server is None:
        raise InputError(f"{field} must have the form {_FORM}.", field=field)
    inner, place = match["inner"].strip().rstrip(";").rstrip(), _place(field, server)
    if is_query(inner):
        return Relation(field, match["server"], place, "", "", inner)
    named = _RELATION.fullmatch(inner)
    if named is None:
        raise InputError(
            f"{field} must name the table with its schema, or be a query.",
            field=field,
            hint=f"Write {_FORM}. A table outside of schemas that you made is in the schema public.",
        )
    return Relation(field, match["server"], place, _folded(named["schema"]), _folded(named["table"]))


def fault_of_url(location: str) -> str:
    """Return which rule a location breaks, in words that follow its key, if it is of a database; empty if none."""
    if not URL.match(location):
        return ""
    match = _LOCATION.fullmatch(location)
    server = match["server"] if match else location
    if "@" in server:
        return CREDENTIALS
    if "?" in server or "#" in server:
        return "must hold no settings behind a ?: they come from environment variables such as PGSSLMODE."
    return ""


def is_query(inner: str) -> bool:
    """Return whether what stands behind `::` is a query rather than the name of a table."""
    return _QUERY.match(inner) is not None


def _folded(name: str) -> str:
    """Return a name as PostgreSQL knows it: without quotes, or in lower case where it had none."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


def _place(field: str, server: re.Match[str]) -> str:
    """Return which database it is, with what the environment says of it where the location says nothing."""
    service = f"service={os.environ['PGSERVICE']}" if os.environ.get("PGSERVICE") else ""
    host = server["host"] or os.environ.get("PGHOST") or os.environ.get("PGHOSTADDR") or service or "local"
    port = server["port"] or os.environ.get("PGPORT") or ("" if service else "5432")
    database = server["database"] or os.environ.get("PGDATABASE") or service
    if not database:
        raise InputError(f"{field} must name a database.", field=field, hint=f"Write {_FORM}, or set PGDATABASE.")
    return f"postgresql://{host.lower()}:{port}/{database}"
