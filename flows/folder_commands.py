"""The commands that a published folder answers by itself, wherever it is."""

from pathlib import Path
from typing import Annotated

import typer

from flows import console
from flows.arguments import DONE, FAILED, AsJson, print_answer


def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A published folder.")], as_json: AsJson = False
) -> int:
    """Check a published folder by itself: checksums, consistency of every level, manifest, (ε, δ) against the noise."""
    from flows.verification import verify_answer

    answer = verify_answer(folder)
    print_answer(answer, as_json, console.show_verification)
    return DONE if answer["ok"] else FAILED
