"""A made-up table in place of a confidential one, to compare mechanisms on before there is a public table. The confidential table stays closed."""

from dataclasses import dataclass, replace

import numpy as np

from flows.planning.plan import Plan
from flows.trials.in_memory import PublicTable, public_table
from storage.errors import SpecError, UsageError
from tasks.ingest.groups import read_listed
from tasks.ingest.task import read_ends
from tasks.pages.trial_results import MadeUp
from tasks.sizes.tables import tails_of
from tasks.sizes.task import region_axis
from tasks.synthesize.like import draw_like, draw_sizes_like

SKEW = 2.0  # σ of the logarithms of the leaves, unless another is asked for
_SEED = 1  # the same spec, total and skew give the same table


@dataclass(frozen=True, slots=True)
class Like:
    """What a made-up table is asked to be like, beside the spec.

    Attributes:
        total: of records; None for the spec's `expected_total`.
        skew: σ of the logarithms of what leaves expect.
    """

    total: int | None = None
    skew: float = SKEW


def like_of(*, like: bool, total: int | None, skew: float | None) -> Like | None:
    """Return what a made-up table is asked to be like; None where the table of the spec is read.

    Raises:
        UsageError: something is asked of a made-up table, and there is none.
    """
    if like:
        return Like(total, SKEW if skew is None else skew)
    for option, given in (("--total", total), ("--skew", skew)):
        if given is not None:
            raise UsageError(f"{option} must be left out without --like, got {given}.", field=option)
    return None


def made_up_of(plan: Plan, like: Like) -> MadeUp:
    """Return how many records a made-up table has, and how skewed it is.

    Raises:
        UsageError: the skew is out of range, or nobody says how many records there are.
        SpecError: the codes of an axis come from the records, so that nobody knows its shape.
    """
    spec = plan.file.spec
    if not 0 <= like.skew <= 6:
        raise UsageError(f"--skew must be from 0 to 6, got {like.skew:g}.", field="--skew")
    total = spec.expected_total if like.total is None else like.total
    if total is None:
        raise UsageError(
            "--total must be given, since the spec has no expected_total.",
            field="--total",
            hint="Give about as many records as the table has, as far as that may be known, such as --total 200000.",
        )
    if not 1 <= total <= 10**9:
        raise UsageError(f"--total must be from 1 to 1,000,000,000, got {total:,}.", field="--total")
    for axis in spec.unlisted:
        raise SpecError(
            f"hierarchy.{axis} must have a codebook for --like: otherwise its codes come from the records, which stay closed.",
            field=f"hierarchy.{axis}",
            hint="Name a table of all codes, or list them.",
        )
    return MadeUp(total, like.skew)


def made_up_table(plan: Plan, made_up: MadeUp) -> PublicTable:
    """Return a made-up table over the axes of a plan; nothing but the spec and public tables is read."""
    generator, tree = np.random.default_rng(_SEED), plan.tree
    if plan.source.groups is None:
        areas, counts = draw_like(tree, made_up.total, made_up.skew, generator)
        return public_table(tree, areas, counts, plan.derived)
    listed = None
    if plan.source.groups.listed:
        _, listed = read_listed(plan.source.groups.listed, read_ends(plan.source)[0])
    region = region_axis(tree)
    sizes = draw_sizes_like(
        tree.axes[region],
        tree.axis_levels(tree.depth)[region],
        plan.source.groups.largest,
        made_up.total,
        made_up.skew,
        generator,
        listed,
    )
    tails = tails_of(sizes)
    if listed is not None:
        tails = np.column_stack((listed, tails))
    places = np.nonzero(tails)
    return replace(public_table(tree, places, tails[places]), groups=listed)
