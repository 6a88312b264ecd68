"""Write benchmarks/README.md and its plots from the results of the benchmarks under build/bench/."""

from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import Any

from growth import slope
from peers import PEER, compare
from results import load, markdown

from tasks.pages.svg import Scale, chart, linear_axis, lines, log_axis, marks, style

HERE = Path(__file__).parent
Row = dict[str, Any]

PAGE = """\
# Benchmarks

This page shows how fast and how accurate Trellis is, and how to measure it again. `python benchmarks/report.py` writes the page from
the results of the last runs in `build/bench/`, and leaves sections without results as they are; do not edit it. `make bench` runs
everything in the first table and then writes this page. That takes about forty minutes on two cores, 6 GB of memory and 10 GB of disk.
You can also run each benchmark by itself:

| command | measures |
|---|---|
| `python benchmarks/peers.py` | Trellis and the published package `inf-tda`, in turn on the same table |
| `python benchmarks/synthetic.py` | the synthetic sets of the paper |
| `python benchmarks/paper.py` | every mechanism on those sets, beside the authors' figures: [paper.md](paper.md), which `--page` writes |
| `python benchmarks/coverage.py` | how many intervals of fixed cells contain the true count, and how wide they are: [coverage.md](coverage.md) |
| `python benchmarks/estimator.py` | how near to the truth the shrinking estimator is, with totals measured beside it and without: [estimator.md](estimator.md) |
| `python benchmarks/rows.py` | how many published rows have a true count in their interval, and how wide those are: [rows.md](rows.md) |
| `python benchmarks/noise_rows.py` | what releases say of the share of rows that are noise alone, and how that is: [noise_rows.md](noise_rows.md) |
| `python benchmarks/nation.py` | a made-up nation of Italy's shape: in memory, and with the command line; and how much of the release is serial (by `serial.py`) |
| `python benchmarks/cores.py` | how much a second core speeds up the branches of a release |
| `python benchmarks/cluster.py` | what a cluster costs and gains: CPU of an order, workers against threads, bytes through the mailbox |
| `python benchmarks/growth.py` | seconds against cells, over four decades |
| `python benchmarks/intopt.py`, `sampler.py` | IntOpt compared with a full sort; the two samplers ([docs/proofs/sampler.md](../docs/proofs/sampler.md)) |
| `python benchmarks/rhode_island.py`, `large_plan.py`, `accountants.py` | the numbers in the [README](../README.md) |
| `python benchmarks/desk.py` | what each command takes from start to end: [desk.md](desk.md) |
| `python benchmarks/report.py` | nothing; it writes this page and its plots |

These are not part of `make bench`. Their figures are in [docs/proofs](../docs/proofs/accuracy.md), and some are in the README:

| command | measures |
|---|---|
| `python benchmarks/accuracy.py` | errors compared with the paper's InfTDA at the same ε and δ; options `--only` (some sets), `--runs`, `--seed` |
| `python benchmarks/largest_rho.py` | the largest ρ that the accountant `pld` finds, compared with an exhaustive search, for ε from 0.01 to 100; options `--every`, `--delta`, `--squares` |
| `python benchmarks/laws.py` | discrete Laplace noise compared with discrete Gaussian noise, on Rhode Island; options `--runs`, `--ratios` |
| `python benchmarks/settling.py` | errors with other weights and another rounding for views, on a made-up city; options `--runs`, `--seed` |
| `python benchmarks/settling_size.py` | memory and time that settling takes, and how near rounding stays, on grids; option `--large` |
| `python benchmarks/views.py` | what views give, on the city, Rhode Island and Adult, and seconds for 811,200 leaves: [views.md](views.md); options `--runs`, `--only`, `--page` |
| `python benchmarks/database.py` | seconds and memory to read ten million rows from PostgreSQL ([docs/how-to/other-sources.md](../docs/how-to/other-sources.md)); options `--rows`, `--pairs` |
| `python benchmarks/many_files.py` | seconds and memory to read ten million rows from 40 Parquet files; options `--rows`, `--pairs`, `--files` |
| `python benchmarks/group_sizes.py` | errors, time and memory of `group_sizes` beside the mechanisms of the paper, on made-up and real tables; options `--only`, `--runs`, `--epsilon` |
| `python benchmarks/crossing.py` | trips by mode and hour: errors of zone totals, pairs of zones, modes and hours by district, by the order of the tree and the views beside it: [crossing.md](crossing.md); options `--runs`, `--epsilon`, `--mechanisms` |
| `python benchmarks/days.py` | the error of a day and of the sum of all days of a series whose days are measured together, against releases that each stand alone at the same ρ; options `--days`, `--trials` |
| `python benchmarks/ranges.py` | exact variances of ranges, prefixes and nodes for trees of which every node is measured, beside the optimum; and what releases take and come to; options `--only`, `--runs`, `--releases`, `--draws` |
| `python benchmarks/ten_billion.py` | what ten billion cells would take, on paper: [ten_billion.md](ten_billion.md); option `--shares` |
| `python benchmarks/rejected.py` | the same errors for ideas that we tried and did not keep |
| `python benchmarks/report_picture.py` | nothing; it draws docs/report.png, the picture of a report in the README |

`--sampler opendp` or `--sampler table` runs one sampler only. `--help` lists the other options. Seconds vary with the machine's other
work. Ratios of runs taken in turn vary less. CPU seconds are the sum over all threads.

## Beside inf-tda

This benchmark compares `inf-tda` 0.1 with OpenDP 0.12.1, and Trellis with each sampler. The table has a million cells in 3 levels of
100, of which 50,000 are non-zero. ε = 1, δ = 10⁻⁸, with the lemma's accounting. The time runs from the table in memory to the
released table in memory. The numbers are medians. Errors are the largest of each level, from coarse to fine.

{peers}

## The paper's synthetic sets

The time runs from the table in memory to all released levels in memory, on one thread, with δ = 10⁻⁸ and the lemma's accounting. The
paper's code took 181 s and 9.6 s for two of the sets. These two times come from one run on another machine; we did not measure them.

{synthetic}

## A nation of Italy's shape

The nation is made up: 20 regions, 110 provinces, 8,092 municipalities, 16,000 areas, 362,292 sections; 14.3 million flows, 31 million
people. Down to municipalities, we measure computation alone, in memory, with one thread per core and ρ by the lemma. Down to sections,
we measure `trellis release` and `trellis verify`, from the Parquet file to the published and verified folder, with
`run: {{max_memory: 1.5GB}}`, a quarter of 6 GB. The memory is that of all processes together, including Prefect's server.

{nation}

## Two cores

This benchmark releases a tenth of that nation at ε = 10, down to sections with the table. It measures the wall seconds of the branch
stages through the plain driver, on one thread and on two, in turn. They include vault, draws, shards and seals. OpenDP's sampler is
measured down to municipalities.

{cores}

## What is serial

`python benchmarks/nation.py --part section --epsilon 10` measures that nation, and with `--share 0.1 --mechanism inftda_reconciled` a tenth
of it. It makes each release once more without Prefect, and looks at its threads every four milliseconds. CPU seconds are serial where at most one thread
runs or waits for a core. Amdahl's limit is how many times faster any number of cores can make the release. The two cores are measured
against one core of the same machine, in wall seconds. Other work on the machine makes these longer and the share smaller. Memory is that
of all processes of `trellis release` and of `trellis verify`.

{serial}

## A cluster

`python benchmarks/cluster.py` starts a scheduler and workers of one thread each on this machine, under mutual TLS, with a folder as mailbox.
Home, scheduler and workers share its cores. It measures the CPU that an order costs where there is nothing to draw; the wall seconds of
the branches with OpenDP's sampler, by one worker, two workers and two threads, in turn; and all CPU of a release with the table, by two
workers and by two threads, with the bytes of shards that are put into the mailbox and fetched from there.

{cluster}

## Growth

The nations are made up and have a share of Italy's flows. We release all five levels at ε = 1, in memory, on one thread.

{growth}
"""

PEER_GOALS = {"opendp": 3, "table": 100}
SET_GOALS = {("random complete", "opendp"): 60, ("random complete", "table"): 600}
NATION_GOALS = {
    ("municipality", "table", 1.0): 2,
    ("municipality", "opendp", 1.0): 30,
    ("section", "table", 1.0): 150,
    ("section", "table", 10.0): 360,
}
MEMORY_GOAL = 6e9  # bytes, down to sections
CORES_GOAL = 1.6
SLOPE_GOAL = 1.05
SERIAL_GOAL = 0.08  # of CPU seconds
MOST_SERIAL = 4  # stages that are named
NOT_MEASURED = "Not measured yet."
SECTION = "\n## "


def table(heads: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table; all but the first column to the right."""
    heads = list(heads)
    rows = [heads, ["---", *["---:"] * (len(heads) - 1)], *lines]
    return markdown(rows)


def peers(rows: list[Row]) -> str:
    """Return what the pairs took, and how they compare."""
    lines = []
    most = max(row["threads"] for row in rows)
    for who, threads in {(row["who"], row["threads"]): None for row in rows}:
        own = [row for row in rows if (row["who"], row["threads"]) == (who, threads)]
        errors = zip(*(row["errors"] for row in own), strict=True)
        line = [f"{who}, {threads} thread{'s' if threads > 1 else ''}"]
        line += [f"{median(row[unit] for row in own):.2f}" for unit in ("seconds", "cpu_seconds")]
        line.append(", ".join(f"{median(level):.0f}" for level in errors))
        if who == PEER:
            line += [""] * 4
        else:
            times, by_pairs = compare(rows, who, threads, "seconds")
            cpu_times, _ = compare(rows, who, threads, "cpu_seconds")
            line += [f"{times:.1f}", f"{min(by_pairs):.1f} to {max(by_pairs):.1f}", f"{cpu_times:.1f}"]
            line.append(goal(f"{PEER_GOALS[who]}", reached=times >= PEER_GOALS[who]) if threads == most else "")
        lines.append(line)
    return table(["", "s", "CPU s", "errors", "times faster", "pair by pair", "times less CPU", "goal"], lines)


def synthetic(rows: list[Row]) -> str:
    """Return what each set took."""
    lines = []
    for row in rows:
        line = [row["set"], f"{row['epsilon']:g}", row["sampler"], f"{row['leaves']:,}", f"{row['cells']:,}"]
        line += [f"{row['cpu_seconds']:.2f}", f"{row['peak_bytes'] / 1e9:.2f}"]
        times = row["paper_seconds"] / row["cpu_seconds"] if "paper_seconds" in row else None
        line.append(f"{times:,.0f}" if times else "")
        wanted = SET_GOALS.get((row["set"], row["sampler"]))
        line.append(goal(f"{wanted}", reached=times >= wanted) if wanted and times else "")
        lines.append(line)
    return table(
        ["set", "ε", "sampler", "leaves", "cells", "CPU s", "GB", "times faster than the paper's", "goal"], lines
    )


def nation(rows: list[Row]) -> str:
    """Return what each part took, and the plot of its rooms."""
    lines = []
    for row in rows:
        wanted = NATION_GOALS.get((row["part"], row["sampler"], row["epsilon"])) if row["share"] == 1 else None
        reached = wanted is not None and row["seconds"] <= wanted
        if row["part"] == "section":
            reached = reached and row["peak_bytes"] < MEMORY_GOAL
        text = f"{wanted} s{', 6 GB' if row['part'] == 'section' else ''}"
        size = "" if row["share"] == 1 else f", {row['share']:g} of the flows"
        line = [f"{row['part']}{size}", f"{row['epsilon']:g}", row["sampler"], f"{row['cells']:,}"]
        line += [
            f"{row['seconds']:.1f}",
            f"{row['peak_bytes'] / 1e9:.2f}",
            goal(text, reached=reached) if wanted else "",
        ]
        lines.append(line)
    draw_rooms(rows)
    heads = ["down to", "ε", "sampler", "cells", "s", "GB", "goal"]
    return f"{table(heads, lines)}\n\n![Share of each stage in the thread seconds](rooms.svg)"


def cores(rows: list[Row]) -> str:
    """Return what the second core was worth to each sampler."""
    lines = []
    for row in rows:
        times = median(row["ratios"])
        line = [row["sampler"], f"{row['cells']:,}", f"{row['one']:.1f}", f"{row['two']:.1f}", f"{times:.2f}"]
        line.append(f"{min(row['ratios']):.2f} to {max(row['ratios']):.2f}")
        lines.append([*line, goal(f"{CORES_GOAL}", reached=times >= CORES_GOAL)])
    return table(
        ["sampler", "cells in branches", "s on one", "s on two", "times faster", "pair by pair", "goal"], lines
    )


def serial(rows: list[Row]) -> str:
    """Return how much of each release down to sections is serial, where that was measured."""
    lines = []
    for row in rows:
        if "serial" in row:
            part, share = row["serial"], row["serial"]["share"]
            most = [f"{stage} {taken:.2f}" for stage, taken in list(part["of_stages"].items())[:MOST_SERIAL]]
            lines.append(
                [
                    row["mechanism"],
                    f"{row['epsilon']:g}",
                    f"{row['cells']:,}",
                    f"{part['cpu']:.1f}",
                    f"{part['serial']:.2f}",
                    f"{share:.1%}",
                    f"{part['limit']:.1f}",
                    f"{row['one_core_wall'] / part['wall']:.2f}",
                    f"{row['peak_of_release'] / 1e9:.2f}, {row['peak_of_verify'] / 1e9:.2f}",
                    ", ".join(most),
                    goal(f"{SERIAL_GOAL:.0%}", reached=share <= SERIAL_GOAL),
                ]
            )
    heads = [
        "mechanism",
        "ε",
        "cells",
        "CPU s",
        "serial",
        "share",
        "limit",
        "times faster on two cores",
        "GB of release, of verify",
        "most serial",
        "goal",
    ]
    return table(heads, lines)


def cluster(rows: list[Row]) -> str:
    """Return what a cluster costs and gains."""
    order, speed, cost = rows
    one, two, threads = zip(*speed["walls"], strict=True)
    against_one = median(alone / both for alone, both in zip(one, two, strict=True))
    against_threads = median(here / both for here, both in zip(threads, two, strict=True))
    cpu, moved = (cost["home"] + cost["workers"]) / cost["threads"], cost["moved"] / cost["shards"]
    lines = [
        ["CPU of an order at home", f"{order['home']:.0f} ms", goal("25 ms", reached=order["home"] <= 25)],
        ["CPU of an order at the worker", f"{order['worker']:.0f} ms", goal("120 ms", reached=order["worker"] <= 120)],
        [
            f"two workers against one, {median(one):.0f} s",
            f"{against_one:.2f} times faster",
            goal("1.8", reached=against_one >= 1.8),
        ],
        ["two workers against two threads", f"{against_threads:.2f}", goal("0.9", reached=against_threads >= 0.9)],
        [f"all CPU against threads, {cost['cells']:,} cells", f"{cpu:.2f}", goal("1.3", reached=cpu <= 1.3)],
        [
            f"bytes moved, to {cost['shards'] / 1e6:.1f} MB of shards",
            f"{moved:.2f} times as many",
            goal("3", reached=moved <= 3),
        ],
        [
            f"bytes moved, to the {cost['padded'] / 1e6:.1f} MB that lie in the mailbox",
            f"{cost['moved'] / cost['padded']:.2f} times as many",
            "",
        ],
    ]
    return table(["measured", "found", "goal"], lines)


def growth(rows: list[Row]) -> str:
    """Return the slopes, and the plot."""
    lines = []
    for name, own in by_sampler(rows).items():
        cells = f"{own[0]['cells']:,} to {own[-1]['cells']:,}"
        line = [name, cells, f"{own[-1]['cpu_seconds'] / own[-1]['cells'] * 1e6:.2f}", f"{slope(own):.3f}"]
        lines.append([*line, f"{slope(own[-3:]):.3f}", goal(f"{SLOPE_GOAL}", reached=slope(own) <= SLOPE_GOAL)])
    draw_growth(rows)
    heads = ["sampler", "cells", "µs a cell at the end", "slope", "of the last decade", "goal"]
    return f"{table(heads, lines)}\n\n![CPU seconds against cells, both logarithmic](growth.svg)"


def goal(text: str, *, reached: bool) -> str:
    """Return a goal with what became of it."""
    return f"{text}: {'reached' if reached else 'missed'}"


def by_sampler(rows: list[Row]) -> dict[str, list[Row]]:
    """Return the rows of each sampler."""
    return {name: [row for row in rows if row["sampler"] == name] for name in {row["sampler"]: None for row in rows}}


def draw_growth(rows: list[Row]) -> None:
    """Draw CPU seconds against cells."""
    points, named = list[Row](), list[tuple[str, Row]]()
    for number, (name, own) in enumerate(by_sampler(rows).items()):
        called = f"{name}: slope {slope(own):.2f}, of the last decade {slope(own[-3:]):.2f}"
        points += [{"x": row["cells"], "y": row["cpu_seconds"], "of": called} for row in own]
        named.append((called, style(number)))
    axes = (
        log_axis("cells measured", [point["x"] for point in points]),
        log_axis("CPU seconds, one thread", [point["y"] for point in points]),
    )
    svg = chart([("", lines(points))], axes, named, "CPU seconds against cells, both logarithmic", 600)
    (HERE / "growth.svg").write_text(f"{svg}\n", encoding="utf-8")


def draw_rooms(rows: list[Row]) -> None:
    """Draw the share of each room in the thread seconds, a bar per run."""
    names = [f"{row['part']}, ε = {row['epsilon']:g}, {row['sampler']}" for row in rows]
    rooms = list({room: None for row in rows for room in row["rooms"]})
    looks = {room: {"c": style(number)["c"]} for number, room in enumerate(rooms)}
    bars = list[Row]()
    for at, row in enumerate(rows):
        ends = [0.0, *accumulate(100 * row["rooms"].get(room, 0) / sum(row["rooms"].values()) for room in rooms)]
        bars += [
            {"x": start, "x2": end, "y": at - 0.4, "y2": at + 0.4, "of": room}
            for room, (start, end) in zip(rooms, pairwise(ends), strict=True)
        ]
    runs = Scale("", (len(rows) - 0.5, -0.5), names)
    axes = linear_axis("% of thread seconds", [0, 100]), runs
    svg = chart(
        [("", [marks("rect", bars)])],
        axes,
        [*looks.items()],
        "Share of each stage in the thread seconds",
        800,
        high=30 * len(rows),
    )
    (HERE / "rooms.svg").write_text(f"{svg}\n", encoding="utf-8")


def measured(write: Callable[[list[Row]], str], *names: str) -> str:
    """Return a part of the page, and the machine; it says so where some of it was not measured."""
    found = [results for name in names if (results := load(name))]
    if len(found) < len(names):
        return NOT_MEASURED
    machines = {results["machine"]: None for results in found}
    return f"{write([row for results in found for row in results['rows']])}\n\nMeasured on {', '.join(machines)}."


def kept(page: str, before: str) -> str:
    """Return a page with the sections of the page before in place of those that were not measured here."""
    there = {section.partition("\n")[0]: section for section in before.split(SECTION)}
    sections = page.split(SECTION)
    return SECTION.join(
        there.get(section.partition("\n")[0], section).rstrip() + "\n" if NOT_MEASURED in section else section
        for section in sections
    )


def main() -> None:
    """Write the page; what was not measured here stays as it is."""
    page = PAGE.format(
        peers=measured(peers, "peers"),
        synthetic=measured(synthetic, "synthetic"),
        nation=measured(nation, "nation-municipality", "nation-section"),
        cores=measured(cores, "cores"),
        serial=measured(serial, "nation-section"),
        cluster=measured(cluster, "cluster_stage", "cluster_speed", "cluster_cost"),
        growth=measured(growth, "growth"),
    )
    path = HERE / "README.md"
    path.write_text(kept(page, path.read_text(encoding="utf-8")), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
