"""The command line: its commands, and the errors that it prints.

What takes long to import is imported by the command that needs it.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from flows.cli import release_commands, spec_commands, store_commands
from flows.cli.arguments import DONE, FAILED, INTERRUPTED, REFUSED, WRONG, Command, Group, print_json
from flows.console import terminal
from flows.server.process import quiet_prefect
from storage.errors import (
    BudgetExceeded,
    InputError,
    Interrupted,
    SpecError,
    TrellisError,
    UsageError,
    disk_fault,
    kind_and_place,
)

COMPLETING = "_TRELLIS_COMPLETE"  # a shell sets it to ask for completions


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"trellis {version('trellis')}")  # noqa: T201 (the command line)
        raise typer.Exit


app = typer.Typer(
    cls=Group,
    help="Differentially private count tables over public hierarchies.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def trellis(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Differentially private count tables over public hierarchies."""


# an option of `query` may be an axis of the release
_ANY_AXIS = {"ignore_unknown_options": True, "allow_extra_args": True}

budget = typer.Typer(help="The cap on what all releases about the same people cost together.", rich_markup_mode=None)
app.add_typer(budget, name="budget")

for command in (  # in the order of the help
    spec_commands.new,
    spec_commands.check,
    spec_commands.plan,
    release_commands.release,
    release_commands.rerun,
    spec_commands.compare,
    release_commands.up,
    release_commands.worker,
    store_commands.releases,
    store_commands.show,
    store_commands.ledger,
    store_commands.verify,
    store_commands.query,
    store_commands.audit,
    release_commands.abandon,
    store_commands.clean,
    release_commands.forget,
    store_commands.backup,
    store_commands.restore,
    store_commands.metrics,
    spec_commands.synthesise,
):
    app.command(cls=Command, context_settings=_ANY_AXIS if command is store_commands.query else None)(command)
budget.command("raise", cls=Command)(store_commands.raise_budget)


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 done, 1 failed, 2 wrong usage, spec or input, 3 refused by the budget, 130 interrupted.
    """
    arguments = sys.argv[1:] if argv is None else argv
    os.umask(0o077)
    quiet_prefect()
    code = INTERRUPTED  # which it stays where Ctrl-C comes before or after a command's own work
    with _interruptions() as interrupted:
        code = _run(arguments)
    return INTERRUPTED if interrupted.is_set() and code != DONE else code  # whatever a library has made of it


def _run(arguments: list[str]) -> int:
    if not arguments and COMPLETING not in os.environ:
        app(args=["--help"], prog_name="trellis", standalone_mode=False)
        return WRONG
    try:
        code = app(args=arguments, prog_name="trellis", standalone_mode=False)
    except TyperException as fault:
        wrong = fault.format_message() if hasattr(fault, "format_message") else str(fault)
        hint = "`trellis --help` lists commands and options."
        return _show_error(UsageError(wrong, field="usage", hint=hint), arguments)
    except TrellisError as fault:
        return _show_error(fault, arguments)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as fault:  # noqa: BLE001 (its text could quote the data, so only its kind and place are shown)
        hint = "This is a bug in Trellis. Please report it with this line."
        stopped = TrellisError(f"Trellis stopped: {kind_and_place(fault)}.", hint=hint)
        return _show_error(disk_fault(fault) or stopped, arguments)
    if code == INTERRUPTED:
        return _show_error(TrellisError("Interrupted."), arguments)
    return code or DONE


@contextmanager
def _interruptions() -> Iterator[Event]:
    """Yield an event that is set once the user presses Ctrl-C or sends SIGTERM, which also raise KeyboardInterrupt."""
    interrupted = Event()

    def interrupt(signum: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.default_int_handler(signum, frame)

    signals = (signal.SIGINT, signal.SIGTERM)
    before = {signum: signal.getsignal(signum) for signum in signals}
    for signum, handler in before.items():
        if handler is not signal.SIG_IGN:  # as a shell's background jobs have it
            signal.signal(signum, interrupt)
    try:
        yield interrupted
    except KeyboardInterrupt:
        interrupted.set()
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _show_error(fault: TrellisError, arguments: list[str]) -> int:
    from flows.answers.release_status import error_answer

    if "--json" in arguments:
        print_json(error_answer(fault))
    else:
        terminal.error(fault)
    if isinstance(fault, BudgetExceeded):
        return REFUSED
    if isinstance(fault, Interrupted):
        return INTERRUPTED
    return WRONG if isinstance(fault, SpecError | InputError | UsageError) else FAILED


class _WithoutPandas:
    """Hides pandas, which no command uses. pyarrow would import it to ask whether an array is a pandas array."""

    @staticmethod
    def find_spec(fullname: str, *_: object) -> None:
        """Find nothing, and end the search for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError("Trellis does not use pandas.", name=fullname)


def run() -> NoReturn:
    """Be the `trellis` command, and leave at once: the threads that Prefect leaves behind have nothing more to do."""
    sys.meta_path.insert(0, _WithoutPandas())
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # for which it would look through all installed packages
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
