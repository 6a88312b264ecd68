"""The sections in which a plan is approved: how, by whose signature, and what exactly was planned."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from flows.forecast.sections.facts import PageFacts
from storage.machine.files import short_hash
from storage.releases.approvals import BESIDE, canonical
from tasks.report.frame import table

_LONGEST = 1_000  # characters of a value
_OPTION = '<code class="word">--approved-plan</code>'


def approve_section(facts: PageFacts) -> str:
    """Return how a plan is approved, and the place to sign."""
    forecast, plan = facts.forecast, facts.plan
    approval = forecast.approval
    spec = escape(plan.file.path.name)
    schedule = plan.file.spec.schedule
    if schedule and schedule.until:
        kept = (
            "<p>This plan is of a series, which <code>trellis up</code> reserves as a whole on its first day. Sign it by hand:"
            f" {_OPTION} is for single releases.</p>"
        )
    else:
        kept = (
            "<p>If you agree, sign below, or let the file of this page be kept beside the ledger:</p>"
            f'<pre>trellis release {spec} <span class="word">--approved-plan plan.html</span></pre>'
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
    """Return everything that the fingerprint covers, and what it does not."""
    approval = facts.forecast.approval
    stated = {key: value for key, value in asdict(approval).items() if key not in BESIDE}
    rows = [
        [escape(path).replace(".", ".<wbr>"), f"<code>{escape(_cut(text))}</code>"] for path, text in _leaves(stated)
    ]
    about = (
        f"<p>Fingerprint <code>{approval.fingerprint}</code>, of a plan that was made at {escape(approval.made)} by Trellis"
        f" {escape(approval.trellis)}.</p>"
        "<p>The fingerprint is a hash over what the table below states, and over nothing else. So it is the same for the page and for the JSON of"
        " a plan, whenever they are made. <code>keys</code> is the spec, with file names in place of paths, and <code>spec</code> the sha256 of"
        " it as it is written. <code>places</code> has the sha256 of each path, <code>codebooks</code> and <code>tables</code> of each public"
        " table, and <code>budget.charged</code> of all charges.</p>"
        f"<p>The other numbers of this page are computed from these{_guess(facts)}.</p>"
    )
    return about + table(["what", "value"], rows, caption="What the fingerprint covers, in full", kind="hashes")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value that is in a value of JSON, as text, with the keys that lead to it."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Mapping | Sequence) and not value:
        yield path, "none"
    else:
        yield path, (value if isinstance(value, str) else json.dumps(canonical(value), ensure_ascii=False))


def _cut(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]} … and {len(text) - _LONGEST:,} more characters, which the data in this file have"


def _guess(facts: PageFacts) -> str:
    """Return where the guess of the total is from that the page uses besides; empty where it uses none."""
    typical = facts.forecast.typical
    if typical is None:
        return ""
    if typical.from_ == "expected_total":
        return ", and from <code>expected_total</code>"
    return f", and from the total that {escape(typical.from_)} published"
