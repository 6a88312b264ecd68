"""Pages of docs/ whose commands a test runs: the commands, and what a page shows of what they print."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.user import TRELLIS

END_OF_BLOCK = "=== the end of a block ==="


class Block(NamedTuple):
    """Commands of a page, and what it shows of what they print.

    Attributes:
        commands: as they stand.
        shown: lines; empty where it shows none.
        is_exact: whether the numbers in them are the same each time.
    """

    commands: str
    shown: tuple[str, ...]
    is_exact: bool


def fenced(page: str, kind: str) -> list[str]:
    """Return the blocks of a kind that a page shows."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)


def blocks_of(page: str) -> list[Block]:
    """Return a page's commands, fenced as `sh`, with what is printed behind some of them."""
    found = re.findall(
        r"^```sh\n(.*?)^```$(?:\n+^```(text|console)\n(.*?)^```$)?", page, flags=re.MULTILINE | re.DOTALL
    )
    return [
        Block(commands, tuple(line for line in shown.splitlines() if line != "…"), kind == "text")
        for commands, kind, shown in found
    ]


def not_printed(blocks: Sequence[Block], printed: Sequence[str], *, are_real: bool = True) -> list[str]:
    """Return the lines that a page shows and its commands do not print.

    Args:
        blocks: of the page.
        printed: what each of them printed.
        are_real: whether the tables are those of the page; if not, no number need be the same.
    """
    missing = []
    for block, text in zip(blocks, printed, strict=True):
        is_exact = block.is_exact and are_real
        lines = {_words(line, is_exact=is_exact) for line in text.splitlines()}
        missing += [line for line in block.shown if _words(line, is_exact=is_exact) not in lines]
    return missing


def _words(text: str, *, is_exact: bool) -> str:
    """Return a text on one line; unless numbers are to be the same, with a # for each, and for each that is left out.

    Likewise for a share of noise rows: whether there are any, and whether it is estimated, depends on the noise.
    """
    line = " ".join(text.split())
    return line if is_exact else re.sub("(#%, )?at most #%|#%", "#", re.sub(r"\d[\d.,TZ]*|…", "#", line))


def run_blocks(blocks: Sequence[Block], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Run commands in one shell, which ends at the first that fails; return what each block prints."""
    script = folder / "page.sh"
    script.write_text("".join(f"{block.commands}\necho '{END_OF_BLOCK}'\n" for block in blocks))
    shell = subprocess.run(
        ["bash", "-eu", script.name],
        cwd=folder,
        env={**environment, "PATH": f"{TRELLIS.parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert shell.returncode == 0, shell.stdout
    return shell.stdout.split(f"{END_OF_BLOCK}\n")[:-1]
