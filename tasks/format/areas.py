"""The areas of published tables as numbers, read from the tables alone, without a codebook."""

from collections.abc import Sequence
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.tree.axis import IntArray
from tasks.tree.keys import AreaArray

Numbers = NDArray[np.int32]

_LARGEST_KEY = 2**63 - 1


class AxisAreas:
    """The areas of one axis, numbered at each level in the order in which they first appear.

    A number stands for the same path of codes, from the coarsest level to the area's own, in every table. Threads may number the areas of
    several parts of a table at once.
    """

    def __init__(self, order: Sequence[pa.Array] = ()) -> None:
        """Know no area yet.

        Args:
            order: of an ordered axis, the codes of levels 1, 2, … in their order, text; other axes are in the order of their codes.
        """
        self._levels: list[_Level] = []
        self._order = order
        self._lock = Lock()

    def sorts_as(self, codes: Sequence[str | None]) -> list[tuple[bool, str | int]]:
        """Return what stands for a path of codes where rows are compared; a missing code comes first."""
        if not self._order:
            return [(code is not None, code or "") for code in codes]
        places = (of.index(code).as_py() for of, code in zip(self._order, codes, strict=False))
        return [(place >= 0, place) for place in places]

    def number(self, rows: int, columns: Sequence[pa.DictionaryArray]) -> tuple[Numbers, IntArray]:
        """Return the areas of rows, and their ranks among these rows, by the text of their codes or by the order of the axis.

        Args:
            rows: the number of rows.
            columns: the codes of levels 1, 2, …, shape (rows,) each, if any. A missing code is a code of its own and comes
                first.
        Returns:
            The number of the area at the last of these levels, int32, shape (rows,). And the ranks, int64, shape (rows,): equal
            where areas are equal, and greater where the path of codes comes later. A code that an ordered axis does not list ranks
            as a missing one.
        """
        if not columns:
            return np.zeros(rows, dtype=np.int32), np.zeros(rows, dtype=np.int64)
        codes: list[IntArray] = [  # by their places in the dictionary, from 1 on; 0 for a missing code
            pc.fill_null(column.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False) + 1 for column in columns
        ]
        ranks = _ranks(columns, codes, self._order)
        row_of_area, area_of_row = _distinct(ranks, codes[-1], len(columns[-1].dictionary) + 1)
        numbers = np.zeros(len(row_of_area), dtype=np.int32)
        with self._lock:
            while len(self._levels) < len(columns):
                self._levels.append(_Level())
            for level, column, of_row in zip(self._levels, columns, codes, strict=False):
                numbers = level.areas(numbers, level.codes(column.dictionary)[of_row[row_of_area]])
        return numbers[area_of_row], ranks

    def known(self, level: int) -> int:
        """Return how many areas of a level have appeared; level 0 has one."""
        return len(self._levels[level - 1].parent) if level else 1

    def ancestors(self, areas: AreaArray, level: int, above: int) -> AreaArray:
        """Return, for areas numbered at `level`, the areas at the level `above` that contain them."""
        for step in range(level, above, -1):
            areas = self._levels[step - 1].parent[areas]
        return areas


class _Level:
    """The codes of one axis level, and its areas: pairs of a parent and a code.

    Attributes:
        parent: per area, the area one level up that contains it.
    """

    def __init__(self) -> None:
        self.parent: Numbers = np.empty(0, dtype=np.int32)
        self._code: Numbers = np.empty(0, dtype=np.int32)  # per area
        self._latest: Numbers = np.zeros(1, dtype=np.int32)  # per code, an area that has it, if any has
        self._keys: IntArray = np.empty(0, dtype=np.int64)  # of all areas, sorted
        self._areas: Numbers = np.empty(0, dtype=np.int32)  # to which they belong
        self._texts = pa.array([], pa.string())

    def codes(self, texts: pa.Array) -> Numbers:
        """Return the numbers of codes, after 0 for a missing code; shape (texts + 1,)."""
        texts = texts.cast(pa.string())
        numbers = pc.index_in(texts, value_set=self._texts)
        if numbers.null_count:
            new = texts.filter(numbers.is_null())
            added = new.unique()
            numbers = pc.replace_with_mask(
                numbers,
                numbers.is_null(),
                pc.add(pc.index_in(new, value_set=added), pa.scalar(len(self._texts), pa.int32())),
            )
            self._texts = pa.concat_arrays([self._texts, added])
        return np.concatenate(([0], numbers.to_numpy() + 1), dtype=np.int32)

    def areas(self, parents: Numbers, codes: Numbers) -> Numbers:
        """Return the areas that have these codes below these parents, and add the new ones."""
        if len(self._texts) >= len(self._latest):
            grown = np.zeros(len(self._texts) + 1 - len(self._latest), dtype=np.int32)
            self._latest = np.concatenate((self._latest, grown))
        if len(self.parent):  # most codes have one parent
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


def _ranks(columns: Sequence[pa.DictionaryArray], codes: Sequence[IntArray], order: Sequence[pa.Array]) -> IntArray:
    ranks, size = np.zeros(len(columns[0]), dtype=np.int64), 1
    for level, (column, of_row) in enumerate(zip(columns, codes, strict=True)):
        texts = column.dictionary
        of_texts = _places_in(order[level], texts) if order else _order_of_texts(texts)
        most = (len(order[level]) if order else len(texts)) + 1
        if size * most > _LARGEST_KEY:
            seen, ranks = np.unique(ranks, return_inverse=True)
            size = len(seen)
        ranks *= most
        ranks += of_texts[of_row]
        size *= most
    return ranks


def _places_in(order: pa.Array, texts: pa.Array) -> IntArray:
    """Return the places of codes in an order from 1 on, after 0 for a missing code; 0 for a code that is not there."""
    places = pc.index_in(texts.cast(pa.string()), value_set=order.cast(pa.string()))
    return np.concatenate(([0], pc.fill_null(places, -1).to_numpy() + 1), dtype=np.int64)


def _order_of_texts(texts: pa.Array) -> IntArray:
    """Return the ranks of codes from 1 on, equal for equal codes, after 0 for a missing code."""
    if pc.all(pc.less(texts[:-1], texts[1:])).as_py() is not False:  # already sorted
        return np.arange(len(texts) + 1)
    return np.concatenate(([0], pc.rank(texts, tiebreaker="dense").to_numpy()), dtype=np.int64)


def _distinct(ranks: IntArray, finest: IntArray, codes: int) -> tuple[IntArray, IntArray]:
    """Return one row of every area, and for each row the position of its area in that list.

    Args:
        ranks: per row, equal where areas are equal.
        finest: per row, its code at the finest level; in most tables no two areas share one.
        codes: the number of codes.
    """
    row_of_code = np.full(codes, -1)
    row_of_code[finest] = np.arange(len(ranks))
    if not (ranks[row_of_code[finest]] == ranks).all():
        _, rows, areas = np.unique(ranks, return_index=True, return_inverse=True)
        return rows, areas
    occurs = row_of_code >= 0
    return row_of_code[occurs], (np.cumsum(occurs) - 1)[finest]
