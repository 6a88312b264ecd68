"""Ordered axes: the laws of the levels that halving makes, against lists of codes; and what is refused."""

import math
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from flows.specification.sections.hierarchy import Ordered
from tasks.tree.axis import axis_from_codebook
from tasks.tree.ordered import OrderedAxis, codes_apart, goes_round, ordered_axis, ordered_codes

DAYS = {"first": "2024-01-01", "last": "2024-03-01"}


@given(st.integers(1, 300), st.integers(2, 9))
def test_an_axis_is_halved_into_parts_of_nearly_one_size(codes, branching):
    """Runs of a level cover the codes, in order; parts of one run differ by at most one; all codes are at the last level."""
    axis = ordered_axis("age", {"ordered": codes, "branching": branching})
    assert len(axis.runs) == max(1, math.ceil(round(math.log(codes, branching), 9)))
    above = np.zeros(1, dtype=np.int64)
    for starts in axis.runs:
        assert starts[0] == 0
        assert (np.diff(starts) > 0).all()
        assert np.isin(above, starts).all()
        ends = np.append(starts[1:], codes)
        for first, end in zip(above, np.append(above[1:], codes), strict=True):
            inside = (starts >= first) & (starts < end)
            sizes = (ends - starts)[inside]
            assert len(sizes) == min(branching, end - first)
            assert sizes.max() - sizes.min() <= 1
        above = starts
    assert len(above) == codes


@settings(max_examples=60)
@given(st.integers(1, 200), st.integers(2, 5))
def test_codes_of_levels_are_the_ends_of_their_runs_in_the_order_of_the_axis(codes, branching):
    """An area of a made level is called first..last, a leaf by its code, and areas are numbered in the order of their codes."""
    # The levels that a spec lists, without the codebook, are those of the axis.
    made = OrderedAxis("age", tuple(map(str, range(codes))), branching)
    axis = axis_from_codebook("age", made.codebook())
    assert axis.level_names == made.level_names
    assert axis.level_names[-1] == "age"
    assert axis.codes[-1].to_list() == list(made.codes)
    for level, (of_level, starts) in enumerate(zip(axis.codes[:-1], made.runs, strict=False), 1):
        assert axis.level_names[level - 1] == f"age_{level}"
        ends = np.append(starts[1:], codes) - 1
        assert of_level.to_list() == [f"{first}..{last}" for first, last in zip(starts, ends, strict=True)]
        assert (axis.first_descendants(level, axis.depth)[:-1] == starts).all()
    keys = Ordered(ordered=codes, branching=branching)
    assert keys.levels("age") == list(keys.axis("age").level_names) == list(made.level_names)
    assert len(set(made.level_names)) == len(made.level_names)


def test_calendar_levels_stand_above_the_made_ones():
    """Days lie in their month and quarter of their year; no made area crosses the end of a month."""
    keys = {"ordered": {"first": "2024-01-15", "last": "2026-03-02"}, "calendar": ["year", "quarter", "month"]}
    codebook = ordered_axis("day", keys).codebook()
    assert codebook.columns == ["year", "quarter", "month", "day_1", "day_2", "day_3", "day_4", "day"]
    days = [date(2024, 1, 15) + timedelta(of) for of in range(778)]
    assert codebook["day"].to_list() == [f"{day}" for day in days]
    assert codebook["year"].to_list() == [f"{day.year}" for day in days]
    assert codebook["quarter"].to_list() == [f"{day.year}-Q{(day.month + 2) // 3}" for day in days]
    assert codebook["month"].to_list() == [f"{day}"[:7] for day in days]
    assert (codebook["day_1"].str.head(7) == codebook["day_1"].str.slice(12, 7)).all()


def test_weeks_begin_on_mondays_and_lie_in_no_month():
    """Weeks above days hold seven days from a Monday on; weeks as codes are the same, also where a year ends."""
    days = {"first": "2024-12-20", "last": "2025-01-12"}
    codebook = ordered_axis("day", {"ordered": days, "calendar": ["week"]}).codebook()
    weeks = ("2024-W51", "2024-W52", "2025-W01", "2025-W02")
    assert codebook["week"].to_list() == [weeks[(place + 4) // 7] for place in range(24)]
    assert (
        ordered_codes(days | {"step": "week"})
        == weeks
        == ordered_codes({"first": weeks[0], "last": weeks[-1], "step": "week"})
    )


@given(st.integers(1, 99), st.integers(2, 9), st.integers(1, 3), st.sampled_from([None, "other", "unknown 0"]))
def test_codes_beside_the_order_are_alone_at_every_level(codes, branching, beside, unlisted):
    """The order is halved as it is without them, and they are areas of their own behind it."""
    without = ordered_axis("age", {"ordered": codes, "branching": branching})
    ordered = {"codes": codes, "beside": [f"unknown {number}" for number in range(beside)]}
    keys = {"ordered": ordered, "branching": branching, "unlisted": unlisted}
    apart = codes_apart(keys)
    assert apart == beside + (unlisted == "other")
    expected = [[*of, *range(codes, codes + apart)] for of in without.runs]
    assert [of.tolist() for of in ordered_axis("age", keys).runs] == expected


def test_numbers_may_go_from_first_to_last_in_steps():
    """Codes of {first, last, step} are the numbers between them; those of a number begin at 0."""
    assert ordered_codes({"first": 0, "last": 1, "step": 0.25}) == ("0", "0.25", "0.5", "0.75", "1")
    assert ordered_codes({"first": 0, "last": 0.3, "step": 0.1}) == ("0", "0.1", "0.2", "0.3")
    assert ordered_codes({"first": 18, "last": 21}) == ("18", "19", "20", "21")
    assert ordered_codes({"first": -200, "last": 250, "step": 100}) == ("-200", "-100", "0", "100", "200")
    assert ordered_codes(3) == ("0", "1", "2")
    assert ordered_codes({"first": "2024-02-28", "last": "2024-03-01"}) == ("2024-02-28", "2024-02-29", "2024-03-01")


def test_the_hash_tells_axes_apart():
    """Other codes, another order, other parts or other calendar levels give another hash."""
    axes = [
        *({"ordered": ["a", "b", "c"]}, {"ordered": ["b", "a", "c"]}, {"ordered": ["a", "b", "c"], "branching": 3}),
        *({"ordered": DAYS}, {"ordered": DAYS, "calendar": ["month"]}, {"ordered": 100}),
    ]
    hashes = [ordered_axis("axis", keys).sha256 for keys in axes]
    assert len(set(hashes)) == len(axes)
    assert ordered_axis("other", axes[0]).sha256 == hashes[0]


@pytest.mark.parametrize(("keys", "said"), [
    ({"ordered": 0}, "must be a number of codes >= 1"),
    ({"ordered": 2**20 + 1}, "must have at most 2**20 codes"),
    ({"ordered": ["a", "b", "a"]}, "must list each code once, in their order"),
    ({"ordered": ["a", " "]}, "no blank code"),
    ({"ordered": ["a", "b..c"]}, "without .."),
    ({"ordered": {"first": 5, "last": 4}}, "a last that is not before first"),
    ({"ordered": {"first": 1, "last": 9, "step": 0}}, "a step that is a number above 0"),
    ({"ordered": {"first": "2024-02-01", "last": "2024-03-01", "step": 7}}, "step day"),
    ({"ordered": {"first": "2024-02-30", "last": "2024-03-01"}}, "as two days such as"),
    ({"ordered": {"first": 1, "end": 9}}, "must have the keys first, last and step"),
    ({"ordered": {"codes": 3, "beside": ["1"]}}, "beside the order that are none of it"),
    ({"ordered": {"codes": 3, "beside": 4}}, "a list of codes beside the order"),
    ({"ordered": {"codes": 3, "last": 4}}, "either codes, or first and last"),
    ({"ordered": DAYS, "calendar": ["month", "week"]}, "week alone"),
    ({"ordered": 9, "branching": 1}, "greater than or equal to 2"),
    ({"ordered": 9, "calendar": ["month"]}, "calendar must be left out unless"),
    ({"ordered": DAYS, "calendar": ["month", "year"]}, "calendar must list levels from coarse to fine"),
    ({"ordered": 9, "levels": ["a"]}, "Extra inputs"),
])  # fmt: skip
def test_what_names_no_ordered_codes_is_refused(keys, said):
    """Each wrong key is refused with its rule."""
    with pytest.raises(ValidationError) as refused:
        Ordered.model_validate(keys)
    assert said in " ".join(fault["msg"] for fault in refused.value.errors())


FRENCH_MONTHS = "janv févr mars avr mai juin juil août sept oct nov déc"
HALF_HOURS = [f"{hour:02}:{half}" for hour in range(24) for half in ("00", "30")]


@pytest.mark.parametrize(("name", "domain", "is_round"), [
    ("hour", {"ordered": 24}, True),
    ("departure hour", {"ordered": [f"{hour:02}" for hour in range(24)]}, True),
    ("start", {"ordered": 24, "from": {"column": "started_at", "take": "hour"}}, True),
    ("weekday", {"ordered": 7}, True),
    ("day", {"ordered": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]}, True),
    ("day", {"ordered": ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]}, True),
    ("month", {"ordered": {"first": 1, "last": 12}}, True),
    ("period", {"ordered": HALF_HOURS}, True),
    ("shift", {"ordered": ["06:00", "14:00", "22:00"]}, True),
    *((name, {"ordered": 24}, True) for name in ("hour_of_day", "departureHour", "HourOfDay", "hour_start", "dep_hr", "heure", "ora")),
    *((name, {"ordered": 7}, True) for name in ("day_of_week", "dow", "DayOfWeek", "weekday_arrival")),
    ("month_of_year", {"ordered": {"first": 1, "last": 12}}, True),
    ("when", {"ordered": [f"{hour:02}h" for hour in range(24)]}, True),
    ("tag", {"ordered": ["Mo", "Di", "Mi", "Do", "Fr", "Sa", "So"]}, True),
    ("giorno", {"ordered": ["domenica", "lunedì", "martedì", "mercoledì", "giovedì", "venerdì", "sabato"]}, True),
    ("mois", {"ordered": FRENCH_MONTHS.split()}, True),
    ("season", {"ordered": 4, "round": True}, True),
    ("hour", {"ordered": 24, "round": False}, False),
    ("hour", {"ordered": 24, "unlisted": "OTHER"}, False),  # which is behind 23
    ("hour", {"ordered": {"codes": 24, "beside": ["unknown"]}, "unlisted": "OTHER"}, True),
    *((name, {"ordered": 24}, False) for name in ("waiting_hours", "hours", "wait_hour", "hour_worked")),
    *((name, {"ordered": 60}, False) for name in ("trip_minutes", "wait_minute", "minutes")),
    ("tenure_months", {"ordered": 12}, False),
    ("travel minute", {"ordered": 60}, False),
    ("month", {"ordered": [f"2024-{month:02}" for month in range(1, 13)]}, False),
    ("start", {"ordered": [f"{month:02}/2023" for month in range(1, 13)], "from": {"take": "month"}}, False),
    ("quarter", {"ordered": [f"2024-Q{quarter}" for quarter in range(1, 5)]}, False),
    ("mois", {"ordered": [f"{month} 2024" for month in FRENCH_MONTHS.split()]}, False),
    ("hour", {"ordered": [f"{hour:02}00-{hour:02}59" for hour in range(24)]}, True),
    ("day", {"ordered": ["Fri", "Mon", "Sat", "Sun", "Thu", "Tue", "Wed"]}, False),
    ("hour", {"ordered": 27}, False),  # of a timetable, whose day goes on after midnight
    ("hour", {"ordered": 12}, False),
    ("age", {"ordered": 24}, False),
    ("period", {"ordered": HALF_HOURS[16:20]}, False),
    ("day", {"ordered": {"first": "2026-01-01", "last": "2026-01-07"}}, False),
    ("month", {"ordered": {"first": "2026-01-01", "last": "2026-12-31"}}, False),
])  # fmt: skip
def test_clocks_and_calendars_go_round(name, domain, is_round):
    """An axis with all hours, weekdays, months or times of a day goes round; one that has a part of them, or days, does not."""
    assert goes_round(name, domain) == is_round
