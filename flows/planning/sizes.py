"""Group sizes in plans: how far one unit moves what is measured, in words, and the memory that settling takes."""

from storage.errors import SpecError
from tasks.accounting.sensitivity import ADD_REMOVE, Sensitivity
from tasks.capacity import default_memory
from tasks.tree.order import Tree
from tasks.words.numbers import format_cells, rounded_down, rounded_up

_OF_CELL = (
    200  # bytes: of the arrays of settling, per finest region and size, as benchmarks/group_sizes.py measures them
)

_MOVED: dict[str, str] = {
    "tails": "lowers one number of groups of at least some size by 1",
    "sizes": "makes a group of one size a group of another, and so moves two numbers by 1",
    "chain": "lowers as many running sums by 1 as there are regions",
}


def derivation(statistic: str, moved: Sensitivity, neighbours: str, max_records: int, norm: int) -> str:
    """Return in one line how far one unit moves a level of group sizes, for plans and manifests.

    Args:
        statistic: what is measured.
        moved: how far one unit moves it.
        neighbours: the relation.
        max_records: of one unit.
        norm: which norm the noise depends on.
    """
    leaves = (
        "records of one unit come or go"
        if neighbours == ADD_REMOVE
        else "records of one unit leave groups and others enter"
    )
    total = f"Δ₁ = {moved.l1}" if norm == 1 else f"Δ₂² = {moved.l2_squared}"
    return f"{leaves}, at most {max_records}, and each {_MOVED[statistic]}: {total}"


def check_memory_of_sizes(tree: Tree, max_memory: int | None) -> None:
    """Refuse regions and sizes of which settling may take more memory than a release has."""
    cells, memory = tree.possible_cells(tree.depth), max_memory or default_memory()
    if cells * _OF_CELL > memory:
        raise SpecError(
            f"run.max_memory must be at least {rounded_up(cells * _OF_CELL / 1e9, 3)}GB: so much memory may settling"
            f" {format_cells(cells)} regions times sizes take, got {rounded_down(memory / 1e9, 3)}GB.",
            field="run.max_memory",
            hint="Raise run.max_memory if the machine has as much, choose a smaller release.group_sizes.largest, or a coarser region.",
        )
