"""What a comparison comes to: which mechanism has the least error in leaves, margins and ranges, and by how much, in two sentences."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import fmean, variance
from types import MappingProxyType

import polars as pl

from flows.trials.contestants import Contestant
from flows.trials.measures import AskedUtility, of_leaves
from tasks.pages.trial_results import Lead, MechanismResult, Verdict
from tasks.unbiased.workloads import RANGES
from tasks.validate.sums import SUMS

LEAVES = "leaves"
NO_RANGES = MappingProxyType[str, float]({})
_CLEAR = 2  # standard errors
_ALIKE = 0.995  # of errors, from where on one is not said to be less than another

Scores = Mapping[str, Mapping[str, Sequence[float]]]  # by question and mechanism, the error of every run


def verdicts(
    entries: Sequence[Contestant],
    utilities: Sequence[AskedUtility],
    rows: pl.DataFrame,
    runs: int,
    results: Sequence[MechanismResult],
) -> list[Verdict]:
    """Return the verdict at every ε of a comparison, given the rows of its trials and what is known of its mechanisms."""
    leaves = of_leaves(rows)
    questions = {LEAVES: ["l1"]} | {of.name: [*of.columns.values()] for of in utilities if of.name in SUMS}
    found = []
    for epsilon in dict.fromkeys(entry.epsilon for entry in entries):
        of_epsilon = leaves.filter(epsilon=epsilon)
        scores: dict[str, dict[str, Sequence[float]]] = {}
        for question, columns in questions.items():
            means = of_epsilon.select("mechanism", score=pl.mean_horizontal(columns)).drop_nulls("score")
            scores[question] = {
                str(name): of["score"].to_list() for (name,), of in means.group_by("mechanism", maintain_order=True)
            }
        releasing = {entry.name for entry in entries if entry.makes_releases}
        at = [of for of in results if of.epsilon == epsilon]
        exact = {of.mechanism: of.deviations[RANGES] for of in at if RANGES in of.deviations}
        gaps = {of.mechanism: gap for of in at if of.of_ranges and (gap := of.of_ranges[RANGES].gap) is not None}
        found.append(verdict_of(epsilon, scores, releasing, runs, exact, gaps))
    return found


def verdict_of(
    epsilon: float,
    scores: Scores,
    releasing: set[str],
    runs: int,
    exact: Mapping[str, float] = NO_RANGES,
    gaps: Mapping[str, float] = NO_RANGES,
) -> Verdict:
    """Return the verdict of errors, of which smaller is better; it names no difference that the runs do not tell from chance.

    Args:
        releasing: the mechanisms by which a release can be made.
        exact: by mechanism, the standard deviation of its ranges from the noise alone. Where it is known of all, it decides on ranges.
        gaps: by mechanism, by which part the mean variance of its ranges exceeds the bound, where one is known.
    """
    leads = {question: lead_of(of, releasing) for question, of in scores.items() if of}
    tried = {name for of in scores.values() for name in of}
    of_noise = lead_of({name: [of] for name, of in exact.items()}, releasing) if exact.keys() & releasing else None
    in_ranges = scores.get(RANGES, {}).keys()
    by_noise = of_noise is not None and of_noise.best in in_ranges and in_ranges <= exact.keys()
    if of_noise and by_noise:
        leads[RANGES] = replace(of_noise, is_clear=bool(_share(of_noise)))
    at = f"At ε = {epsilon:g}"
    if len(tried) < 2:
        text = f"{at}, only {min(tried)} was tried, so nothing is best. Name others with --mechanisms."
    else:
        of_runs = {question: lead for question, lead in leads.items() if not (by_noise and question == RANGES)}
        named = {question: lead for question, lead in of_runs.items() if lead.is_clear or not lead.next}
        remarks = [*_remarks(scores, leads, of_runs, releasing, runs)]
        every = f"every lead is more than two standard errors of the {runs} runs, and hardly chance"
        second = "; ".join(remarks) if remarks else every
        text = (
            f"{at}, {_who_leads(named)}. {second[:1].upper()}{second[1:]}." if named else f"{at}, {'; '.join(remarks)}."
        )
    return Verdict(
        epsilon, leads, f"{text} {_of_ranges(of_noise, exact, gaps.get(of_noise.best))}" if of_noise else text
    )


def _of_ranges(lead: Lead, exact: Mapping[str, float], gap: float | None) -> str:
    """Return a sentence on the mechanism whose ranges are the most exact by the noise alone."""
    bound = (
        ""
        if gap is None
        else f"; its mean variance is {gap:.1%} above the bound for any linear mechanism with Gaussian noise"
    )
    return (
        f"By the noise alone, of the unbiased mechanisms {lead.best} has the least standard deviation of a range,"
        f" {exact[lead.best]:,.3g} in the mean of squares{_share(lead)}{bound}."
    )


def lead_of(scores: Mapping[str, Sequence[float]], releasing: set[str]) -> Lead:
    """Return who has the least mean error of all by which a release can be made, or of all where it can by none."""
    able = [name for name in scores if name in releasing] or [*scores]
    best, *others = sorted(able, key=lambda name: fmean(scores[name]))
    if not others:
        return Lead(best, None, None, is_clear=False)
    own, beside = scores[best], scores[others[0]]
    ratio = fmean(own) / fmean(beside) if fmean(beside) else None
    return Lead(best, others[0], ratio, is_clear=_is_less(own, beside))


def _is_less(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether the errors of one mechanism are less than another's by more than chance explains."""
    if min(len(one), len(other)) < 2:
        return False
    error = math.sqrt(variance(one) / len(one) + variance(other) / len(other))
    return fmean(other) - fmean(one) > _CLEAR * error


def _who_leads(leads: Mapping[str, Lead]) -> str:
    """Return a clause on every mechanism that leads in something."""
    clauses = list[str]()
    ordered = sorted(leads.items(), key=lambda of: [lead.best for lead in leads.values()].index(of[1].best))
    for best, of_best in groupby(ordered, key=lambda of: of[1].best):
        shares = [f"in {question}{_share(lead)}" for question, lead in of_best]
        clauses.append(f"{best} {'' if clauses else 'has the least error '}{_series(shares)}")
    return ", and ".join(clauses)


def _share(lead: Lead) -> str:
    return f" ({1 - lead.ratio:.0%} less than {lead.next})" if lead.ratio is not None and lead.ratio < _ALIKE else ""


def _remarks(
    scores: Scores, leads: Mapping[str, Lead], of_runs: Mapping[str, Lead], releasing: set[str], runs: int
) -> Iterator[str]:
    """Yield what limits the leads: chance, what the first of the winners loses elsewhere, and what would be better but makes no release."""
    close = dict[str, list[str]]()
    for question, lead in of_runs.items():
        if lead.next and not lead.is_clear:
            close.setdefault(_series(sorted([lead.best, lead.next])), []).append(question)
    if close and runs == 1:
        yield "one run does not tell a lead from chance"
    elif close:
        pairs = [f"{pair} apart in {_series(questions)}" for pair, questions in close.items()]
        yield f"the {runs} runs do not tell {', nor '.join(pairs)}: the differences are within two standard errors"
    winner, *_ = (lead.best for lead in leads.values())
    for question, lead in leads.items():
        own, best = scores[question].get(winner), scores[question][lead.best]
        if own and lead.best != winner and fmean(best) and _is_less(best, own):
            yield f"in {question} {winner} has {fmean(own) / fmean(best):.1f} times the least error"
    beyond = dict[str, list[str]]()
    for question, lead in leads.items():
        others = [name for name in scores[question] if name not in releasing and lead.best in releasing]
        better = [name for name in others if _is_less(scores[question][name], scores[question][lead.best])]
        if better:
            beyond.setdefault(_series(better), []).append(question)
    for place, (who, of) in enumerate(beyond.items()):
        yield f"{'nor' if place else 'no release is made'} by {who}, which would have less error in {_series(of)}"


def _series(parts: Sequence[str]) -> str:
    *before, last = parts
    return f"{', '.join(before)} and {last}" if before else last
