"""The check of a published folder from the folder alone: its files, and (ε, δ) against its noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from flows.mechanisms import MECHANISMS
from flows.planning.guarantee import PRIVACY_MAP
from tasks.accounting.accountants import ACCOUNTANTS
from tasks.accounting.allocation import Measurement
from tasks.accounting.sensitivity import l2_sensitivity_squared, touched_cells
from tasks.format.manifest import LevelEntry, Manifest, Privacy
from tasks.laws.law import Law
from tasks.laws.thresholded import privacy_cost
from tasks.tree.views import AddUp
from tasks.verify.folder import verify

_SLACK = 1 + 1e-6  # ρ is published as a float, and a newer version of an accountant may differ in the last digits


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether a published folder is whole, and what is wrong with it."""

    ok: bool
    failures: Sequence[str]


def verify_answer(folder: Path) -> Verification:
    """Check a published folder by itself: no store, no codebook, no network."""
    failures = verify(folder) or _guarantee_failures(folder)
    return Verification(not failures, failures)


def _guarantee_failures(folder: Path) -> list[str]:
    """Return where a manifest's (ε, δ) does not follow from its noise, by the accountant that it names."""
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    privacy, recipe = manifest.privacy, MECHANISMS.get(manifest.mechanism)
    if recipe is None:
        return [f"manifest.json: there is no mechanism {manifest.mechanism}."]
    if set(manifest.waived) != recipe.waived:
        return [f"manifest.json: it waives other things than mechanism {recipe.name} does."]
    summed = {entry.level for entry in manifest.levels[:-1]} if isinstance(recipe.finish, AddUp) else set()
    if {entry.level for entry in manifest.levels if entry.summed} != summed:
        return [f"manifest.json: mechanism {recipe.name} measures other levels."]
    if manifest.unlisted and not recipe.shows_codes:
        return [f"manifest.json: mechanism {recipe.name} does not accept codes that no codebook lists."]
    law = recipe.law
    if {entry.mechanism for entry in manifest.levels if entry.rho or entry.epsilon} != {law.name}:
        return [f"manifest.json: mechanism {recipe.name} draws only {law.name.replace('_', ' ')} noise."]
    if law.keeps_some:
        return _threshold_failures(manifest, law)
    if any(entry.epsilon for entry in manifest.levels):
        return [f"manifest.json: {law.name.replace('_', ' ')} noise costs rho, and no epsilon of a level."]
    if privacy.accountant not in ACCOUNTANTS:
        return [f"manifest.json: there is no accountant {privacy.accountant}."]
    if privacy.accountant == "pld" and privacy.max_records_per_unit > 1:
        return ["manifest.json: accountant pld needs max_records_per_unit 1."]
    if privacy.distinct is None and any(_moves_further(privacy, entry) for entry in manifest.levels if entry.rho):
        return ["manifest.json: a unit can move some level further than its l2_sensitivity states."]
    measurements = [
        Measurement(Fraction(entry.rho), entry.sigma, round(entry.l2_sensitivity**2))
        for entry in manifest.levels
        if entry.rho
    ]
    if privacy.tau < _least_tau(manifest, law):
        return [f"manifest.json: its sampler {privacy.sampler} is further from its law than its tau states."]
    if measurements and privacy.tau:
        measurements[0] = replace(measurements[0], tau=Fraction(privacy.tau))
    if ACCOUNTANTS[privacy.accountant].holds(measurements, privacy.epsilon * _SLACK, privacy.delta * _SLACK):
        return []
    return ["manifest.json: its noise costs more than its epsilon and delta state."]


def _threshold_failures(manifest: Manifest, law: Law) -> list[str]:
    """Return where (ε, δ) of a thresholded histogram does not follow from its scale and its threshold."""
    privacy, finest = manifest.privacy, manifest.levels[-1]
    if privacy.accountant != PRIVACY_MAP or any(entry.rho for entry in manifest.levels):
        return ["manifest.json: a thresholded histogram has no rho, and costs what its privacy map returns."]
    try:
        epsilon, delta = privacy_cost(privacy.neighbours, privacy.max_records_per_unit, finest.scale, finest.threshold)
    except ValueError as fault:
        return [f"manifest.json: {fault}"]
    if not (finest.epsilon <= privacy.epsilon and finest.delta <= privacy.delta):
        return ["manifest.json: its finest level costs more than its epsilon and delta state."]
    if not (epsilon <= finest.epsilon * _SLACK and delta <= finest.delta * _SLACK):
        return ["manifest.json: its scale and threshold cost more than its epsilon and delta state."]
    if not math.isclose(finest.sigma, law.deviation(finest.scale), rel_tol=1e-9):
        return ["manifest.json: the sigma of its finest level is not that of its scale."]
    return []


def _least_tau(manifest: Manifest, law: Law) -> float:
    """Return the τ of all cells that one unit can touch, by the sampler that a manifest names."""
    privacy, sampling = manifest.privacy, law.samplers.get(manifest.privacy.sampler)
    if sampling is None:
        return math.inf
    cells = (
        touched_cells(privacy.neighbours, privacy.max_records_per_unit, is_root=entry.level == 0)
        for entry in manifest.levels
        if entry.rho
    )
    return float(sampling.tau * sum(cells))


def _moves_further(privacy: Privacy, entry: LevelEntry) -> bool:
    is_root = entry.level == 0
    square = l2_sensitivity_squared(privacy.neighbours, privacy.max_records_per_unit, is_root=is_root)
    return round(entry.l2_sensitivity**2) < square
