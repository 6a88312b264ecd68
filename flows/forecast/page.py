"""The plan of a release as one page, for somebody who decides about it and is no statistician: to read, to sign, and to keep."""

from html import escape
from pathlib import Path

from flows.forecast.answer import plan_answer
from flows.forecast.sections.approval import approve_section, planned_section
from flows.forecast.sections.budget import budget_section
from flows.forecast.sections.facts import PageFacts
from flows.forecast.sections.protection import epsilon_section, protection_section
from flows.forecast.sections.published import published_section
from flows.forecast.sections.summary import cards, inside_notice, sentence, warnings
from flows.forecast.sections.worth import worth_section
from flows.forecast.values import Forecast
from flows.forecast.worth import further_releases, left_around, worth_at_three
from flows.planning.budget import agreed_terms
from flows.planning.plan import Plan
from storage.database.connections import store
from storage.errors import UsageError, disk_fault
from storage.ledger.events import read_books
from storage.machine.files import beside, short_hash
from storage.releases.plan_file import approval_element
from tasks.report.frame import page
from tasks.words.readers import about

_STYLE = """:root { --ink: #1a1a1a; --soft: #444; --line: #b8c4cc; --accent: #1b4965; --ground: #fff; --note: #eef3f6; --warn: #faf3ee; --edge: #8a3b12; --shade: #0004 }
body { color: var(--ink); background: var(--ground) }
h1 { margin: .2rem 0 }
h2 { margin: 2.5rem 0 .5rem; border-bottom: 2px solid var(--accent); color: var(--accent); padding-bottom: .2rem }
h3 { margin: 1.2rem 0 .2rem; font-size: 1.05rem }
code { font-size: .9em; overflow-wrap: anywhere }
.word { white-space: nowrap }
pre { background: var(--note); padding: .7rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere }
.kind { margin: 0; color: var(--accent); font-weight: 600; letter-spacing: .02em }
.id { margin: 0 0 1rem; color: var(--soft); overflow-wrap: anywhere }
.lead { font-size: 1.15rem }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem; margin: 1.5rem 0; padding: 0 }
.cards > div { border: 1px solid var(--line); border-top: 4px solid var(--accent); border-radius: 4px; padding: .6rem .8rem }
.cards dt, .cards dd { margin: 0; font-size: .85rem; color: var(--soft) }
.cards dd:first-of-type { font-size: 1.5rem; font-weight: 650; line-height: 1.3; color: var(--ink); overflow-wrap: anywhere }
.notice, .warning { border-left: 6px solid var(--accent); background: var(--note); padding: .7rem 1rem; margin: 1rem 0 }
.warning { border-left: 6px double var(--edge); background: var(--warn) }
.notice > p, .warning > p { margin: .2rem 0 }
li { margin-bottom: .4rem }
table { margin: .5rem 0 1rem }
.scroll { background: linear-gradient(90deg, var(--ground) 30%, transparent) 0 0 / 3rem 100% no-repeat local,
    linear-gradient(270deg, var(--ground) 30%, transparent) 100% 0 / 3rem 100% no-repeat local,
    linear-gradient(90deg, var(--shade), transparent) 0 0 / .7rem 100% no-repeat scroll,
    linear-gradient(270deg, var(--shade), transparent) 100% 0 / .7rem 100% no-repeat scroll }
caption { white-space: normal; position: sticky; left: 0 }
caption > span { display: block; max-width: calc(100vw - 2rem) }
th { vertical-align: bottom; white-space: normal }
th, td { border-color: var(--line) }
th[scope=row] { font-weight: 400; text-align: left }
th[scope=row], td { vertical-align: top }
.levels th:nth-child(2), .levels td:nth-child(2), .hashes td, .hashes th, .money th:last-child, .money td:last-child,
.words th:last-child, .words td:last-child { text-align: left; white-space: normal }
.money td:last-child { white-space: normal }
.levels td:nth-child(2) { white-space: normal; min-width: 9rem }
.hashes td, .hashes th { white-space: normal; overflow-wrap: anywhere }
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
@media screen and (min-width: 64rem) { .levels td:nth-child(2) { min-width: 15rem } }
@media screen and (max-width: 40rem) {
  table { font-size: .8125rem }
  .levels td:nth-child(2) { min-width: 5rem }
  .three td:nth-child(2) { min-width: 4rem }
  .three th, .three td { padding-left: .2rem; padding-right: .2rem }
  table:not(.levels) td { white-space: normal }
  .hashes { table-layout: fixed; width: 100% }
  .hashes th:first-child { width: 42% }
  .cards { gap: .5rem }
  .cards > div { padding: .5rem .6rem }
  .cards dd:first-of-type { font-size: 1.35rem }
}
footer { margin-top: 3rem; color: var(--soft); font-size: .875rem; border-top: 1px solid var(--line) }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e8e6e3; --soft: #b9bdc1; --line: #48545c; --accent: #8fc1e3; --ground: #14181b; --note: #1e272d; --warn: #2e221b; --edge: #e0915f; --shade: #fff5;
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
<h1>{title}</h1>
<p class="id">{identity}</p>
{about}
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
{approval}"""


def plan_page(plan: Plan, forecast: Forecast | None = None) -> str:
    """Return the page of a plan. It is for use inside the office: it may show a guess of the total, which is not published.

    Args:
        plan: the plan.
        forecast: of the plan; made anew if left out.
    """
    forecast = forecast or plan_answer(plan)
    facts = _facts(plan, forecast)
    body = _BODY.format(
        title=escape(facts.title),
        identity=_identity(facts),
        about=_about(facts),
        inside=inside_notice(facts),
        sentence=sentence(facts),
        cards=cards(facts),
        warnings=warnings(facts),
        published=published_section(facts),
        worth=worth_section(facts),
        epsilon=epsilon_section(facts),
        protection=protection_section(facts),
        budget=budget_section(facts),
        approve=approve_section(facts),
        planned=planned_section(facts),
        approval=approval_element(forecast.approval),
    )
    return page(f"{facts.title}: plan", body, _STYLE, closed=True)


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


def _identity(facts: PageFacts) -> str:
    """Return a line that identifies the plan: its spec and dataset, when it was made, and its fingerprint."""
    forecast, approval = facts.forecast, facts.forecast.approval
    made = approval.made.replace("T", " ").removesuffix("Z")
    spec = "" if facts.title == forecast.name else f"Spec {escape(forecast.name)}. "
    return (
        f"{spec}Dataset {escape(forecast.dataset)}. Made on {escape(made)} UTC by Trellis {escape(approval.trellis)}."
        f" Fingerprint {short_hash(approval.fingerprint)}."
    )


def _about(facts: PageFacts) -> str:
    """Return what the spec tells readers of the counts and of who collected the records; empty where it does not."""
    told = about(facts.spec)
    return f'<p class="about">{escape(told)}</p>' if told else ""


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
        spec=plan.file.published(),
        worth=worth_at_three(plan, before, terms.cap, typical.total if typical else None),
        further=further_releases(plan.spending, before, terms.cap),
        left=left_around(plan.spending, before, terms.cap),
    )
