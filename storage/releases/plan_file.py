"""The file of a plan, a page or JSON: the approval in it, and the hash by which a change of anything in it shows.

The hash is over the whole file but its own place. It shows what was edited by hand, or damaged on the way. It is no signature: whoever
alters a file on purpose can compute it anew.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from storage.errors import UsageError
from storage.machine.files import short_hash
from storage.releases.approvals import (
    BESIDE,
    OPTION,
    Approval,
    ApprovedBudget,
    ApprovedPlan,
    fingerprint_of,
    sha256_of_value,
)

_MOST_BYTES = 50_000_000  # of a file that is read as a plan; pages have some ten thousand

_ELEMENT = '<script type="application/json" id="approval" data-sha256="{sha256}">{approval}</script>'
_IN_PAGE = re.compile(
    r'<script type="application/json" id="approval"(?: data-sha256="([^"]*)")?>(.*?)</script>', re.DOTALL
)

_AGAIN = "Make a new plan with `trellis plan SPEC --html plan.html` and have it approved."


@dataclass(frozen=True, slots=True)
class _Content:
    """What is in the file of a plan.

    Attributes:
        stated: the approval, as JSON has it.
        said: the hash that the file holds; None where it holds none.
        found: the hash of the file as it is.
    """

    stated: Any
    said: str | None
    found: str


def approval_element(approval: Approval) -> str:
    """Return the element of a page that holds an approval; `bound_page` fills in its hash.

    There is no angle bracket in the JSON, so nothing in it is markup.
    """
    text = json.dumps(asdict(approval), ensure_ascii=False, indent=1)
    return _ELEMENT.format(sha256="", approval=text.replace("<", "\\u003c").replace(">", "\\u003e"))


def bound_page(text: str) -> str:
    """Return the page of a plan with the hash over all of it, in its element of the approval."""
    (place,) = _IN_PAGE.finditer(text)
    return _with_hash(text, place, _sha256_of_text(_with_hash(text, place, "")))


def bound_json(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a plan with the hash over all of it, under the key `sha256`."""
    return {**answer, "sha256": sha256_of_value(answer)}


def read_approved_plan(path: Path) -> ApprovedPlan:
    """Return the approved plan in a file that `trellis plan` wrote: its page, or its JSON.

    Raises:
        UsageError: the file cannot be read, is no plan, was altered, or lacks the hash over all of it.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _no_plan(str(path))
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"{OPTION}: {path} must be a file of text that can be read.", field=OPTION) from None
    approval = approval_in(text, str(path))
    if _content(text).said is None:
        raise UsageError(
            f"{OPTION}: {path} must hold the hash over all of it, by which changes show. The plan of an earlier version of Trellis, a"
            " rehearsal and a part of a plan have none.",
            field=OPTION,
            hint=_AGAIN,
        )
    return ApprovedPlan(approval, text)


def approval_in(text: str, path: str) -> Approval:
    """Return the approval in the text of a plan. Plans that a store keeps from before there was a hash over all of a file have none.

    Args:
        text: of the page, or of the JSON.
        path: of its file, for errors.
    Raises:
        UsageError: it is no plan, or was altered.
    """
    try:
        content = _content(text)
        approval = _approval(content.stated)
        fingerprint = fingerprint_of(content.stated)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise _no_plan(path) from None
    if fingerprint != approval.fingerprint:
        raise _altered(path, f"what it states has not the fingerprint {short_hash(approval.fingerprint)}")
    if content.said not in (None, content.found):
        raise _altered(path, "the hash over all of it is not the one that it holds")
    return approval


def _content(text: str) -> _Content:
    """Return what is in the text of a plan.

    Raises:
        ValueError or AttributeError: there is no approval in it, or there are several.
    """
    if text.lstrip().startswith("{"):
        answer = json.loads(text)
        said = answer.pop("sha256", None)
        return _Content(answer.get("approval", answer), said, sha256_of_value(answer))
    (place,) = _IN_PAGE.finditer(text)
    found = "" if place[1] is None else _sha256_of_text(_with_hash(text, place, ""))
    return _Content(json.loads(place[2]), place[1], found)


def _with_hash(page: str, place: re.Match[str], sha256: str) -> str:
    """Return a page with another hash in its place."""
    return page[: place.start(1)] + sha256 + page[place.end(1) :]


def _sha256_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _approval(stated: Any) -> Approval:
    """Return the approval that is stated, if it has all fields, and each is of its kind.

    Raises:
        ValueError, TypeError, KeyError or AttributeError: it has not.
    """
    if stated.keys() != {field.name for field in fields(Approval)}:
        raise ValueError("it has other fields.")
    budget = stated["budget"]
    cap = {"epsilon": float(budget["cap"]["epsilon"]), "delta": float(budget["cap"]["delta"])}
    texts = (*BESIDE, "name", "dataset", "spec", "mechanism")
    if not all(isinstance(stated[name], str) for name in texts):
        raise ValueError("a text is none.")
    if not all(isinstance(stated[name], dict) for name in ("keys", "places", "codebooks", "tables")):
        raise ValueError("a mapping is none.")
    numbers = {name: float(stated[name]) for name in ("epsilon", "delta", "rho")}
    return Approval(
        **stated
        | numbers
        | {"budget": ApprovedBudget(**budget | {"cap": cap, "releases": tuple(map(str, budget["releases"]))})}
    )


def _altered(path: str, how: str) -> UsageError:
    return UsageError(
        f"{OPTION}: {path} was altered after it was made: {how}.",
        field=OPTION,
        hint="Use the file that was approved, not a copy that an editor or a browser saved, or have a new plan approved.",
    )


def _no_plan(path: str) -> UsageError:
    return UsageError(
        f"{OPTION}: {path} is no plan of this Trellis.",
        field=OPTION,
        hint="`trellis plan SPEC --html plan.html` writes one, and so does `trellis plan SPEC --json > plan.json`.",
    )
