"""Draws a synthetic nation with as many areas and flows as Italy: sections in five levels, and flows between them."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from tasks.synthesize.areas import Country, at_least, draw_parents, extend_codes
from tasks.tree.axis import IntArray

LEVELS = ("region", "province", "municipality", "area", "section")
ITALY = (20, 110, 8_092, 16_000, 362_292)  # areas of each level
DIGITS = (2, 2, 3, 3, 3)  # the least number of digits that a level adds to the code of the area above
CHILDREN_SIGMAS = (0.5, 0.5, 0.5, 1.5, 0.85)  # σ of the lognormal weights: a city has 100 areas, an area 500 sections
RESIDENTS_SIGMA = 0.7  # σ of the lognormal sizes of sections, by residents
JOBS_SIGMA = 1.2  # and by jobs, which are more concentrated
PEOPLE_SIGMA = 1.0  # σ of the lognormal weights by which flows get more than one person
CLOSENESS = {"municipality": 2 / 3, "province": 0.22, "region": 0.08, "nation": 1 - 2 / 3 - 0.3}  # shares of people
LARGEST_SIZE = 2**20  # of a section, in residents or jobs of the model; the median is a thousand
CHUNK = 1_000_000  # people drawn at a time, which bounds memory


def draw_nation(*, areas=ITALY, flows=14_300_000, people=31_000_000, generator):
    """Return a nation with exactly the given numbers of areas per level, flows (pairs of sections with people) and people.

    Two thirds of the people work in the municipality where they live, and most others near it. Most flows have one person.
    Uses at most about 200 bytes of memory per flow.

    Args:
        areas: the number for each of `LEVELS`, coarse to fine; at least one, and at least that of the level above.
        flows: at least one; at most a tenth of the pairs of sections, or a single one.
        people: at least one per flow.
        generator: the random generator; equal states draw equal nations.
    Raises:
        ValueError: an argument breaks its rule.
    """
    if len(areas) != len(LEVELS):
        raise ValueError(f"areas must be {len(LEVELS)} numbers, one per level, got {len(areas)}.")
    at_least("areas[0]", areas[0], 1, "1")
    for number, (least, count) in enumerate(pairwise(areas), start=1):
        at_least(f"areas[{number}]", count, least, f"{LEVELS[number - 1]} areas, {least}")
    at_least("flows", flows, 1, "1")
    at_least("people", people, flows, f"flows, {flows}")
    most = max(areas[-1] ** 2 // 10, 1)
    if flows > most:
        raise ValueError(f"flows must be <= a tenth of the pairs of {LEVELS[-1]}s, {most}, got {flows}.")

    path, parents = [pl.Series("nation", [""])], []  # of codes, from the nation down to the level
    for above, count, level, digits, sigma in zip((1, *areas), areas, LEVELS, DIGITS, CHILDREN_SIGMAS, strict=False):
        parents.append(draw_parents(above, count, sigma, generator))
        path = extend_codes(path, level, parents[-1], digits)
    pairs, trips = _draw_flows(_draw_rings(parents, generator), areas[-1], flows, people, generator)
    home, work = np.divmod(pairs, areas[-1])
    table = {"home": path[-1].gather(home), "work": path[-1].gather(work), "people": trips}
    return Country(pl.DataFrame(path[1:]), pl.DataFrame(table))


@dataclass(frozen=True, slots=True, eq=False)
class _Rings:
    """Rings of jobs around each section, its municipality, province, region and nation: ranges of jobs, numbered from 0, with the next smaller as a hole."""

    first_job: IntArray  # the first job of each section, and the number of all jobs, int64, shape (sections + 1,)
    low: IntArray  # the first job of the ring, or of the next smaller ring if it is empty, shape (rings, sections); all below too
    jobs: IntArray  # the number of jobs in the ring, without the hole, > 0
    hole_at: IntArray  # the number of jobs in the ring before the hole
    hole: IntArray  # the number of jobs in the hole


def _draw_rings(parents, generator):
    """Return the rings around each section, with random numbers of jobs per section."""
    first_job = _draw_first(len(parents[-1]), JOBS_SIGMA, generator)
    around = np.arange(len(parents[-1]))
    low, hole = first_job[:-1], np.zeros_like(around)
    rings = []
    for level, parent in zip(reversed(("nation", *LEVELS[:-1])), reversed(parents), strict=True):
        around = parent[around]
        if level not in CLOSENESS:
            continue
        begin, end = (np.searchsorted(around, around, side=side) for side in ("left", "right"))
        inner, low = low, first_job[begin]
        ring = (low, first_job[end] - low - hole, inner - low, hole)
        hole = first_job[end] - low
        empty = ring[1] == 0
        rings.append(tuple(np.where(empty, *both) for both in zip(rings[-1], ring, strict=True)) if rings else ring)
    return _Rings(first_job, *(np.stack(part) for part in zip(*rings, strict=True)))


def _draw_flows(rings, sections, flows, people, generator):
    """Return exactly `flows` distinct pairs, home * sections + work, ascending, and their people, >= 1 each, whose shares are those of `CLOSENESS`."""
    first_resident = _draw_first(sections, RESIDENTS_SIGMA, generator)
    drawn = pairs = times = np.zeros(0, dtype=np.int64)
    while len(pairs) < flows:
        more = flows - len(pairs) + flows // 8
        chunks = [min(CHUNK, more - begun) for begun in range(0, more, CHUNK)]
        drawn = np.concatenate([drawn, *(_draw_pairs(rings, first_resident, chunk, generator) for chunk in chunks)])
        pairs, times = np.unique(drawn, return_counts=True)
    kept = np.sort(generator.permutation(len(pairs))[:flows])
    pairs, times = pairs[kept], times[kept]
    lacking = np.maximum(times * (people / times.sum()) - 1, np.finfo(np.float64).tiny)
    lacking *= generator.lognormal(sigma=PEOPLE_SIGMA, size=flows)
    others = np.searchsorted(np.cumsum(lacking / lacking.sum())[:-1], np.sort(generator.random(people - flows)))
    return pairs, 1 + np.bincount(others, minlength=flows)


def _draw_pairs(rings, first_resident, people, generator):
    """Return home * sections + work for each of `people` people."""
    home = np.searchsorted(first_resident, generator.integers(first_resident[-1], size=people), side="right") - 1
    ring = generator.choice(len(rings.low), size=people, p=list(CLOSENESS.values()))
    job = generator.integers(rings.jobs[ring, home])
    job += rings.low[ring, home] + np.where(job >= rings.hole_at[ring, home], rings.hole[ring, home], 0)
    work = np.searchsorted(rings.first_job, job, side="right") - 1
    return home * (len(first_resident) - 1) + work


def _draw_first(sections, sigma, generator):
    """Return the number of each section's first resident or job, and the total; sizes are lognormal and at least 1."""
    sizes = 1 + np.minimum(1000 * generator.lognormal(sigma=sigma, size=sections), LARGEST_SIZE).astype(np.int64)
    return np.concatenate(([0], np.cumsum(sizes)))
