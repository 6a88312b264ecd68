"""The files of published levels: one Parquet file of a small level, and a folder of parts of a large one."""

from pathlib import Path

PART_ROWS = 250_000  # of a part, and of a level that is one file

COUNTS = "counts"  # the folder


def part_count(rows: int) -> int:
    """Return how many parts a level of so many rows has; 0 where it is one file."""
    return -(-rows // PART_ROWS) if rows > PART_ROWS else 0


def level_path(level: int, parts: int) -> str:
    """Return the path of a level in a published folder: that of its file, or of the folder of its parts."""
    return f"{COUNTS}/level_{level}" if parts else f"{COUNTS}/level_{level}.parquet"


def level_files(level: int, parts: int) -> list[str]:
    """Return the paths of the files of a level in a published folder, in the order of their rows, which is that of their names."""
    path = level_path(level, parts)
    digits = max(4, len(str(parts - 1)))
    return [f"{path}/part-{number:0{digits}}.parquet" for number in range(parts)] or [path]


def level_csv(level: int) -> str:
    """Return the path of a level as CSV in a published folder: one file, however large the level is."""
    return f"{COUNTS}/level_{level}.csv"


def files_there(folder: Path, level: int) -> list[Path]:
    """Return the files of a level that a complete published folder has, in the order of their rows."""
    parts = len(list((folder / level_path(level, 1)).glob("part-*.parquet")))
    return [folder / name for name in level_files(level, parts)]
