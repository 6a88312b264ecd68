"""The file of a plan, a page or JSON, and the approval in it: its fingerprint shows what was edited by hand, or damaged on the way.

It is no signature: whoever alters a file on purpose can compute the fingerprint anew.
"""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from storage.errors import UsageError
from storage.machine.files import short_hash
from storage.releases.approvals import OPTION, Approval, ApprovedPlan, fingerprint_of

_MOST_BYTES = 50_000_000  # of a file that is read as a plan; pages have some ten thousand

_ELEMENT = '<script type="application/json" id="approval">{approval}</script>'
_IN_PAGE = re.compile(r'<script type="application/json" id="approval">(.*?)</script>', re.DOTALL)


def approval_element(approval: Approval) -> str:
    """Return the element of a page that holds an approval.

    There is no angle bracket in the JSON, so nothing in it is markup.
    """
    text = json.dumps(asdict(approval), ensure_ascii=False, indent=1)
    return _ELEMENT.format(approval=text.replace("<", "\\u003c").replace(">", "\\u003e"))


def read_approved_plan(path: Path) -> ApprovedPlan:
    """Return the approved plan in a file that `trellis plan` wrote: its page, or its JSON.

    Raises:
        UsageError: the file cannot be read, is no plan, or was altered.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _no_plan(str(path))
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"{OPTION}: {path} must be a file of text that can be read.", field=OPTION) from None
    return ApprovedPlan(approval_in(text, str(path)), text)


def approval_in(text: str, path: str) -> Approval:
    """Return the approval in the text of a plan.

    Args:
        text: of the page, or of the JSON.
        path: of its file, for errors.
    Raises:
        UsageError: it is no plan, or was altered.
    """
    try:
        stated = _stated(text)
        approval = TypeAdapter(Approval).validate_python(stated)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise _no_plan(path) from None
    if fingerprint_of(stated) != approval.fingerprint:
        own = short_hash(approval.fingerprint)
        raise UsageError(
            f"{OPTION}: {path} was altered after it was made: what it states has not the fingerprint {own}.",
            field=OPTION,
            hint="Use the file that was approved, not a copy that an editor or a browser saved, or have a new plan approved.",
        )
    return approval


def _stated(text: str) -> Any:
    """Return the approval that is stated in the text of a plan, as JSON has it.

    Raises:
        ValueError or AttributeError: there is no approval in it, or there are several.
    """
    if text.lstrip().startswith("{"):
        answer = json.loads(text)
        return answer.get("approval", answer)
    (place,) = _IN_PAGE.finditer(text)
    return json.loads(place[1])


def _no_plan(path: str) -> UsageError:
    return UsageError(
        f"{OPTION}: {path} is no plan of this Trellis.",
        field=OPTION,
        hint="`trellis plan SPEC --html plan.html` writes one, and so does `trellis plan SPEC --json > plan.json`.",
    )
