"""The plan of a release as one page, for somebody who decides about it and is no statistician: to read, to sign, and to keep."""

from html import escape
from pathlib import Path

from flows.forecast.answer import plan_answer
from flows.forecast.page_sections import (
    PageFacts,
    budget_section,
    epsilon_section,
    protection_section,
    published_section,
    worth_section,
)
from flows.forecast.values import Forecast
from flows.forecast.worth import further_releases, left_around, worth_at_three
from flows.planning.budget import agreed_terms
from flows.planning.plan import Plan
from storage.database.connections import store
from storage.errors import UsageError, disk_fault
from storage.ledger.events import read_books
from storage.machine.files import beside, short_hash
from storage.releases.approvals import ELEMENT, approval_json
from tasks.report.frame import page, table
from tasks.words.epsilon import format_right_guess
from tasks.words.levels import in_short, place
from tasks.words.numbers import format_cells, rounded_down, rounded_up

_STYLE = """:root { --ink: #1a1a1a; --soft: #444; --line: #b8c4cc; --accent: #1b4965; --ground: #fff; --note: #eef3f6; --warn: #faf3ee; --edge: #8a3b12 }
body { color: var(--ink); background: var(--ground) }
h1 { margin: .2rem 0 }
h2 { margin: 2.5rem 0 .5rem; border-bottom: 2px solid var(--accent); color: var(--accent); padding-bottom: .2rem }
h3 { margin: 1.2rem 0 .2rem; font-size: 1.05rem }
code { font-size: .9em; overflow-wrap: anywhere }
pre { background: var(--note); padding: .7rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere }
.kind { margin: 0; color: var(--accent); font-weight: 600; letter-spacing: .02em }
.id { margin: 0 0 1rem; color: var(--soft); overflow-wrap: anywhere }
.lead { font-size: 1.15rem }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem; margin: 1.5rem 0; padding: 0 }
.cards > div { border: 1px solid var(--line); border-top: 4px solid var(--accent); border-radius: 4px; padding: .6rem .8rem }
.cards dt, .cards dd { margin: 0; font-size: .85rem; color: var(--soft) }
.cards dd:first-of-type { font-size: 1.5rem; font-weight: 650; line-height: 1.3; color: var(--ink) }
.notice, .warning { border-left: 6px solid var(--accent); background: var(--note); padding: .7rem 1rem; margin: 1rem 0 }
.warning { border-left: 6px double var(--edge); background: var(--warn) }
.notice > p, .warning > p { margin: .2rem 0 }
li { margin-bottom: .4rem }
table { margin: .5rem 0 1rem }
.scroll { background: linear-gradient(90deg, var(--ground) 30%, transparent) 0 0 / 3rem 100% no-repeat local,
    linear-gradient(270deg, var(--ground) 30%, transparent) 100% 0 / 3rem 100% no-repeat local,
    linear-gradient(90deg, #0006, #0000) 0 0 / .9rem 100% no-repeat scroll,
    linear-gradient(270deg, #0006, #0000) 100% 0 / .9rem 100% no-repeat scroll }
caption { white-space: normal }
th { vertical-align: bottom; white-space: normal }
th, td { border-color: var(--line) }
th[scope=row] { font-weight: 400; text-align: left; vertical-align: top }
.levels th:nth-child(2), .levels td:nth-child(2), .hashes td, .hashes th, .money th:last-child, .money td:last-child,
.words th:last-child, .words td:last-child { text-align: left; white-space: normal }
.money td:last-child { white-space: normal }
@media screen and (max-width: 40rem) {
  table { font-size: .8125rem }
  .levels td:nth-child(2) { min-width: 5rem }
  .three td:nth-child(2) { min-width: 4rem }
  table:not(.levels) td { white-space: normal }
}
.levels td:nth-child(2) { white-space: normal; min-width: 9rem }
.hashes td { white-space: normal; overflow-wrap: anywhere }
.hashes code { font-size: .8rem }
.planned { font-weight: 650 }
.sign { border: 2px solid var(--ink); border-radius: 4px; padding: .6rem 1rem 1.2rem; margin: 1.5rem 0; break-inside: avoid }
.sign h3 { margin-top: 0 }
.sign dl { display: grid; grid-template-columns: max-content 1fr; gap: .4rem 1rem; margin: 1rem 0 0; align-items: end }
.sign dd { margin: 0; border-bottom: 1px solid var(--ink); min-height: 2.2rem }
.sign dd.is { border: 0; min-height: 0; font-family: ui-monospace, monospace; overflow-wrap: anywhere }
.full { font-size: .8rem }
.box { display: inline-block; width: .9em; height: .9em; border: 1.5px solid currentColor; margin: 0 .3em 0 0; vertical-align: -.1em }
.box + span { margin-right: 1.5rem }
footer { margin-top: 3rem; color: var(--soft); font-size: .875rem; border-top: 1px solid var(--line) }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e8e6e3; --soft: #b9bdc1; --line: #48545c; --accent: #8fc1e3; --ground: #14181b; --note: #1e272d; --warn: #2e221b; --edge: #e0915f;
    color-scheme: dark }
}
@page { margin: 14mm }
@media print {
  body { font-size: 10.5pt; padding: 0 }
  .cards > div, .notice, .warning { print-color-adjust: exact; break-inside: avoid }
  .cards { grid-template-columns: repeat(4, 1fr) }
  .cards dd:first-of-type { font-size: 1.2rem }
  .scroll { overflow: visible; background: none }
  table { font-size: 8pt; break-inside: auto }
  th, td { padding: .15rem .3rem; white-space: normal }
  tr { break-inside: avoid }
  h2, h3 { break-after: avoid }
}
"""

_BODY = """<header>
<p class="kind">Plan of a release, for the person who decides</p>
<h1>{name}</h1>
<p class="id">Dataset {dataset}. Made {made} by Trellis {version}. Fingerprint {short}.</p>
</header>
<main>
{inside}
<p class="lead">{sentence}</p>
{cards}
{warnings}
<h2>What will be published</h2>
{published}
<h2>What the numbers will be worth</h2>
{worth}
<h2>What ε means</h2>
{epsilon}
<h2>What is protected, and what is not</h2>
{protection}
<h2>What it costs of the budget</h2>
{budget}
<h2>How to approve</h2>
{approve}
<h2>What exactly was planned</h2>
{planned}
</main>
<footer><p>Nothing was measured, reserved or spent for this page, and Trellis did not read the confidential table. The page needs no
network.</p></footer>
<script type="application/json" id="{element}">{approval}</script>"""


def plan_page(plan: Plan, forecast: Forecast | None = None) -> str:
    """Return the page of a plan. It is for use inside the office: it may show a guess of the total, which is not published.

    Args:
        plan: the plan.
        forecast: of the plan; made anew if left out.
    """
    forecast = forecast or plan_answer(plan)
    facts = _facts(plan, forecast)
    approval = forecast.approval
    body = _BODY.format(
        name=escape(forecast.name),
        dataset=escape(forecast.dataset),
        made=escape(approval.made),
        version=escape(approval.trellis),
        short=short_hash(approval.fingerprint),
        inside=_inside(forecast),
        sentence=_sentence(facts),
        cards=_cards(facts),
        warnings=_warnings(facts),
        published=published_section(facts),
        worth=worth_section(facts),
        epsilon=epsilon_section(facts),
        protection=protection_section(facts),
        budget=budget_section(facts),
        approve=_approve(facts),
        planned=_planned(facts),
        element=ELEMENT,
        approval=approval_json(approval),
    )
    return page(f"{forecast.name}: plan", body, _STYLE, closed=True)


def write_plan_page(path: Path, plan: Plan, forecast: Forecast) -> None:
    """Write the page of a plan to a file; it replaces an earlier one.

    Raises:
        UsageError: the file cannot be written.
    """
    text = plan_page(plan, forecast)
    try:
        with beside(path.absolute()) as file:
            file.write(text.encode())
    except OSError as fault:
        raise disk_fault(fault, "--html", str(path.parent)) or UsageError(
            f"--html: {path} cannot be written ({fault.strerror}).", field="--html", hint="Name another file."
        ) from None


def _facts(plan: Plan, forecast: Forecast) -> PageFacts:
    with store() as con:
        books = read_books(con)
    terms = agreed_terms(books, plan.asked())
    account = books.accounts.get(terms.dataset)
    before = account.spendings if account else []
    typical = forecast.typical
    return PageFacts(
        plan=plan,
        forecast=forecast,
        worth=worth_at_three(plan, before, terms.cap, typical.total if typical else None),
        further=further_releases(plan.guarantee.spending, before, terms.cap),
        left=left_around(plan.guarantee.spending, before, terms.cap),
    )


def _inside(forecast: Forecast) -> str:
    guess = (
        " It shows a guess of the number of records, which a release does not publish."
        if forecast.typical and forecast.typical.from_ == "expected_total"
        else ""
    )
    return f'<div class="notice"><p><b>For use inside the office.</b> This page is not part of what is published.{guess}</p></div>'


def _sentence(facts: PageFacts) -> str:
    """Return what would be published of which table, who is protected, and what that costs, in a few sentences."""
    forecast, spec = facts.forecast, facts.plan.file.spec
    finest, levels = forecast.levels[-1], len(forecast.levels)
    axes = (
        " and ".join(forecast.levels[0].axes)
        if len(forecast.levels[0].axes) == 2
        else in_short([*forecast.levels[0].axes])
    )
    many = len(forecast.views)
    views = f", and {many} grouping{'' if many == 1 else 's'} beside them" if many else ""
    counted = "Groups counted by size" if facts.plan.scheme.sizes else "Records counted"
    cap, after = forecast.budget.cap, facts.planned.after
    cost = (
        f"It would be refused: with it, ε = {rounded_up(after, 4)} would be spent, and the cap is {cap.epsilon:g}."
        if not facts.planned.fits
        else f"Of a budget of ε = {cap.epsilon:g}, ε = {rounded_up(forecast.budget.before.epsilon, 4)} is spent before it and"
        f" ε = {rounded_up(after, 4)} with it."
    )
    return (
        f"{counted} from the table <b>{escape(facts.table)}</b> (dataset {escape(forecast.dataset)}), by {escape(axes)}, would be"
        f" published in {levels} tables from the total down to the finest level ({escape(place(finest.axes)) or 'everything'}){views}."
        f" Each count gets noise on purpose, to limit what the tables reveal about <b>{escape(spec.privacy.unit)}</b>, however"
        f" much somebody knows already{_guess(facts)}. {cost}"
    )


def _guess(facts: PageFacts) -> str:
    """Return how often somebody guesses right at most; nothing where levels are exact, which limits the claim."""
    if facts.plan.exact_by_choice:
        return ""
    of_100 = format_right_guess(facts.forecast.epsilon, facts.forecast.delta)
    return f": between two equally likely possibilities they guess right at most {of_100}, instead of 50"


def _cards(facts: PageFacts) -> str:
    forecast, cap = facts.forecast, facts.forecast.budget.cap
    finest = facts.planned.levels[-1 - len(forecast.views)] if facts.planned.levels else None
    leaf = forecast.levels[-1]
    cards = [
        ("Privacy", f"ε = {rounded_up(forecast.epsilon, 4)}", f"and δ = {forecast.delta:g}, for {escape(facts.unit)}"),
        (
            "Budget with it",
            f"{rounded_up(facts.planned.after, 3)} of {cap.epsilon:g}" if facts.planned.fits else "refused",
            f"ε at δ = {cap.delta:g}; {rounded_up(forecast.budget.before.epsilon, 3)} is spent before it",
        ),
        (
            f"Possible counts at level {leaf.level}",
            format_cells(leaf.possible_cells),
            escape(place(leaf.axes)) or "everything",
        ),
    ]
    if leaf.threshold:
        cards.append(("Smallest count kept", f"{leaf.threshold:,}", "smaller ones are missing, from sums too"))
    elif finest and finest.within is not None:
        error = f"± {finest.within:,}" if finest.within else "exact"
        cards.append((f"Noise at level {leaf.level}", error, f"{facts.counted}, of 19 of 20 counts"))
    inside = "".join(f"<div><dt>{head}</dt><dd>{value}</dd><dd>{more}</dd></div>" for head, value, more in cards)
    return f'<dl class="cards">{inside}</dl>'


def _warnings(facts: PageFacts) -> str:
    forecast, told = facts.forecast, []
    if not facts.planned.fits:
        told.append(
            "<b>Over the cap.</b> This release would be refused, because it exceeds the budget of these people."
        )
    elif forecast.budget.after.epsilon > forecast.budget.cap.epsilon:
        told.append(
            "<b>Over the cap.</b> The series as a whole would be refused, because it exceeds the budget of these people."
        )
    told += [f"<b>To settle first.</b> {escape(warning)}" for warning in forecast.warnings]
    told += [f"<b>Note.</b> {escape(forecast.caution)}"] if forecast.caution else []
    if forecast.supersedes:
        told.append(
            f"This release would replace {escape(forecast.supersedes)}. A revision is a new measurement and is charged like any release;"
            " the charge for the earlier release stays."
        )
    return "\n".join(f'<div class="warning"><p>{text}</p></div>' for text in told)


def _approve(facts: PageFacts) -> str:
    forecast, plan = facts.forecast, facts.plan
    approval = forecast.approval
    spec = escape(plan.file.path.name)
    schedule = plan.file.spec.schedule
    if schedule and schedule.until:
        kept = (
            "<p>This plan is of a series, which <code>trellis up</code> reserves as a whole on its first day. Sign it by hand:"
            " <code>--approved-plan</code> is for single releases.</p>"
        )
    else:
        kept = (
            "<p>If you agree, sign below, or let the file of this page be kept beside the ledger:</p>"
            f"<pre>trellis release {spec} --approved-plan plan.html</pre>"
            "<p>That release is refused, and nothing is spent, if the spec, a codebook or the budget differs from what this page states:"
            " if a key was edited, a public table was changed, anything was charged to these people in the meantime, or their cap"
            " was changed. So an approval is good for one release. The store keeps this file, and <code>trellis show</code> says"
            " which plan a release was made under.</p>"
        )
    return f"""{kept}
<p>What is approved does not cover the confidential table itself: nobody knows beforehand what it holds. The spec names its place,
<code>{escape(facts.table)}</code>, and the release reads what is there on that day. The folder in which it is published is not covered
either.</p>
<section class="sign" aria-labelledby="sign"><h3 id="sign">Decision about {escape(forecast.name)}</h3>
<p><span class="box"></span><span>approved</span><span class="box"></span><span>not approved</span></p>
<dl>
<dt>Fingerprint</dt><dd class="is">{short_hash(approval.fingerprint)}</dd>
<dt>Name</dt><dd></dd>
<dt>Date</dt><dd></dd>
<dt>Signature</dt><dd></dd>
</dl></section>"""


def _planned(facts: PageFacts) -> str:
    """Return the table of hashes that say what was planned."""
    approval, budget = facts.forecast.approval, facts.forecast.approval.budget
    charged = f"{in_short([*budget.releases])}" if budget.releases else "none"
    rows = [
        ["fingerprint", f"<code>{approval.fingerprint}</code>"],
        ["spec, sha256", f"<code>{approval.spec}</code>"],
        *(
            [f"codebook of {escape(axis)}, sha256", f"<code>{escape(of)}</code>"]
            for axis, of in approval.codebooks.items()
        ),
        *([f"{escape(key)}, sha256", f"<code>{escape(of)}</code>"] for key, of in approval.tables.items()),
        ["mechanism", f"<code>{escape(approval.mechanism)}</code>"],
        ["ε, δ, ρ", f"{rounded_up(approval.epsilon)}, {approval.delta:g}, {rounded_up(approval.rho)}"],
        ["charged to", f"dataset {escape(budget.dataset)}"],
        ["cap", f"ε = {budget.cap['epsilon']:g} at δ = {budget.cap['delta']:g}"],
        ["releases charged before", escape(charged)],
        ["their charges, sha256", f"<code>{budget.charged}</code>"],
        ["left before, after", _left(facts)],
        ["made", f"{escape(approval.made)}, by Trellis {escape(approval.trellis)}"],
    ]
    about = (
        "<p>The fingerprint is a hash over what this table states, but for the last row. The page and the JSON of the same plan have the same"
        " one.</p>"
    )
    return about + table(["what", "value"], rows, caption="The approved plan, as a machine compares it", kind="hashes")


def _left(facts: PageFacts) -> str:
    before, after = map(rounded_down, facts.left)
    return f"ε = {before}, {after}"
