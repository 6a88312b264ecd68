"""What outputs say is true of the family that they are about: a matrix of statements and families, and the numbers in them."""

import re

import pytest

from flows.answers.query import query_answer
from tasks.pages.explorer.payload import payload
from tasks.released.sources.folder import open_folder
from tests.support.library import FAMILIES, OF_HOMES
from tests.support.reports import read

# the families, a column each, in this order
COLUMNS = {
    "walked": "W", "walked with Laplace noise": "w", "two passes": "2", "shrunk": "S", "leaves": "L",
    "leaves with a threshold": "T", "settled together": "V", "calibrated": "C", "unbiased tree": "U", "grid": "G",
    "sizes by tails": "t", "sizes within a list": "l", "sizes by themselves": "s", "sizes by a chain": "c",
    "unbiased tree with views": "B", "ranges of three": "R",
}  # fmt: skip

# what may be said, as a pattern: the families of which it is true and which say it, and those of which it is false. Of the others it is
# true, or does not apply, and they need not say it.
STATEMENTS = {
    # what a count is
    r"[Ee]very count is a whole number,? above zero|size in a region: a whole number above zero": ("Ww2STVCtlsc", "LUGBR"),
    r"may be below zero|may be negative": ("LUGBR", "Ww2STVCtlsc"),
    r"adjusts them|(are|were|counts) adjusted|and adjusted so|, adjusted so": ("Ww2SVCtlsc", "LTUGBR"),
    r"moves many small counts to zero": ("Ww2SVCtlsc", "LTUGBR"),
    r"They are not adjusted": ("UGBR", "Ww2SVCtlsc"),
    r"A row that is present has records": ("T", "Ww2SLVCUGBRtlsc"),
    r"A row that is present may be noise alone": ("Ww2SLVCUGBRtlsc", "T"),
    r"missing row stands for a released count of zero": ("Ww2SLVCUGBRtlsc", "T"),
    r"too few for the threshold": ("T", "Ww2SLVCUGBRtlsc"),
    r"Smallest count kept": ("T", "Ww2SLVCUGBRtlsc"),
    r"counts of every level add up to those of the level above": ("Ww2SLTVCUGBRtlsc", ""),
    r"The sums of the finest level differ from their tables": ("C", "Ww2SLTVUGBRtlsc"),
    r"released number of records": ("Ww2SLTVCUGBR", "tlsc"),
    r"records</b> counted|\d records counted by": ("Ww2SLTVCUGBR", "tlsc"),
    r"\d groups counted by": ("tlsc", "Ww2SLTVCUGBR"),
    # what the total is
    r"with noise of σ": ("", "2SLTVCUGBRtlsc"),
    r"exact, because it is public": ("w2l", "WSLTVCUGBRtsc"),
    r"The total is the sum of the counts of the finest level, not the number of records": ("LT", "Ww2SVCUGBRtlsc"),
    r"the sum of noisy counts": ("LT", "Ww2SVCUGBRtlsc"),
    r"with a standard deviation of": ("UGBR", "Ww2SLTVCtlsc"),
    # what was measured, and how counts come from it
    r"Only the finest level is measured": ("LT", "Ww2SVCUGBRtlsc"),
    r"[Ee]very cell of every level (was|is) measured|Every level is measured": ("SUGB", "Ww2LTVCtlscR"),
    r"children of what survives": ("2C", "LTVUGBRtlsc"),
    r"estimated from its own measurement and those below it": ("2S", "WwLTVUGBRtlsc"),
    r"drawn towards what its level shows": ("S", "Ww2LTVCUGBRtlsc"),
    r"settled together with all levels and views": ("V", "Ww2SLTCUGBRtlsc"),
    r"calibrated to": ("C", "Ww2SLTVUGBRtlsc"),
    r"A released count is settled from all measurements": ("UGBR", "Ww2SLTVCtlsc"),
    r"come from the measurements of all levels, adjusted": ("tlsc", "Ww2SLTVCUGBR"),
    r"before the counts were adjusted to add up": ("", "LT"),
    r"Bias: released minus noisy counts": ("Ww2SVC", "LTUGBRtlsc"),
    r"\| bias \|": ("Ww2SVC", "LTUGBRtlsc"),
    # how far off counts can be
    r"within the level's error bound of its true count": ("WwLUGBR", "2STVCtlsc"),
    r"bound as released": ("Ww2SC", "LTVUGBRtlsc"),
    r"no error bound is (stated|known)": ("2SVCtlsc", "WwLUGBR"),
    r"Of the rows of a level, on average at most": ("Ww2SLVCtlsc", "TUGBR"),
    r"Of the rows of a level, the expected number of those that miss": ("UGBR", "Ww2SLTVCtlsc"),
    r"For the rows of a table together nothing is promised": ("T", "Ww2SLVCUGBRtlsc"),
    r"their noise was high": ("", "Ww2SLTVCUGBRtlsc"),
    r"Sums have no interval": ("T", "Ww2SLVCUGBRtlsc"),
    r"sd of a count": ("UGBR", "Ww2SLTVCtlsc"),
    r"is within ± [\d,]+(?: to ± [\d,]+)? of what is measured of it": ("Ww2SC", "UGBR"),
    r"is within ± [\d,]+(?: to ± [\d,]+)? of its count": ("UGBR", "Ww2SVC"),
    r"bear less noise than those of one size": ("tl", "Ww2SLTVCUGBRsc"),
    r"at a level marked as a sum": ("Vtsc", "Ww2SLTCUGBRl"),
    # noise and signal
    r"`signal` is true in every row": ("T", "Ww2SLVCUGBRtlsc"),
    r"The noisy counts decide, before they are adjusted": ("Ww2SVCtlsc", "LTUGBR"),
    r"Noise rows are rows whose true count is 0": ("Ww2SLVCUGBR", "Ttlsc"),
    r"Their share is estimated": ("", "STtlsc"),  # of others, only if their noise allows it
    r"by an estimate from the noisy counts|estimated to count over": ("Ww2SLVCUGBR", "Ttlsc"),
    r"(over|above|than) twice the noise[,.\w ]*(by an estimate|and of the records)|count over twice the noise": ("Ww2SLVC", "TUGBRtlsc"),
    r"above 2 sigma": ("Ww2SLVC", "TUGBRtlsc"),
    r"twice its standard deviation": ("UGBR", "Ww2SLTVCtlsc"),
    r"(small|large) beside their noise": ("Ww2SLVCUGBR", "Ttlsc"),
    r"`remainder`": ("VUGt", "Ww2SLTCBRlsc"),  # which publish the rows that stand out by themselves
    r"Along age": ("VCGB", "Ww2SLTUtlsc"),  # where a view has it alone
    # totals of one axis
    r"Totals of one axis that nothing measures by itself": ("Ww2SV", "LTCUGBRtlsc"),
    r"mean noise of the best sum of measurements for the totals": ("Ww2SVC", "LTUGBRtlsc"),
    # who is protected, and the cost
    r"neighbours by substitution": ("w2R", "WSLTVCUGBtlsc"),
    r"zero-concentrated differential privacy": ("W2SLVCUGBR", "wTtlsc"),
    r"discrete Laplace noise costs": ("wtlsc", "W2SLTVCUGBR"),
    r"The number of groups is protected too": ("tsc", "Ww2SLTVCUGBRl"),
    r"stands for the groups without a record": ("l", "Ww2SLTVCUGBRtsc"),
    # how numbers are written
    r"e\+?\d+%": ("", "Ww2SLTVCUGBRtlsc"),
}  # fmt: skip


@pytest.fixture(scope="module", params=FAMILIES)
def told(request, library):
    """Return a release of each family."""
    return library[request.param]


def test_every_statement_is_judged_for_known_families():
    """No family is both told and not, and every letter is that of a family."""
    assert list(COLUMNS) == FAMILIES
    for true, false in STATEMENTS.values():
        assert len({*true, *false}) == len(true) + len(false)
        assert {*true, *false} <= {*COLUMNS.values()}


def test_outputs_say_what_is_true_of_their_family(told):
    """What is false of a family stands in none of its outputs, and what only it can say stands in one of them; the report is whole and loads nothing, and views are named."""
    letter, texts = COLUMNS[told.name], told.texts
    wrong, missing = [], []
    for statement, (true, false) in STATEMENTS.items():
        where = [output for output, text in texts.items() if re.search(statement, text)]
        if letter in false and where:
            wrong.append((statement, where))
        if letter in true and not where:
            missing.append(statement)
    assert (wrong, missing) == ([], [])
    read((told.folder / "report.html").read_text())
    for view in told.found.views:
        assert all(view in texts[output] for output in ("README", "report", "release in a terminal"))


def test_what_is_said_of_the_total_is_what_a_question_about_it_is_answered(told):
    """The report states its deviation or the interval of its row, which holds the answer's; the explorer what `query` says."""
    folder, report = told.folder, told.texts["report"]
    answer = query_answer(folder, None, None, [], simultaneous=False)
    row = told.found.table(0).row(0, named=True)
    if answer.sd:
        assert f"with a standard deviation of {answer.sd:,.3g}" in report
    elif answer.low is not None and answer.low == answer.high:
        assert "exact, because it is public" in report
    elif row["low"] is not None:
        assert f"90% interval: {row['low']:,} to {row['high']:,}" in report
        assert row["low"] <= answer.low <= answer.high <= row["high"]
    else:
        assert "interval: " not in report.split("Privacy")[0]
    shown = payload(open_folder(folder))
    total = shown["tables"][0]
    assert [total[of] and total[of][0] for of in ("count", "low", "high")] == [answer.count, answer.low, answer.high]
    assert total["exact"] == answer.exact == ("exact, because it is public" in report)
    assert shown["release"]["may_be_negative"] == (COLUMNS[told.name] in "LUGBR")


@pytest.mark.parametrize("name", OF_HOMES)
def test_the_numbers_behind_charts_of_group_sizes_are_those_of_queries(library, name):
    """Each size of each region has the interval that a question about it has, those without a row too."""
    told = library[name]
    section = told.texts["report"].split("Groups by size")[1].split("Level by level")[0]
    rows = re.findall(r" (everything|[AB]\d?) \|(?: (own|rent) \|)? (\d) \| ([\d,]+) \| (\S+) \| (\S+) \|", section)
    assert {region for region, *_ in rows} >= {"everything", "A", "B", "A1"}
    assert any(tenure for _, tenure, *_ in rows) == (name == "sizes by tenure")
    for region, tenure, size, *numbers in rows:
        where = [f"size={size}", *([] if region == "everything" else [f"region={region}"])]
        where += [f"tenure={tenure}"] if tenure else []
        answer = query_answer(told.folder, None, None, where, simultaneous=False)
        assert numbers == [f"{number:,}" for number in (answer.count, answer.low, answer.high)]
