"""The search for true counts in everything that a release leaves behind."""

from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow.parquet as pq

from storage.database.connections import store


def left_in(folder):
    """Yield every file below a folder's TRELLIS_HOME, the vault excepted, and below its output folder."""
    for path in folder.rglob("*"):
        if path.is_file() and "vault" not in path.parts and path.parent != folder:
            yield path


@dataclass(frozen=True)
class Made:
    """A release of the planted counts, finished or failed."""

    release_id: str
    folder: Path
    secrets: set[int]  # the true counts of all nodes below the root, whose count is public
    fault: BaseException | None  # what stopped it
    said: str  # what it said on the terminal
    meanwhile: set[str]  # the files outside the vault that held a planted count while a level was being drawn

    def exposed(self):
        """Return the files and records that hold, or are named for, a true count."""
        found = {str(path.relative_to(self.folder)) for path in left_in(self.folder) if self.is_exposed_by(path)}
        with store() as con:
            tables = con.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
            for schema, table in tables:
                rows = con.execute(f'SELECT * FROM "{schema}"."{table}"').fetchall()
                if self.secrets_in(repr(rows)):
                    found.add(f"{schema}.{table}")
        return found

    def assert_hidden(self):
        """Check that no true count is in any file or record, was in one while a level was drawn, or was said."""
        assert self.exposed() == set()
        assert self.meanwhile == set()
        assert self.secrets_in(self.said) == set()

    def is_exposed_by(self, path):
        """Return whether a file is named for a true count, or holds one: as text, as eight bytes, or in Parquet."""
        content = path.read_bytes()
        values = set()
        if path.suffix == ".parquet":  # whole, as a rename makes it
            for column in pq.read_table(path).columns:
                values |= set(map(str, column.to_pylist()))
        as_bytes = any(secret.to_bytes(8, "little") in content for secret in self.secrets)
        return as_bytes or bool(self.secrets_in(f"{path} {content.decode('latin-1')} {values}"))

    def secrets_in(self, text):
        """Return the true counts that a text holds, with or without signs between the thousands."""
        return {secret for secret in self.secrets if str(secret) in text or f"{secret:,}" in text}


@dataclass(frozen=True)
class Watch:
    """Notes the true counts that a sampler is given, from `least` on, and where in a folder they are meanwhile, or those planted."""

    folder: Path
    planted: set[int] = field(default_factory=set)
    least: int = 0
    secrets: set[int] = field(default_factory=set)
    meanwhile: set[str] = field(default_factory=set)

    def on(self, sampler):
        """Return the sampler, watched."""

        def sample(true_counts, scale):
            self.secrets.update(count for count in map(int, true_counts) if count >= self.least)
            now = Made("", self.folder, self.planted or self.secrets, None, "", set())
            self.meanwhile.update(str(path) for path in left_in(self.folder) if now.is_exposed_by(path))
            return sampler(true_counts, scale)

        return sample


def hidden(true_counts, scale):
    """Add noise of a scale that always comes out alike, so that none is right by chance."""
    generator = np.random.default_rng(crc32(true_counts.tobytes()))
    return true_counts + np.rint(generator.normal(0, scale, true_counts.size)).astype(np.int64)
