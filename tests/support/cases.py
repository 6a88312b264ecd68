"""Tables with their specs, of every kind that can be released, and what a release of each must look like."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

from tasks.synthesize.country import LEVELS, draw_country


@dataclass(frozen=True)
class Case:
    """A table with its spec, and what a release of it must look like.

    Attributes:
        keys: the spec.
        order: the axis that is refined to reach each level, from level 1 on.
        names: per axis, the names of its levels, coarse to fine.
        truth: the table as it is: the codes of every level released, `<axis>_<level>`, and the count.
    """

    keys: dict[str, Any]
    order: str
    names: dict[str, list[str]]
    truth: pl.DataFrame

    def columns(self, level: int) -> list[str]:
        """Return the columns of codes that the contract asks of a level."""
        reached = {axis: self.order[:level].count(axis[0]) for axis in ("origin", "destination")}
        return [f"{axis}_{name}" for axis, depth in reached.items() for name in self.names[axis][:depth]]

    def true_level(self, level: int) -> pl.DataFrame:
        """Return the true table of a level."""
        columns = self.columns(level)
        if not columns:
            return self.truth.select(pl.col("count").sum())
        return self.truth.group_by(columns).agg(pl.col("count").sum()).sort(columns)


def spec_of(name: str, **keys: Any) -> dict[str, Any]:
    """Return a spec of a release that takes all of its dataset's budget."""
    return {
        "name": name,
        "dataset": name,
        "mechanism": "inftda",
        "privacy": {
            "unit": "one commuter",
            "neighbours": "substitution",
            "max_records_per_unit": 1,
            "epsilon": 4.0,
            "delta": 1e-8,
        },
        "budget": {"epsilon": 4.0, "delta": 1e-8},
        "keep_vault": True,
        **keys,
    }


def coded(trips: pl.DataFrame, axis: str, column: str, codebook: pl.DataFrame) -> pl.DataFrame:
    """Return trips with the codes of all levels of an axis in place of a column of finest codes."""
    codes = codebook.rename({level: f"{axis}_{level}" for level in codebook.columns})
    return trips.join(codes, left_on=column, right_on=codes.columns[-1], coalesce=False, how="left").drop(column)


def case_csv(folder: Path) -> Case:
    """Make the plain case: CSV, one hierarchy for both ends, the destination's tree."""
    country = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(1))
    country.codebook.write_csv(folder / "codebook.csv")
    country.trips.write_csv(folder / "trips.csv")
    keys = spec_of(
        "plain",
        input={"table": "trips.csv", "origin": "home", "destination": "work", "count": "people"},
        hierarchy={"table": "codebook.csv", "levels": list(LEVELS)},
        release={"tree": "destination", "finest": "municipality"},
    )
    truth = coded(coded(country.trips, "origin", "home", country.codebook), "destination", "work", country.codebook)
    names = {"origin": list(LEVELS), "destination": list(LEVELS)}
    return Case(keys, "dododo", names, truth.rename({"people": "count"}))


def case_rows(folder: Path) -> Case:
    """Make the case of a Parquet table without counts, the origin's tree, and a finest level above the codes."""
    country = draw_country(regions=2, provinces=4, municipalities=12, people=300, generator=np.random.default_rng(2))
    rows = country.trips.select("home", "work").select(pl.all().repeat_by(country.trips["people"]).explode())
    rows = rows.sample(fraction=1.0, shuffle=True, seed=1)
    country.codebook.write_parquet(folder / "codebook.parquet")
    rows.write_parquet(folder / "trips.parquet")
    keys = spec_of(
        "rows",
        input={"table": "trips.parquet", "origin": "home", "destination": "work"},
        hierarchy={"table": "codebook.parquet", "levels": list(LEVELS)},
        release={"tree": "origin", "finest": "province"},
    )
    truth = coded(coded(country.trips, "origin", "home", country.codebook), "destination", "work", country.codebook)
    names = {"origin": ["region", "province"], "destination": ["region", "province"]}
    return Case(keys, "odod", names, truth.rename({"people": "count"}))


def case_duckdb(folder: Path) -> Case:
    """Make the case of DuckDB files, two codebooks of unequal depth in one of them, and the shallow end's tree."""
    country = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(3))
    zones = pl.DataFrame({"zone": ["é", "é", "Z", "Z", "a"], "site": ["10", "9", "007", "x y", "1,0"]}).sort("zone")
    generator = np.random.default_rng(4)
    trips = country.trips.with_columns(work=zones["site"].gather(generator.integers(0, 5, country.trips.height)))
    for file, tables in {"records": {"trips": trips}, "public": {"areas": country.codebook, "sites": zones}}.items():
        with duckdb.connect(str(folder / f"{file}.duckdb")) as con:
            for name, table in tables.items():
                con.register("arrow", table.to_arrow())
                con.execute(f"CREATE TABLE {name} AS SELECT * FROM arrow")
    keys = spec_of(
        "unequal",
        input={"table": "records.duckdb::trips", "origin": "home", "destination": "work", "count": "people"},
        hierarchy={
            "origin": {"table": "public.duckdb::areas", "levels": list(LEVELS)},
            "destination": {"table": "public.duckdb::sites", "levels": ["zone", "site"]},
        },
        release={"tree": "destination", "finest": {"origin": "municipality", "destination": "site"}},
    )
    truth = coded(coded(trips, "origin", "home", country.codebook), "destination", "work", zones)
    names = {"origin": list(LEVELS), "destination": ["zone", "site"]}
    return Case(keys, "dodoo", names, truth.rename({"people": "count"}))


def case_paths(folder: Path) -> Case:
    """Make the case of one column per level, whose codes say little without those above, and the deep end's tree."""
    generator = np.random.default_rng(5)
    areas = pl.DataFrame(
        {"a": ["1", "1", "1", "2", "2"], "b": ["1", "1", "2", "1", "2"], "c": ["1", "2", "1", "1", "1"]}
    )
    columns = {f"{end}_{level}": level for end in ("from", "to") for level in areas.columns}
    picks = {end: areas[generator.integers(0, 5, 60).tolist()] for end in ("from", "to")}
    trips = pl.DataFrame({column: picks[column.partition("_")[0]][level] for column, level in columns.items()})
    trips = trips.with_columns(n=pl.Series(generator.integers(0, 30, 60)))
    areas.write_csv(folder / "areas.csv")
    trips.write_csv(folder / "trips.csv.gz", compression="gzip")
    from_, to = ([column for column in columns if column.startswith(end)] for end in ("from", "to"))
    keys = spec_of(
        "paths",
        input={"table": "trips.csv.gz", "origin": from_, "destination": to, "count": "n"},
        hierarchy={"table": "areas.csv", "levels": ["a", "b", "c"]},
        release={"tree": "origin", "finest": {"origin": "c", "destination": "a"}},
    )
    released = {
        column: f"{'origin' if column in from_ else 'destination'}_{level}" for column, level in columns.items()
    }
    truth = trips.rename(released | {"n": "count"}).filter(pl.col("count") > 0)
    return Case(keys, "odoo", {"origin": ["a", "b", "c"], "destination": ["a"]}, truth)


CASES: dict[str, Callable[[Path], Case]] = {
    "CSV, destination tree": case_csv,
    "Parquet without counts, origin tree": case_rows,
    "DuckDB, two codebooks": case_duckdb,
    "a column per level": case_paths,
}


def case_precise(folder: Path) -> Case:
    """Make the plain case with little noise, so that bounds are far below the total."""
    case = case_csv(folder)
    case.keys["privacy"]["epsilon"] = case.keys["budget"]["epsilon"] = 40.0
    return case
