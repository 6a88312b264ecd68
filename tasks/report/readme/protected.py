"""What a release protects, what that means and what it costs, in words."""

from fractions import Fraction

from storage.releases.terms import Privacy
from tasks.format.manifest import Manifest
from tasks.laws.named import LAWS
from tasks.words.epsilon import format_right_guess
from tasks.words.numbers import format_probability, rounded_up


def protection(manifest: Manifest) -> str:
    """Return what the release protects, what that means and what it costs: three paragraphs of Markdown."""
    privacy = manifest.privacy
    return f"{_records(privacy)}\n{_promise(manifest)}\n\n{privacy.statement}\n\n{_cost(manifest)}"


def exact_levels(manifest: Manifest) -> list[int]:
    """Return the levels that are published exactly and that a unit could change; empty where only a public total is exact."""
    exact = [level.level for level in manifest.levels if not (level.sigma or level.summed or level.same_as is not None)]
    return exact if len(exact) > 1 or not manifest.privacy.exact_records_per_unit else []


def _records(privacy: Privacy) -> str:
    """Return how many records a unit has, and who ensures it."""
    many = privacy.max_records_per_unit
    bound = "exactly" if privacy.exact_records_per_unit else "at most"
    records = f"{bound} {many} record{'' if many == 1 else 's'}"
    distinct = f", in distinct cells of the level {privacy.distinct}" if privacy.distinct else ""
    who = (
        "Trellis left out all records beyond that" if privacy.bounded_by == "ingest" else "the data owner promises this"
    )
    return f"The privacy unit is {privacy.unit}. Each unit has {records} in the table{distinct}; {who}."


def _cost(manifest: Manifest) -> str:
    """Return what the noise costs, and how that is computed."""
    privacy, finest = manifest.privacy, manifest.finest_drawn
    if finest.epsilon and not finest.threshold:
        epsilon = rounded_up(float(sum(Fraction(entry.epsilon) for entry in manifest.parts)))
        levels, views = (sum(bool(entry.epsilon) for entry in of) for of in (manifest.levels, manifest.own_views))
        also = f" and {views} view{'s' if views > 1 else ''}" if views else ""
        each = "" if levels + views == 1 else f", shared among {levels} level{'s' if levels > 1 else ''}{also}"
        return f"The {LAWS[finest.mechanism].called} costs ε = {epsilon} in all{each}, and no δ.\nThis is within ε = {rounded_up(privacy.epsilon)} and {_delta(privacy)}.{_drawn(privacy)}"
    if finest.threshold:
        return (
            f"Noise of scale {finest.scale:.6g} and the threshold {finest.threshold:,} cost ε = {rounded_up(finest.epsilon)}"
            f" and δ = {finest.delta:.3g}.\nThis is within ε = {rounded_up(privacy.epsilon)} and {_delta(privacy)}."
        )
    return (
        f"The noise costs ρ = {rounded_up(privacy.rho)} (zero-concentrated differential privacy). By the accountant"
        f" {privacy.accountant}, this\nnoise gives ε = {rounded_up(privacy.epsilon)} and {_delta(privacy)}.{_drawn(privacy)}"
    )


def _delta(privacy: Privacy) -> str:
    return f"δ = {privacy.delta:g} ({format_probability(privacy.delta)})"


def _drawn(privacy: Privacy) -> str:
    """Return how far an inexact sampler may be from the stated noise."""
    if not privacy.tau:
        return ""
    return (
        f"\nThe sampler drew the noise from tables. Over everything that one unit can touch, the noise is within a total\n"
        f"variation distance of τ = {privacy.tau:.2g} of its stated distribution. The cost of this, (1 + e^ε) τ, is included in δ."
    )


def _promise(manifest: Manifest) -> str:
    """Return what the guarantee means to one unit or, where levels are published exactly, what it does not cover."""
    privacy = manifest.privacy
    if exact := exact_levels(manifest):
        levels = f"Levels {exact[0]} to {exact[-1]} are" if len(exact) > 1 else f"Level {exact[0]} is"
        their, those = ("their", "those") if len(exact) > 1 else ("its", "these")
        return (
            f"**{levels} published exactly. The release does not protect at all in which of {their} cells a unit is.**"
            f" It protects\nonly where the unit is within {those} cells."
        )
    its = "its record" if privacy.max_records_per_unit == 1 else "its records"
    doubt = (
        f"two possibilities for {its} equally likely"
        if privacy.neighbours == "substitution"
        else f"it equally likely that {its} {'is' if privacy.max_records_per_unit == 1 else 'are'} in the table and not"
    )
    return (
        "Whatever anyone knows about all other units, the guarantee limits what these tables tell them about a unit:\n"
        f"if they hold {doubt}, they guess right at most\n"
        f"{format_right_guess(privacy.epsilon, privacy.delta)} with these tables, and 50 of 100 times without (neighbours by"
        f" {privacy.neighbours})."
    )
