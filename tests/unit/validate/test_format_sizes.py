"""The bytes that more kinds of files are expected to take, held to what Rhode Island's jobs took down to block groups."""

import pytest

from tasks.validate.format_sizes import bytes_of_formats

ROWS = [1.0, 5, 29, 1_136, 21_385, 44_443, 73_715]  # of levels 0 to 6
MEASURED = {"xlsx": 5_257_058, "omx": 991_054, "sdmx": 15_397_000}
KEYS = {"areas": 2 * 1_064, "row_bytes": 45.0, "most_sheet_rows": 1_048_575}


@pytest.mark.parametrize("name", MEASURED)
def test_a_known_release_comes_near(name: str) -> None:
    """What a release of Rhode Island took is within a quarter of what is expected of its rows."""
    expected = bytes_of_formats([name], ROWS, {2: 5, 4: 244, 6: 815}, **KEYS)
    assert expected == pytest.approx(MEASURED[name], rel=0.25)


def test_what_is_not_written_takes_nothing() -> None:
    """Without more formats there are no bytes, and a table that gets no sheet adds none to the workbook."""
    assert bytes_of_formats([], ROWS, {}, **KEYS) == 0
    small = bytes_of_formats(["xlsx"], ROWS, {}, **KEYS)
    assert bytes_of_formats(["xlsx"], [*ROWS, 1_200_000], {}, **KEYS) == small
    assert bytes_of_formats(["sdmx"], [*ROWS, 1_200_000], {}, **KEYS) > bytes_of_formats(["sdmx"], ROWS, {}, **KEYS)
