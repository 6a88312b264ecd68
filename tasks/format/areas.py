"""The areas of published tables as numbers, learnt from the tables alone: no codebook is at hand."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.tree.axis import IntArray
from tasks.tree.keys import AreaArray

Numbers = NDArray[np.int32]

_LARGEST_KEY = 2**63 - 1


class AxisAreas:
    """The areas of one axis, numbered level by level in the order in which they are first met.

    A number stands for a path of codes, from the coarsest level to its own, in whatever table it is met.
    """

    def __init__(self) -> None:
        self._levels: list[_Level] = []

    def number(self, rows: int, columns: Sequence[pa.DictionaryArray]) -> tuple[Numbers, IntArray]:
        """Return the areas of some rows, and their rank among these rows by the text of their codes.

        Args:
            rows: how many.
            columns: the codes of levels 1, 2, …, shape (rows,) each, if any. A code may be missing: it is one of its own, and
                comes first.
        Returns:
            The number of the area of the last of these levels, int32, shape (rows,); and int64, shape (rows,), equal where
            areas are equal, and greater where the path of codes comes later.
        """
        if not columns:
            return np.zeros(rows, dtype=np.int32), np.zeros(rows, dtype=np.int64)
        while len(self._levels) < len(columns):
            self._levels.append(_Level())
        codes = [_index(column) for column in columns]
        ranks = _ranks(columns, codes)
        row_of_area, area_of_row = _distinct(ranks, codes[-1], len(columns[-1].dictionary) + 1)
        numbers = np.zeros(len(row_of_area), dtype=np.int32)
        for level, column, of_row in zip(self._levels, columns, codes, strict=False):
            numbers = level.areas(numbers, level.codes(column.dictionary)[of_row[row_of_area]])
        return numbers[area_of_row], ranks

    def known(self, level: int) -> int:
        """Return how many areas of a level were met; level 0 has one."""
        return len(self._levels[level - 1].parent) if level else 1

    def ancestors(self, areas: AreaArray, level: int, above: int) -> AreaArray:
        """Return, for areas numbered at `level`, the areas that hold them at the level `above`."""
        for step in range(level, above, -1):
            areas = self._levels[step - 1].parent[areas]
        return areas


class _Level:
    """The codes of one axis level, and its areas: a code below a parent.

    Attributes:
        parent: per area, the area that holds it, one level up.
    """

    def __init__(self) -> None:
        self.parent: Numbers = np.empty(0, dtype=np.int32)
        self._code: Numbers = np.empty(0, dtype=np.int32)  # per area
        self._latest: Numbers = np.zeros(1, dtype=np.int32)  # per code, an area that has it, if any has
        self._keys: IntArray = np.empty(0, dtype=np.int64)  # of all areas, sorted
        self._areas: Numbers = np.empty(0, dtype=np.int32)  # to which they belong
        self._texts = pa.array([], pa.string())

    def codes(self, texts: pa.Array) -> Numbers:
        """Return the numbers of some codes, behind that of a missing one, which is 0: shape (texts + 1,)."""
        texts = texts.cast(pa.string())
        found = pc.index_in(texts, value_set=self._texts)
        if found.null_count:
            new = texts.filter(found.is_null())
            added = new.unique()
            found = pc.replace_with_mask(
                found,
                found.is_null(),
                pc.add(pc.index_in(new, value_set=added), pa.scalar(len(self._texts), pa.int32())),
            )
            self._texts = pa.concat_arrays([self._texts, added])
        return np.concatenate(([0], found.to_numpy() + 1), dtype=np.int32)

    def areas(self, parents: Numbers, codes: Numbers) -> Numbers:
        """Return the areas that have these codes below these parents; those that are met for the first time are added."""
        if len(self._texts) >= len(self._latest):
            grown = np.zeros(len(self._texts) + 1 - len(self._latest), dtype=np.int32)
            self._latest = np.concatenate((self._latest, grown))
        if len(self.parent):  # mostly a code has one parent
            guessed = self._latest[codes]
            if ((self.parent[guessed] == parents) & (self._code[guessed] == codes)).all():
                return guessed
        paths: IntArray = (parents.astype(np.int64) << 32) + codes
        keys, which = np.unique(paths, return_inverse=True)
        place = np.searchsorted(self._keys, keys)
        new = np.ones(len(keys), dtype=bool)
        inside = place < len(self._keys)
        new[inside] = self._keys[place[inside]] != keys[inside]
        added = np.arange(len(self.parent), len(self.parent) + np.count_nonzero(new), dtype=np.int32)
        self._keys = np.insert(self._keys, place[new], keys[new])
        self._areas = np.insert(self._areas, place[new], added)
        self.parent = np.concatenate((self.parent, (keys[new] >> 32).astype(np.int32)))
        self._code = np.concatenate((self._code, (keys[new] & (2**32 - 1)).astype(np.int32)))
        self._latest[self._code[added]] = added
        return self._areas[np.searchsorted(self._keys, keys)][which]


def _index(column: pa.DictionaryArray) -> IntArray:
    """Return, per row, the position of its code in the dictionary plus one; 0 where it is missing."""
    indices: IntArray = pc.fill_null(column.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return indices + 1


def _ranks(columns: Sequence[pa.DictionaryArray], codes: Sequence[IntArray]) -> IntArray:
    ranks, size = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column, of_row in zip(columns, codes, strict=True):
        texts = column.dictionary
        if size * (len(texts) + 1) > _LARGEST_KEY:
            seen, ranks = np.unique(ranks, return_inverse=True)
            size = len(seen)
        ranks *= len(texts) + 1
        ranks += _order_of_texts(texts)[of_row]
        size *= len(texts) + 1
    return ranks


def _order_of_texts(texts: pa.Array) -> IntArray:
    """Return the ranks of some codes from 1 on, the same where they are the same, behind that of a missing one, 0."""
    if pc.all(pc.less(texts[:-1], texts[1:])).as_py() is not False:  # as they are written
        return np.arange(len(texts) + 1)
    return np.concatenate(([0], pc.rank(texts, tiebreaker="dense").to_numpy()), dtype=np.int64)


def _distinct(ranks: IntArray, finest: IntArray, codes: int) -> tuple[IntArray, IntArray]:
    """Return a row of every area, and per row which of them is its area.

    Args:
        ranks: per row, equal where areas are equal.
        finest: per row, its code of the finest level, of which mostly no two areas have the same.
        codes: how many codes there are.
    """
    row_of_code = np.full(codes, -1)
    row_of_code[finest] = np.arange(len(ranks))
    if not (ranks[row_of_code[finest]] == ranks).all():
        _, rows, areas = np.unique(ranks, return_index=True, return_inverse=True)
        return rows, areas
    occurs = row_of_code >= 0
    return row_of_code[occurs], (np.cumsum(occurs) - 1)[finest]
