"""Published folders that somebody changes, with the right checksums."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest, with the right checksum."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    sums = folder / "SHA256SUMS"
    lines = [line for line in sums.read_text().splitlines() if not line.endswith("manifest.json")]
    sums.write_text("\n".join([*lines, f"{sha256(path.read_bytes()).hexdigest()}  manifest.json"]) + "\n")


def changed(name: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], None]:
    """Return what changes a table of a folder, with the right checksum and without the CSV beside it."""

    def of_folder(folder: Path) -> None:
        path = folder / name
        schema = pl.read_parquet(path).schema
        change(pl.read_parquet(path)).cast(dict(schema)).write_parquet(path, compression="zstd")
        for csv in folder.rglob("*.csv"):
            csv.unlink()
        (folder / "metadata.json").unlink(missing_ok=True)
        with_sums(folder)

    return of_folder


def with_sums(folder: Path) -> None:
    """Write the checksums of a folder as it is now."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "SHA256SUMS"]
    lines = (f"{sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in files)
    (folder / "SHA256SUMS").write_text("".join(lines))
