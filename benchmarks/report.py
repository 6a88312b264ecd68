"""Write benchmarks/README.md, speed.md and its plots from the results of the benchmarks under build/bench/."""

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

INDEX = """\
# Benchmarks

This page lists what is measured, and by which command. `make bench` runs the first table, which takes about forty minutes on two cores, 6 GB of
memory and 10 GB of disk, and writes the pages, with long tables as CSV beside them. Do not edit these by hand.

| command | measures |
|---|---|
| `python benchmarks/peers.py` | Trellis beside the published package `inf-tda`: [speed.md](speed.md) |
| `python benchmarks/synthetic.py` | seconds on the paper's synthetic sets: [speed.md](speed.md) |
| `python benchmarks/nation.py` | a made-up nation of Italy's shape, and what of its release is serial (`serial.py`): [speed.md](speed.md) |
| `python benchmarks/cores.py`, `cluster.py`, `growth.py` | a second core, a cluster, seconds against cells: [speed.md](speed.md) |
| `python benchmarks/desk.py` | what each command takes: [desk.md](desk.md) |
| `python benchmarks/paper.py` | every mechanism beside the authors' figures: [paper.md](paper.md) |
| `python benchmarks/coverage.py` | intervals of fixed cells: [coverage.md](coverage.md) |
| `python benchmarks/rows.py` | intervals and marks of published rows: [rows.md](rows.md) |
| `python benchmarks/noise_rows.py` | what releases say of the share of noise rows: [noise_rows.md](noise_rows.md) |
| `python benchmarks/estimator.py` | how near to the truth the shrinking estimator is: [estimator.md](estimator.md) |
| `python benchmarks/intopt.py`, `sampler.py` | IntOpt beside a full sort; the two samplers ([proofs](../docs/proofs/sampler.md)) |
| `python benchmarks/rhode_island.py`, `large_plan.py`, `accountants.py` | numbers that the documents state |
| `python benchmarks/report.py` | nothing: it writes this page, speed.md and its plots |

Not part of `make bench`:

| command | measures |
|---|---|
| `python benchmarks/accuracy.py`, `rejected.py` | errors of mechanisms that walk a tree, and of ideas that were not kept ([accuracy.md](accuracy.md)) |
| `python benchmarks/crossing.py` | trips by mode and hour, by order and views: [crossing.md](crossing.md) |
| `python benchmarks/views.py` | what views give: [views.md](views.md) |
| `python benchmarks/group_sizes.py` | `group_sizes` beside the mechanisms of the paper |
| `python benchmarks/ranges.py` | exact variances of ranges, prefixes and nodes, beside the optimum |
| `python benchmarks/days.py` | days of a series that are measured together |
| `python benchmarks/laws.py` | Laplace noise beside Gaussian noise, on Rhode Island |
| `python benchmarks/largest_rho.py` | the accountant `pld` beside an exhaustive search |
| `python benchmarks/settling.py`, `settling_size.py` | other weights and rounding for views; memory and time of settling |
| `python benchmarks/growth.py --releases` | large releases from start to end, beside `inf-tda` |
| `python benchmarks/database.py`, `many_files.py` | reading ten million rows from PostgreSQL, and from 40 files |
| `python benchmarks/ten_billion.py` | what ten billion cells would take, on paper: [ten_billion.md](ten_billion.md) |
| `python benchmarks/report_picture.py` | nothing: it draws the pictures of [the gallery](../docs/gallery.md) |

`--help` lists the options. Seconds vary with the machine's other work; ratios of runs taken in turn vary less.
"""

PAGE = """\
# Speed

This page shows how fast Trellis is. `python benchmarks/report.py` writes it from the results of the last runs in `build/bench/`, and leaves sections without results as they are.
CPU seconds are the sum over all threads.

## Beside inf-tda

`inf-tda` 0.1 with OpenDP 0.12.1, and Trellis with each sampler, on a million cells in 3 levels of 100, of which 50,000 are non-zero. ε = 1, δ = 10⁻⁸,
accounted for by the lemma. Medians, in memory. Errors are the largest of each level, from coarse to fine.

{peers}

## The paper's synthetic sets

In memory, on one thread, with δ = 10⁻⁸ and the lemma's accounting. The paper's code took 181 s and 9.6 s for two of the sets, in one run on
another machine.

{synthetic}

## A nation of Italy's shape

The nation is made up: 20 regions, 110 provinces, 8,092 municipalities, 16,000 areas, 362,292 sections; 14.3 million flows, 31 million
people. Down to municipalities, computation alone is measured, in memory, with a thread per core and ρ by the lemma. Down to sections, it is
`trellis release` and `trellis verify`, from the Parquet file to the verified folder, with `run: {{max_memory: 1.5GB}}`. Memory is that of all processes.

{nation}

## Two cores

A tenth of that nation at ε = 10, down to sections: wall seconds of the branch stages with vault, draws, shards and seals, on one thread and on two, in turn.

{cores}

## What is serial

`python benchmarks/nation.py --part section --epsilon 10` measures that nation, and with `--share 0.1 --mechanism inftda_reconciled` a tenth
of it, and looks at the threads of a release without Prefect every four milliseconds. CPU seconds are serial where at most one thread
runs or waits for a core. *Limit* is Amdahl's: how many times faster any number of cores can make the release. Two cores are measured in wall seconds against one.

{serial}

## A cluster

`python benchmarks/cluster.py` starts a scheduler and workers of one thread each on this machine, under mutual TLS, with a folder as mailbox. It measures the CPU of an
order with nothing to draw, the wall seconds of branches with OpenDP's sampler, and all CPU of a release with the table, with the bytes that go through the mailbox.

{cluster}

## Growth

Made-up nations with a share of Italy's flows: all five levels at ε = 1, in memory, on one thread.

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
    (HERE / "README.md").write_text(INDEX, encoding="utf-8")
    path = HERE / "speed.md"
    path.write_text(kept(page, path.read_text(encoding="utf-8")), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
