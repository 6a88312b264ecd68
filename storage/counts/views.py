"""Readable names of published levels in the store: views beside `level_0`, `level_1`, …"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from storage.counts.columns import ENDS, column_name

_MOST_BYTES = 63  # of a name: the limit of other databases


def level_views(
    levels: Sequence[Mapping[str, str | None]], flat: Collection[str] = (), taken: Collection[str] = ()
) -> list[str]:
    """Return the names of the views of a release's levels: `total`, then `<origin>_to_<destination>` or `by_<features>`.

    No two names are the same, whatever the case of their letters. A name ends with the level's number if it would otherwise
    repeat another or one that is taken, or if it is cut because it is too long.

    Args:
        levels: per level, by axis the name of the axis level reached, None where it is not refined yet.
        flat: the features that have one level.
        taken: names that no view can have.
    """
    wanted = [_wanted(axes, flat) for axes in levels]
    seen = Counter(name.casefold() for name in wanted)
    not_free = {name.casefold() for name in taken}
    alone = [
        seen[name.casefold()] == 1 and name.casefold() not in not_free and len(name.encode()) <= _MOST_BYTES
        for name in wanted
    ]
    not_free |= {name.casefold() for name, is_alone in zip(wanted, alone, strict=True) if is_alone}
    names = []
    for level, (name, is_alone) in enumerate(zip(wanted, alone, strict=True)):
        numbered, digits = name, f"_{level}"
        while not is_alone and (numbered == name or numbered.casefold() in not_free):
            cut = name.encode()[: _MOST_BYTES - len(digits)].decode(errors="ignore")
            numbered, digits = cut + digits, f"{digits}_{level}"
        not_free.add(numbered.casefold())
        names.append(numbered)
    return names


def _wanted(axes: Mapping[str, str | None], flat: Collection[str]) -> str:
    if not any(axes.values()):
        return "total"
    if tuple(axes) == ENDS:
        return "_to_".join(axes[end] or "all" for end in ENDS)
    return "_".join(["by", *(column_name(axis, level, flat) for axis, level in axes.items() if level)])
