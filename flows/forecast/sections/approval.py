"""The sections in which a plan is approved: how, by whose signature, and what exactly was planned."""

from html import escape

from flows.forecast.sections.facts import PageFacts
from storage.machine.files import short_hash
from tasks.report.frame import table
from tasks.words.levels import in_short
from tasks.words.numbers import rounded_down, rounded_up


def approve_section(facts: PageFacts) -> str:
    """Return how a plan is approved, and the place to sign."""
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
<section class="sign" aria-labelledby="sign"><h3 id="sign">Decision about {escape(facts.title)}</h3>
<p><span class="box"></span><span>approved</span><span class="box"></span><span>not approved</span></p>
<dl>
<dt>Fingerprint</dt><dd class="is">{short_hash(approval.fingerprint)}</dd>
<dt>Name</dt><dd></dd>
<dt>Date</dt><dd></dd>
<dt>Signature</dt><dd></dd>
</dl></section>"""


def planned_section(facts: PageFacts) -> str:
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
        " one. The file of this page also holds a hash over all of the page, so that <code>--approved-plan</code> refuses a page whose words or"
        " numbers were edited.</p>"
    )
    return about + table(["what", "value"], rows, caption="The approved plan, as a machine compares it", kind="hashes")


def _left(facts: PageFacts) -> str:
    before, after = map(rounded_down, facts.left)
    return f"ε = {before}, {after}"
