"""Approved plans: what somebody has agreed to before a release spends anything, the file of a plan with its fingerprint, and the copy that the store keeps.

An approval is in the file that `trellis plan` writes, a page or JSON. It states the spec, the codebooks and the budget as they were
then. Its fingerprint is a hash over these; when the plan was made, and by which Trellis, is beside it, so that the page and the JSON of
one plan have the same fingerprint. The rest of the file follows from these, or is words.

It is no signature: whoever alters a file on purpose can compute the fingerprint anew.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from storage.database.connections import Connection
from storage.errors import UsageError
from storage.machine.clock import utc_now
from storage.machine.files import short_hash

OPTION = "--approved-plan"  # the field of errors about the file

BESIDE = ("fingerprint", "made", "trellis")  # what the fingerprint does not cover


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedBudget:
    """The budget of a dataset's people when a plan was made, and what the release would cost.

    Attributes:
        dataset: the first dataset of these people, whose account is charged.
        cap: ε and δ.
        releases: the releases that have spent or reserved a part of it.
        charged: the sha256 over all their charges.
        spent: the ε of all of them together, at the cap's δ; likewise `after`, with the planned release; None where no ε
            holds at that δ.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (read once, by pydantic)

    dataset: str
    cap: Mapping[str, float]
    releases: tuple[str, ...]
    charged: str
    spent: float
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What a plan states, and what a release under it is held to.

    Attributes:
        fingerprint: the sha256 over everything below but `made` and `trellis`.
        made: when the plan was made: UTC, ISO 8601.
        trellis: the version that made it.
        dataset: whose people the release is about.
        spec: the sha256 over the spec as written, without the keys that change nothing of what is released: `output`, `run`, `utility`
            and `expected_total`.
        keys: these keys, with file names in place of paths, to say which of them differ.
        places: by key, the sha256 of a path that the spec names, to say which of them differ.
        codebooks: per axis the sha256 of its codebook.
        tables: by key the sha256 of every other public table.
        epsilon: of the release, with `delta`; `rho` is the cost of its discrete Gaussians.
        budget: of the dataset's people.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (read once, by pydantic)

    fingerprint: str
    made: str
    trellis: str
    name: str
    dataset: str
    spec: str
    keys: Mapping[str, Any]
    places: Mapping[str, str]
    codebooks: Mapping[str, str]
    tables: Mapping[str, str]
    mechanism: str
    epsilon: float
    delta: float
    rho: float
    budget: ApprovedBudget


@dataclass(frozen=True, slots=True)
class ApprovedPlan:
    """What an approved plan states, with the text of the file that it was read from."""

    approval: Approval
    file: str


@dataclass(frozen=True, slots=True)
class KeptApproval:
    """What the store knows of the approved plan of a release: its fingerprint, and when it was made (UTC, ISO 8601)."""

    fingerprint: str
    made: str


def fingerprint_of(stated: Mapping[str, Any]) -> str:
    """Return the fingerprint of what an approval states; what the fingerprint does not cover may be there or not."""
    return sha256_of_value({key: value for key, value in stated.items() if key not in BESIDE})


def sha256_of_value(value: Any) -> str:
    """Return the sha256 of a value of JSON, over its canonical text."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: Any) -> Any:
    """Return a value as JSON has it, the same for values that are equal: keys are texts, and a whole number is an integer."""
    if isinstance(value, Mapping):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def keep_approved_plan(con: Connection, release_id: str, plan: ApprovedPlan) -> None:
    """Keep the file of the plan that a release is made under; inside the transaction that reserves the release."""
    approval = plan.approval
    con.execute(
        "INSERT INTO approvals VALUES (?, ?, ?, ?, ?)",
        [release_id, approval.fingerprint, approval.made, utc_now(), plan.file],
    )


def kept_approval(con: Connection, release_id: str) -> KeptApproval | None:
    """Return which approved plan a release was reserved under; None if it was under none."""
    row = con.execute("SELECT fingerprint, made FROM approvals WHERE release_id = ?", [release_id]).fetchone()
    return KeptApproval(*row) if row else None


def kept_plan(con: Connection, release_id: str) -> str | None:
    """Return the file of the plan that a release was reserved under, as it was given; None if it was under none."""
    row = con.execute("SELECT plan FROM approvals WHERE release_id = ?", [release_id]).fetchone()
    return str(row[0]) if row else None


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
