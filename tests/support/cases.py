"""Tables with their specs, of every kind that can be released, and what a release of each must look like."""

from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import polars as pl

from tasks.synthesize.country import LEVELS, draw_country

AREAS = list(LEVELS)


@dataclass(frozen=True)
class Case:
    """A table with its spec, and what a release of it must look like."""

    keys: dict[str, Any]  # the spec
    order: str  # the axis that is refined to reach each level, from level 1 on
    names: dict[str, list[str]]  # per axis, the names of its levels, coarse to fine
    truth: pl.DataFrame  # the table as it is: the codes of every level released, `<axis>_<level>`, and the count

    def columns(self, level):
        """Return the columns of codes that the contract asks of a level."""
        reached = {axis: self.order[:level].count(axis[0]) for axis in ("origin", "destination")}
        return [f"{axis}_{name}" for axis, depth in reached.items() for name in self.names[axis][:depth]]

    def true_level(self, level):
        """Return the true table of a level."""
        columns = self.columns(level)
        if not columns:
            return self.truth.select(pl.col("count").sum())
        return self.truth.group_by(columns).agg(pl.col("count").sum()).sort(columns)


def spec_of(name, table, **keys):
    """Return a spec of a release of trips in a table, of a dataset whose budget it takes whole."""
    privacy = {"unit": "one commuter", "neighbours": "substitution", "max_records_per_unit": 1}
    spent = {"epsilon": 4.0, "delta": 1e-8}
    spec = {"name": name, "dataset": name, "mechanism": "inftda", "privacy": privacy | spent, "budget": dict(spent)}
    count = {} if name == "rows" else {"count": "people"}
    return {
        **spec, "input": {"table": table, "origin": "home", "destination": "work", **count}, "keep_vault": True,
        **keys,
    }  # fmt: skip


def country_of(people, seed):
    """Return a small made-up country."""
    generator = np.random.default_rng(seed)
    return draw_country(regions=2, provinces=4, municipalities=12, people=people, generator=generator)


def truth_of(trips, origins, destinations):
    """Return trips with the codes of all levels in place of those of the finest, by the codebook of each end."""
    for axis, column, codebook in (("origin", "home", origins), ("destination", "work", destinations)):
        codes = codebook.rename({level: f"{axis}_{level}" for level in codebook.columns})
        trips = trips.join(codes, left_on=column, right_on=codes.columns[-1], coalesce=False, how="left").drop(column)
    return trips.rename({"people": "count"})


def case_csv(folder):
    """Make the plain case: CSV, one hierarchy for both ends, the destination's tree."""
    country = country_of(500, 1)
    country.codebook.write_csv(folder / "codebook.csv")
    country.trips.write_csv(folder / "trips.csv")
    keys = spec_of(
        "plain", "trips.csv", hierarchy={"table": "codebook.csv", "levels": AREAS},
        release={"tree": "destination", "finest": "municipality"},
    )  # fmt: skip
    truth = truth_of(country.trips, country.codebook, country.codebook)
    return Case(keys, "dododo", {"origin": AREAS, "destination": AREAS}, truth)


def case_rows(folder):
    """Make the case of a Parquet table without counts, the origin's tree, and a finest level above the codes."""
    country = country_of(300, 2)
    rows = country.trips.select("home", "work").select(pl.all().repeat_by(country.trips["people"]).explode())
    country.codebook.write_parquet(folder / "codebook.parquet")
    rows.sample(fraction=1.0, shuffle=True, seed=1).write_parquet(folder / "trips.parquet")
    keys = spec_of(
        "rows", "trips.parquet", hierarchy={"table": "codebook.parquet", "levels": AREAS},
        release={"tree": "origin", "finest": "province"},
    )  # fmt: skip
    truth = truth_of(country.trips, country.codebook, country.codebook)
    return Case(keys, "odod", {"origin": AREAS[:2], "destination": AREAS[:2]}, truth)


def case_duckdb(folder):
    """Make the case of DuckDB files, two codebooks of unequal depth in one of them, and the shallow end's tree."""
    country = country_of(500, 3)
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
        "records.duckdb::trips",
        hierarchy={
            "origin": {"table": "public.duckdb::areas", "levels": AREAS},
            "destination": {"table": "public.duckdb::sites", "levels": ["zone", "site"]},
        },
        release={"tree": "destination", "finest": {"origin": "municipality", "destination": "site"}},
    )
    names = {"origin": AREAS, "destination": ["zone", "site"]}
    return Case(keys, "dodoo", names, truth_of(trips, country.codebook, zones))


def case_paths(folder):
    """Make the case of one column per level, whose codes say little without those above, and the deep end's tree."""
    generator = np.random.default_rng(5)
    areas = pl.DataFrame({"a": list("11122"), "b": list("11212"), "c": list("12111")})
    picks = {end: areas[generator.integers(0, 5, 60).tolist()] for end in ("origin", "destination")}
    truth = pl.DataFrame({f"{end}_{level}": of[level] for end, of in picks.items() for level in areas.columns})
    truth = truth.with_columns(count=pl.Series(generator.integers(0, 30, 60)))
    areas.write_csv(folder / "areas.csv")
    renamed = {column: column.replace("origin", "from").replace("destination", "to") for column in truth.columns}
    truth.rename(renamed).rename({"count": "n"}).write_csv(folder / "trips.csv.gz", compression="gzip")
    columns = {"origin": "from", "destination": "to"}.items()
    ends = {end: [f"{column}_{level}" for level in "abc"] for end, column in columns}
    keys = spec_of(
        "paths",
        "trips.csv.gz",
        input={"table": "trips.csv.gz", **ends, "count": "n"},
        hierarchy={"table": "areas.csv", "levels": ["a", "b", "c"]},
        release={"tree": "origin", "finest": {"origin": "c", "destination": "a"}},
    )
    return Case(keys, "odoo", {"origin": ["a", "b", "c"], "destination": ["a"]}, truth.filter(pl.col("count") > 0))


CASES = {
    "CSV, destination tree": case_csv,
    "Parquet without counts, origin tree": case_rows,
    "DuckDB, two codebooks": case_duckdb,
    "a column per level": case_paths,
}


def case_precise(folder):
    """Make the plain case with little noise, so that bounds are far below the total."""
    case = case_csv(folder)
    case.keys["privacy"]["epsilon"] = case.keys["budget"]["epsilon"] = 40.0
    return case
