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
}  # fmt: skip

# what may be said, as a pattern: the families of which it is true and which say it, and those of which it is false. Of the others it is
# true, or does not apply, and they need not say it.
STATEMENTS = {
    # what a count is
    r"[Ee]very count is a whole number,? above zero|size in a region: a whole number above zero": ("Ww2STVCtlsc", "LUG"),
    r"may be below zero|may be negative": ("LUG", "Ww2STVCtlsc"),
    r"adjusts them|(are|were|counts) adjusted|and adjusted so|, adjusted so": ("Ww2SVCtlsc", "LTUG"),
    r"moves many small counts to zero": ("Ww2SVCtlsc", "LTUG"),
    r"They are not adjusted": ("UG", "Ww2SVCtlsc"),
    r"A row that is present has records": ("T", "Ww2SLVCUGtlsc"),
    r"A row that is present may be noise alone": ("Ww2SLVCUGtlsc", "T"),
    r"missing row stands for a released count of zero": ("Ww2SLVCUGtlsc", "T"),
    r"too few for the threshold": ("T", "Ww2SLVCUGtlsc"),
    r"Smallest count kept": ("T", "Ww2SLVCUGtlsc"),
    r"counts of every level add up to those of the level above": ("Ww2SLTVCUGtlsc", ""),
    r"The sums of the finest level differ from their tables": ("C", "Ww2SLTVUGtlsc"),
    r"released number of records": ("Ww2SLTVCUG", "tlsc"),
    r"records</b> counted|\d records counted by": ("Ww2SLTVCUG", "tlsc"),
    r"\d groups counted by": ("tlsc", "Ww2SLTVCUG"),
    # what the total is
    r"with noise of σ": ("", "2SLTVCUGtlsc"),
    r"exact, because it is public": ("w2l", "WSLTVCUGtsc"),
    r"The total is the sum of the counts of the finest level, not the number of records": ("LT", "Ww2SVCUGtlsc"),
    r"the sum of noisy counts": ("LT", "Ww2SVCUGtlsc"),
    r"with a standard deviation of": ("UG", "Ww2SLTVCtlsc"),
    # what was measured, and how counts come from it
    r"Only the finest level is measured": ("LT", "Ww2SVCUGtlsc"),
    r"[Ee]very cell of every level (was|is) measured|Every level is measured": ("SUG", "Ww2LTVCtlsc"),
    r"children of what survives": ("2C", "LTVUGtlsc"),
    r"estimated from its own measurement and those below it": ("2S", "WwLTVUGtlsc"),
    r"drawn towards what its level shows": ("S", "Ww2LTVCUGtlsc"),
    r"settled together with all levels and views": ("V", "Ww2SLTCUGtlsc"),
    r"calibrated to": ("C", "Ww2SLTVUGtlsc"),
    r"A released count is settled from all measurements": ("UG", "Ww2SLTVCtlsc"),
    r"come from the measurements of all levels, adjusted": ("tlsc", "Ww2SLTVCUG"),
    r"before the counts were adjusted to add up": ("", "LT"),
    r"Bias: released minus noisy counts": ("Ww2SVC", "LTUGtlsc"),
    r"\| bias \|": ("Ww2SVC", "LTUGtlsc"),
    # how far off counts can be
    r"within the level's error bound of its true count": ("WwLUG", "2STVCtlsc"),
    r"bound as released": ("Ww2SC", "LTVUGtlsc"),
    r"no error bound is (stated|known)": ("2SVCtlsc", "WwLUG"),
    r"Of the rows of a level, on average at most": ("Ww2SLVCUtlsc", "TG"),
    r"For the rows of a table together nothing is promised": ("TG", "Ww2SLVCUtlsc"),
    r"their noise was high": ("", "Ww2SLTVCUGtlsc"),
    r"Sums have no interval": ("T", "Ww2SLVCUGtlsc"),
    r"sd of a count": ("UG", "Ww2SLTVCtlsc"),
    r"is within ± [\d,]+(?: to ± [\d,]+)? of what is measured of it": ("Ww2SC", "UG"),
    r"is within ± [\d,]+(?: to ± [\d,]+)? of its count": ("UG", "Ww2SVC"),
    r"bear less noise than those of one size": ("tl", "Ww2SLTVCUGsc"),
    r"at a level marked as a sum": ("Vtsc", "Ww2SLTCUGl"),
    # noise and signal
    r"`signal` is true in every row": ("T", "Ww2SLVCUGtlsc"),
    r"The noisy counts decide, before they are adjusted": ("Ww2SVCtlsc", "LTUG"),
    r"Noise rows are rows whose true count is 0": ("Ww2SLVCUG", "Ttlsc"),
    r"Their share is estimated": ("", "STtlsc"),  # of others, only if their noise allows it
    r"by an estimate from the noisy counts|estimated to count over": ("Ww2SLVCUG", "Ttlsc"),
    r"(over|above|than) twice the noise[,.\w ]*(by an estimate|and of the records)|count over twice the noise": ("Ww2SLVC", "TUGtlsc"),
    r"above 2 sigma": ("Ww2SLVC", "TUGtlsc"),
    r"twice its standard deviation": ("UG", "Ww2SLTVCtlsc"),
    r"(small|large) beside their noise": ("Ww2SLVCUG", "Ttlsc"),
    r"`remainder`": ("VUGt", "Ww2SLTClsc"),  # which publish the rows that stand out by themselves
    r"Along age": ("VCG", "Ww2SLTUtlsc"),  # where a view has it alone
    # totals of one axis
    r"Totals of one axis that nothing measures by itself": ("Ww2SV", "LTCUGtlsc"),
    r"mean noise of the best sum of measurements for the totals": ("Ww2SVC", "LTUGtlsc"),
    # who is protected, and the cost
    r"neighbours by substitution": ("w2", "WSLTVCUGtlsc"),
    r"zero-concentrated differential privacy": ("W2SLVCUG", "wTtlsc"),
    r"discrete Laplace noise costs": ("wtlsc", "W2SLTVCUG"),
    r"The number of groups is protected too": ("tsc", "Ww2SLTVCUGl"),
    r"stands for the groups without a record": ("l", "Ww2SLTVCUGtsc"),
    # how numbers are written
    r"e\+?\d+%": ("", "Ww2SLTVCUGtlsc"),
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
    assert shown["release"]["may_be_negative"] == (COLUMNS[told.name] in "LUG")


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
