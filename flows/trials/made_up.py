"""A made-up table in place of a confidential one, to compare mechanisms on before there is a public table. The confidential table stays closed."""

from dataclasses import replace

import numpy as np

from flows.planning.plan import Plan
from flows.specification.keys import Spec
from flows.trials.in_memory import PublicTable, public_table
from storage.errors import SpecError, UsageError
from tasks.ingest.task import listed_groups, read_ends
from tasks.pages.trial_results import MadeUp
from tasks.sizes.places import areas_of
from tasks.sizes.tables import tails_of
from tasks.synthesize.like import draw_like, draw_sizes_like

SKEW = 2.0  # σ of the logarithms of the leaves, unless another is asked for
_SEED = 1  # the same spec, total and skew give the same table


def made_up_of(spec: Spec, *, like: bool, total: int | None, skew: float | None) -> MadeUp | None:
    """Return how many records a made-up table has, and how skewed it is; None where the table of the spec is read.

    Raises:
        UsageError: the skew is out of range, nobody says how many records there are, or something is asked of a table that is read.
        SpecError: the codes of an axis come from the records, so that nobody knows its shape.
    """
    if not like:
        for option, given in (("--total", total), ("--skew", skew)):
            if given is not None:
                raise UsageError(f"{option} must be left out without --like, got {given}.", field=option)
        return None
    if spec.input.groups:
        for option, given in (("--total", total), ("--skew", skew)):
            if given is not None:
                rule = f"{option} must be left out where input.groups lists the groups, got {given}."
                raise UsageError(rule, field=option, hint="The public list says how many groups each region has.")
        return MadeUp()
    skew = SKEW if skew is None else skew
    if not 0 <= skew <= 6:
        raise UsageError(f"--skew must be from 0 to 6, got {skew:g}.", field="--skew")
    total = spec.expected_total if total is None else total
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
    return MadeUp(total, skew)


def made_up_table(plan: Plan, made_up: MadeUp) -> PublicTable:
    """Return a made-up table over the axes of a plan; nothing but the spec and public tables is read."""
    generator, tree = np.random.default_rng(_SEED), plan.tree
    total, skew = made_up.total or 0, made_up.skew or 0.0
    if plan.source.groups is None:
        areas, counts = draw_like(tree, total, skew, generator)
        return public_table(tree, areas, counts, plan.derived)
    listed = listed_groups(plan.source, read_ends(plan.source))
    sizes = draw_sizes_like(tree, plan.source.groups.largest, total, skew, generator, listed)
    tails = tails_of(sizes)
    if listed is not None:
        tails = np.column_stack((listed, tails))
    place, rank = np.nonzero(tails)
    areas = areas_of(tree, tree.axis_levels(tree.depth), place)
    return replace(public_table(tree, (*areas, rank), tails[place, rank]), groups=listed)
