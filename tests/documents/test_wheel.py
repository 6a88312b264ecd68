"""The wheel: what it holds, and that it releases a country where nothing of the checkout is."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from tests.support.user import REPOSITORY

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("pip builds a wheel and installs it")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy of what goes into it, so that the checkout keeps no trace of it."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "source").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "trellis.py"):
        shutil.copy(REPOSITORY / name, folder / "source" / name)
    for name in ("flows", "tasks", "storage", "deployments"):
        shutil.copytree(REPOSITORY / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(folder / "source")]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options], check=True, capture_output=True)
    (built,) = folder.glob("trellis-*.whl")
    return built


def test_it_has_what_users_need_and_no_more(wheel):
    """The facade, the three packages with their types, the schema, the example specs; no test, benchmark or page."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = message_from_string(archive.read(about).decode())
    typed = {f"{room}/py.typed" for room in ("flows", "tasks", "storage")}
    assert typed | {"trellis.py", "flows/specification/spec.schema.json"} <= set(names)
    specs = {name.rpartition("/")[2] for name in names if "/data/share/trellis/specs/" in name}
    assert specs == {path.name for path in (REPOSITORY / "deployments" / "specs").iterdir()}
    tops = {top for name in names if not (top := name.partition("/")[0]).startswith("trellis-")}
    assert tops == {"trellis.py", "flows", "tasks", "storage"}
    assert "Typing :: Typed" in (metadata.get_all("Classifier") or [])
    assert metadata["License-Expression"] == "Apache-2.0"


def test_it_releases_a_country_by_itself(wheel, tmp_path):
    """Installed alone beside its dependencies, as pipx does, it draws the country, releases it and verifies it."""
    alone = tmp_path / "alone"
    venv.create(alone, with_pip=True)
    packages = next(path for path in map(Path, sys.path) if (path / "prefect").is_dir())
    place = next((alone / "lib").glob("python*")) / "site-packages"
    (place / "dependencies.pth").write_text(f"{packages}\n")  # read as a path alone: the checkout is not on it
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRELLIS"))}
    environment["TRELLIS_HOME"] = str(tmp_path / "home")

    def run(program, *arguments):
        command = [str(alone / "bin" / program), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("python", *["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall"], str(wheel))
    assert str(REPOSITORY) not in run("python", "-c", "import flows, trellis; print(flows.__file__, trellis.__file__)")
    run("trellis", "synthesise", "country", "--out", "demo")
    assert "published" in run("trellis", "release", "demo/spec.yaml", "--no-server")
    (folder,) = (tmp_path / "demo" / "out").iterdir()
    assert "verified" in run("trellis", "verify", str(folder))
    assert (alone / "share" / "trellis" / "specs" / "rhode-island.yaml").is_file()
