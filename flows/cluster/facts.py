"""What a machine says of itself, so that home can see whether it would draw and compute the same."""

import hashlib
import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

_PACKAGE = re.compile(r"[A-Za-z0-9._-]+")
_HOUSE = Path(__file__).parents[2]
_ROOMS = ("flows", "tasks", "storage")


@cache
def facts() -> dict[str, Any]:
    """Return the version of Trellis and the hash of its code, the minor version of Python, and the versions of the packages beneath."""
    return {
        "trellis": version("trellis"),
        "code": _code(),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "packages": dict(sorted(_packages())),
    }


def difference(here: dict[str, Any], there: dict[str, Any]) -> str:
    """Return in what another machine differs from this one, in words; nothing where it does not."""
    for field, words in (("trellis", "Trellis"), ("python", "Python")):
        if here[field] != there.get(field):
            return f"has {words} {there.get(field)}, and home has {here[field]}"
    for package, of_home in here["packages"].items():
        other = there.get("packages", {}).get(package, "none")
        if other != of_home:
            return f"has {package} {other}, and home has {of_home}"
    return "" if here["code"] == there.get("code") else "runs other code of Trellis than home"


def _code() -> str:
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((_HOUSE / room).rglob("*.py")):
            digest.update(f"{path.relative_to(_HOUSE)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _packages() -> list[tuple[str, str]]:
    """Return the packages that Trellis needs on a cluster, with their versions; one that is not installed has `none`."""
    versions = []
    for requirement in requires("trellis") or ():
        needed, _, condition = requirement.partition(";")
        if "extra" in condition and "dask" not in condition:
            continue
        package = _PACKAGE.match(needed.strip())
        if package:
            try:
                versions.append((package[0], version(package[0])))
            except PackageNotFoundError:
                versions.append((package[0], "none"))
    return versions
