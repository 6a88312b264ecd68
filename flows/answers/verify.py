"""The check of a published folder from the folder alone: its files, and (ε, δ) against its noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from storage.releases.terms import SURVIVORS
from storage.tables import SIZE
from tasks.accounting.accountants import ACCOUNTANTS, PRIVACY_MAP, delta_left
from tasks.accounting.allocation import Measurement
from tasks.accounting.sensitivity import (
    SUBSTITUTION,
    Sensitivity,
    combined_sensitivity,
    joint_part_of,
    over_days,
    sensitivity_of,
)
from tasks.folder.export.formats import unread_files
from tasks.folder.verify.folder import verify
from tasks.format.entries import LevelEntry
from tasks.format.manifest import Manifest, published_manifest
from tasks.laws.law import Law, LevelCost
from tasks.mechanisms import MECHANISMS, mechanism_with
from tasks.pages.explorer.payload import explorer_failures
from tasks.released.sources.folder import PublishedFolder
from tasks.sizes.statistics import STATISTICS
from tasks.tree.ordered import ordered_axes
from tasks.unbiased.dense import NO_STRATEGIES, Strategies
from tasks.unbiased.precisions import charges_paths, path_part

_ROUNDED = 1e-9  # relative, of numbers that the manifest rounds to floats
_SLACK = 1 + 1e-6  # ρ is published as a float, and a newer version of an accountant may differ in the last digits


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether a published folder is whole, and what is wrong with it.

    Attributes:
        unread: files of which only the checksums were compared, each with the reason; None if there are none.
    """

    ok: bool
    failures: Sequence[str]
    unread: Sequence[str] | None = None


def verify_answer(folder: Path, workers: int | None = None) -> Verification:
    """Check a published folder by itself: no store, no codebook, no network. `workers` files are read at once, by default one per core."""
    # the explorer last: it shows what all other files say
    failures = verify(folder, workers) or _guarantee_failures(folder) or explorer_failures(folder)
    manifest = published_manifest(folder)
    return Verification(not failures, failures, (unread_files(manifest) if manifest else []) or None)


def _guarantee_failures(folder: Path) -> list[str]:
    """Return where a manifest's (ε, δ) does not follow from its noise, by the accountant that it names."""
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    privacy, recipe = manifest.privacy, MECHANISMS.get(manifest.mechanism)
    if recipe is None:
        return [f"manifest.json: there is no mechanism {manifest.mechanism}."]
    together, has_views = manifest.has_sources, manifest.has_sources or manifest.crosses or bool(manifest.own_views)
    recipe = mechanism_with(recipe, has_views=has_views, together=together, is_grid=manifest.is_grid)
    if set(manifest.waived) != recipe.waived:
        return [f"manifest.json: it waives other things than mechanism {recipe.name} does."]
    summed = {entry.level for entry in manifest.levels[:-1]} if recipe.adds_up_leaves else set()
    if not recipe.settles_whole_parts and {entry.level for entry in manifest.levels if entry.summed} != summed:
        return [f"manifest.json: mechanism {recipe.name} measures other levels."]
    if manifest.unlisted and not recipe.shows_codes:
        return [f"manifest.json: mechanism {recipe.name} does not accept codes that no codebook lists."]
    if manifest.measure != SURVIVORS and not recipe.chooses_cells:
        return [
            f"manifest.json: mechanism {recipe.name} measures no other cells than those below what survives, or always all."
        ]
    law = recipe.law_of(manifest.finest_drawn.mechanism)
    if law is None or {entry.mechanism for entry in manifest.parts if entry.rho or entry.epsilon} != {law.name}:
        names = " or only ".join(of.called for of in recipe.laws.values())
        return [f"manifest.json: mechanism {recipe.name} draws only {names}."]
    if (law not in recipe.laws.values()) != bool(manifest.days):
        return ["manifest.json: days must be stated where, and only where, sums of days were drawn."]
    if not law.costs_rho:
        return _failures_by_map(manifest, law)
    if any(entry.epsilon for entry in manifest.parts):
        return [f"manifest.json: {law.called} costs rho, and no epsilon of a level."]
    if privacy.accountant not in ACCOUNTANTS:
        return [f"manifest.json: there is no accountant {privacy.accountant}."]
    if privacy.accountant == "pld" and privacy.max_records_per_unit > 1:
        return ["manifest.json: accountant pld needs max_records_per_unit 1."]
    strategies = PublishedFolder(folder, manifest).strategies
    if privacy.accountant == "pld" and (strategies or manifest.days):
        return ["manifest.json: accountant pld does not know the law of combinations by a strategy."]
    if privacy.accountant == "pld" and manifest.cascades:
        return ["manifest.json: accountant pld does not know the noise of areas that cascade."]
    in_rho = [entry for entry in manifest.parts if entry.rho]
    if privacy.distinct is None and any(
        round(entry.l2_sensitivity**2) < _moved(manifest, entry, strategies).l2_squared for entry in in_rho
    ):
        return ["manifest.json: a unit can move some level further than its l2_sensitivity states."]
    if wrong := _wrong_sigmas(manifest, _path_part(folder, manifest)):
        return wrong
    measurements = [
        Measurement(
            Fraction(entry.rho),
            entry.scale or entry.sigma,
            round(entry.l2_sensitivity**2),
            is_total=privacy.neighbours == SUBSTITUTION and _is_root(entry) and not manifest.days,
        )
        for entry in manifest.parts
        if entry.rho
    ]
    if privacy.tau < _least_tau(manifest, law, strategies):
        return [f"manifest.json: its sampler {privacy.sampler} is further from its law than its tau states."]
    if measurements and privacy.tau:
        measurements[0] = replace(measurements[0], tau=Fraction(privacy.tau))
    if ACCOUNTANTS[privacy.accountant].holds(measurements, privacy.epsilon * _SLACK, privacy.delta * _SLACK):
        return []
    return ["manifest.json: its noise costs more than its epsilon and delta state."]


def _path_part(folder: Path, manifest: Manifest) -> float:
    """Return `path_part` of a release; 0 where the folder does not list the areas from which it follows."""
    opened = PublishedFolder(folder, manifest)
    distinct = manifest.privacy.distinct
    if not charges_paths(manifest.cascades, is_grid=manifest.is_grid, days=manifest.days, distinct=distinct):
        return 1.0
    if not opened.has_tree:
        return 0.0
    return float(
        path_part(
            opened.tree, [of.rho for of in manifest.parts], is_replaced=manifest.privacy.neighbours == SUBSTITUTION
        )
    )


def _wrong_sigmas(manifest: Manifest, path: float) -> list[str]:
    """Return which levels have a smaller σ than what all of them are charged together allows, or a larger one than each needs."""
    part = 1.0 if manifest.days else float(joint_part_of(manifest.parts, manifest.privacy.neighbours)) * path
    return [
        f"manifest.json: level {entry.level} has a sigma that does not follow from its rho and l2_sensitivity."
        for entry in manifest.parts
        if entry.rho
        and not part - _ROUNDED
        <= 2 * entry.rho * ((entry.scale or entry.sigma) / entry.l2_sensitivity) ** 2
        <= 1 + _ROUNDED
    ]


def _failures_by_map(manifest: Manifest, law: Law) -> list[str]:
    """Return where (ε, δ) does not follow from the scales and thresholds of the levels, by the law's own privacy map."""
    privacy = manifest.privacy
    if privacy.accountant != PRIVACY_MAP or any(entry.rho for entry in manifest.parts):
        return [f"manifest.json: {law.called} has no rho, and costs what its privacy map returns."]
    spent_epsilon = spent_delta = Fraction(0)
    part = float(joint_part_of(manifest.parts, privacy.neighbours))
    for entry in manifest.parts:
        if not entry.epsilon:
            continue
        name = f"level {entry.level}"
        moved = _moved(manifest, entry)
        try:
            cost = law.cost(entry.scale, entry.threshold, moved)
        except ValueError as fault:
            return [f"manifest.json: {fault}"]
        if not LevelCost(0, entry.epsilon * _SLACK / part, entry.delta * _SLACK).covers(cost):
            return [f"manifest.json: {name}: its scale and threshold cost more than its epsilon and delta state."]
        if not math.isclose(entry.sigma, law.deviation(entry.scale), rel_tol=1e-9):
            return [f"manifest.json: {name}: its sigma is not that of its scale."]
        spent_epsilon, spent_delta = spent_epsilon + Fraction(entry.epsilon), spent_delta + Fraction(entry.delta)
    if privacy.tau < _least_tau(manifest, law):
        return [f"manifest.json: its sampler {privacy.sampler} is further from its law than its tau states."]
    left = delta_left(privacy.delta, privacy.epsilon, Fraction(privacy.tau))
    if spent_epsilon > Fraction(privacy.epsilon) or spent_delta > Fraction(left):
        return ["manifest.json: its levels cost more than its epsilon and delta state."]
    return []


def _least_tau(manifest: Manifest, law: Law, strategies: Strategies = NO_STRATEGIES) -> float:
    """Return the τ of all cells that one unit can touch, by the sampler that a manifest names."""
    sampling = law.samplers.get(manifest.privacy.sampler)
    if sampling is None:
        return math.inf
    cells = (_moved(manifest, entry, strategies).cells for entry in manifest.parts if entry.rho or entry.epsilon)
    return float(sampling.tau * sum(cells))


def _moved(manifest: Manifest, entry: LevelEntry, strategies: Strategies = NO_STRATEGIES) -> Sensitivity:
    """Return how far one unit moves what was measured of a level or view, by strategies or not, without a promise of distinct records."""
    privacy, rows = manifest.privacy, [of.rows for of in strategies.values()]
    if rows:
        return combined_sensitivity(
            rows,
            privacy.neighbours,
            privacy.max_records_per_unit,
            total_is_public=privacy.exact_records_per_unit,
            nodes=entry.cells // math.prod(of.shape[1] for of in rows),
        )
    if manifest.counts_groups:
        regions = entry.cells // len(ordered_axes(manifest.spec)[SIZE].codes)
        return STATISTICS[manifest.measured_of_groups].sensitivity(
            privacy.neighbours, privacy.max_records_per_unit, regions
        )
    of_day = sensitivity_of(privacy.neighbours, privacy.max_records_per_unit, is_root=_is_root(entry))
    return over_days(of_day, manifest.days.weights, privacy.neighbours) if manifest.days else of_day


def _is_root(entry: LevelEntry) -> bool:
    """Return whether everything is in the one cell of a level or view."""
    return not any(entry.axes.values())
