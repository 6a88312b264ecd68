"""Completion in the shell, asked as the shells ask, and `--version`."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from storage.database.completion import known_names
from storage.database.connections import store

TRELLIS = Path(sys.executable).with_name("trellis")
RELEASES = {
    "jobs-20260101T000000Z": "jobs-2025",
    "jobs-20260201T000000Z": "jobs-2025",
    "trips-20260301T000000Z": "trips",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a TRELLIS_HOME whose store knows a few releases, each newer than the one before."""
    folder = tmp_path_factory.mktemp("completion") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(folder))
        with store() as con:
            for release, dataset in RELEASES.items():
                con.execute(
                    "INSERT INTO releases VALUES (?, 'n', ?, 'published', '', ?, '', '{}', '', NULL)",
                    [release, dataset, release],
                )
    return folder


def asked(home: Path, **protocol: str) -> str:
    """Return what `trellis` answers a shell that sets these variables and gives no argument."""
    done = subprocess.run(
        [TRELLIS], env=os.environ | {"TRELLIS_HOME": str(home)} | protocol, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout


def test_version(tmp_path: Path) -> None:
    """`trellis --version` says which Trellis this is, and makes no store."""
    env = os.environ | {"TRELLIS_HOME": str(tmp_path / "home")}
    done = subprocess.run([TRELLIS, "--version"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"trellis {version('trellis')}\n"
    assert not (tmp_path / "home").exists()


def test_shells_are_told_what_completes_a_word(home: Path) -> None:
    """Commands; ids of releases from the store, the newest first, in the words of each shell; and nothing where a spec or a
    folder stands, so that bash goes on with the names of files.
    """
    for words, place, completed in (
        ("trellis re", "1", ["release", "rerun", "releases", "restore"]),
        ("trellis plan ./", "2", []),
        ("trellis verify ./", "2", []),
        ("trellis release s --output ./", "4", []),
    ):
        said = asked(home, _TRELLIS_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=place)
        assert said.split() == completed, words
    line = {"_TYPER_COMPLETE_ARGS": "trellis show jobs"}
    newest, oldest = "jobs-20260201T000000Z", "jobs-20260101T000000Z"
    zsh = asked(home, _TRELLIS_COMPLETE="complete_zsh", **line)
    assert zsh == f"""_arguments '*: :(("{newest}"\n"{oldest}"))'\n"""
    fish = asked(home, _TRELLIS_COMPLETE="complete_fish", _TYPER_COMPLETE_FISH_ACTION="get-args", **line)
    assert fish.split() == [newest, oldest]


def test_completion_makes_no_store_and_reports_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a store, or with one that cannot be read, no name is known, and nothing is made."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    assert known_names("id") == []
    assert not (tmp_path / "home").exists()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "store.duckdb").write_text("no database")
    assert known_names("dataset") == []
    assert (tmp_path / "home" / "store.duckdb").read_text() == "no database"


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_real_bash_completes_once_it_is_installed(home: Path, tmp_path: Path) -> None:
    """`--install-completion` makes a new bash complete commands, datasets and files at the Tab key."""
    (tmp_path / "specification.yaml").touch()
    env = os.environ | {"TRELLIS_HOME": str(home), "HOME": str(tmp_path), "PS1": "", "TERM": "dumb"}
    env["PATH"] = f"{TRELLIS.parent}:{env['PATH']}"
    installed = subprocess.run(
        ["bash", "-c", "trellis --install-completion; exit $?"], env=env, capture_output=True, text=True, check=True
    )
    assert "bash completion installed" in installed.stdout
    typed = {
        "trellis synth\t": "trellis synthesise ",
        "trellis ledger jo\t": "trellis ledger jobs-2025 ",
        "trellis plan spec\t": "trellis plan specification.yaml ",
    }
    said = typed_into_bash(env, tmp_path, typed)
    for line, completed in typed.items():
        assert completed in said, (line, said)


def typed_into_bash(env: dict[str, str], folder: Path, lines: dict[str, str]) -> str:
    """Type lines into an interactive bash until each is completed, none of which is run; return what the terminal shows."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe("bash", ["bash", "--noprofile", "-i"], env)  # noqa: S606 (a shell is what is tested)
    said = ""
    try:
        for line, completed in lines.items():
            os.write(terminal, line.encode())
            until = time.monotonic() + 120
            while completed not in said and time.monotonic() < until:
                if select.select([terminal], [], [], 0.1)[0]:
                    said += os.read(terminal, 4096).decode(errors="replace")
            os.write(terminal, b"\x15")  # Ctrl-U: away with the line
    finally:
        os.write(terminal, b"exit\n")
        os.close(terminal)
        os.waitpid(process, 0)
    return said
