"""The made-up survey: its shape, the spec beside it, and that a seed draws it again."""

from pathlib import Path

import numpy as np
import pytest

from flows.spec.file import load_spec
from flows.synthetic import synthesise_answer
from storage.errors import UsageError
from tasks.synthesize.survey import AREAS, TRIPS, draw_survey


def test_most_pairs_of_zones_have_no_trip() -> None:
    """150 zones in nested areas, 45,000 trips, fewer than half of the pairs; equal seeds draw equal surveys."""
    drawn, again = (draw_survey(generator=np.random.default_rng(3)) for _ in range(2))
    assert [codes.n_unique() for codes in drawn.codebook] == list(AREAS.values())
    assert drawn.codebook.columns == list(AREAS)
    assert drawn.trips["people"].sum() == TRIPS
    assert 0.2 < drawn.trips.height / AREAS["zone"] ** 2 < 0.5
    assert again.trips.equals(drawn.trips)
    assert not draw_survey(generator=np.random.default_rng(4)).trips.equals(drawn.trips)


def test_a_survey_comes_with_a_spec(tmp_path: Path) -> None:
    """The spec is ready to release it, protects one respondent, and a density is refused."""
    drawn = synthesise_answer("survey", None, tmp_path / "survey", 1)
    spec = load_spec(Path(drawn.spec)).spec
    assert (drawn.set, drawn.areas, drawn.people) == ("survey", 150, TRIPS)
    assert (spec.name, spec.privacy.unit, spec.public_data) == ("survey", "one respondent", True)
    with pytest.raises(UsageError, match="a survey has none, got dense"):
        synthesise_answer("survey", "dense", tmp_path / "other", 1)
