"""The figures that the paper's authors published, and ours, side by side.

The authors' figures come from TRELLIS_DATA, which contains `paper_figures/errors.csv` and `seconds.csv`: means over the runs in their
public repository, aidaLabDEI/TDA_hierarchical. We quote them as facts, and no file of theirs is part of Trellis.
"""

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

Row = dict[str, Any]

CLOSEST = "closest_"  # before the name of a set: the draw of it that is closest to the authors'
FIRST_COMPARED = 3  # above it a level has few cells: chance, and the number of a random tree's areas


@dataclass(frozen=True, slots=True)
class Theirs:
    """The authors' figures.

    Attributes:
        errors: by set, mechanism, ε and level, a row of errors.csv.
        seconds: by set, mechanism and ε.
    """

    errors: dict[tuple[str, str, float, int], Row] = field(default_factory=dict)
    seconds: dict[tuple[str, str, float], float] = field(default_factory=dict)


def theirs_of(folder: Path | None) -> Theirs:
    """Return the authors' figures that are in a folder; none where it is not there."""
    if folder is None or not (folder / "errors.csv").exists():
        return Theirs()
    with (folder / "errors.csv").open(encoding="utf-8") as file:
        errors = {
            (row["set"], row["mechanism"], float(row["epsilon"]), int(row["level"])): row
            for row in csv.DictReader(file)
        }
    with (folder / "seconds.csv").open(encoding="utf-8") as file:
        seconds = {
            (row["set"], row["mechanism"], float(row["epsilon"])): float(row["seconds_mean"])
            for row in csv.DictReader(file)
        }
    return Theirs(errors, seconds)


def theirs_at_hand() -> Theirs:
    """Return the authors' figures that TRELLIS_DATA holds, if any."""
    data = os.environ.get("TRELLIS_DATA")
    return theirs_of(Path(data) / "paper_figures" if data else None)


class SideBySide:
    """Ours and theirs.

    Attributes:
        theirs: the authors' figures.
        facts: of each set, the closest draws too, what it is.
        ours: by set, mechanism and ε, the means of our runs.
        sets: the six.
        epsilons: that were run.
    """

    def __init__(self, rows: Sequence[Row], theirs: Theirs) -> None:
        self.theirs = theirs
        self.facts = {row["set"]: row for row in rows if "mechanism" not in row}
        self.ours = {(row["set"], row["mechanism"], row["epsilon"]): row for row in rows if "mechanism" in row}
        self.sets = [of for of in self.facts if not of.startswith(CLOSEST)]
        self.epsilons = sorted({epsilon for _, _, epsilon in self.ours})

    def depth(self, of: str) -> int:
        """Return the finest level of a set."""
        return next(len(row["levels"]) for key, row in self.ours.items() if key[0] == of) - 1

    def our(self, of: str, mechanism: str, epsilon: float, level: int, measure: str = "max_absolute") -> float | None:
        """Return a mean of ours, None where it was not run."""
        row = self.ours.get((of, mechanism, epsilon))
        return row["levels"][level][measure]["mean"] if row else None

    def their(
        self, of: str, mechanism: str, epsilon: float, level: int, measure: str = "max_error_mean"
    ) -> float | None:
        """Return a mean of theirs, None where they have none."""
        row = self.theirs.errors.get((of.removeprefix(CLOSEST), mechanism, epsilon, level))
        return float(row[measure]) if row else None

    def ratio(
        self, sets: Iterable[str], mechanism: str, against: str, levels: Iterable[int] | None = None
    ) -> float | None:
        """Return the geometric mean of ours over theirs, over all ε that were run and some levels: left out, those from 3 on.

        Negative levels count from below, -1 the finest.
        """
        logs = []
        for of in sets:
            there = range(self.depth(of) + 1)
            for level in (there[k] for k in (levels or there[FIRST_COMPARED:])):
                for epsilon in self.epsilons:
                    ours, theirs = self.our(of, mechanism, epsilon, level), self.their(of, against, epsilon, level)
                    if ours and theirs:
                        logs.append(log(ours / theirs))
        return exp(fmean(logs)) if logs else None
