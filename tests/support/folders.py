"""Published folders that somebody changes, with the right checksums."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest, with the right checksum."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    sums = folder / "SHA256SUMS"
    lines = [line for line in sums.read_text().splitlines() if not line.endswith("manifest.json")]
    sums.write_text("\n".join([*lines, f"{sha256(path.read_bytes()).hexdigest()}  manifest.json"]) + "\n")
