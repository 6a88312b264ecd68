"""The budget of the suite: processor seconds of every test and its children, a table of them by folder, and a limit.

A test that takes more than LIMIT fails, a thorough one if it takes three times that, unless it is marked `heavy("the reason")`. What a
shared fixture takes counts for the first test that asks for it, and what ends with the last test counts for the table alone.
"""

import resource
from collections import defaultdict
from pathlib import Path

import pytest

from tasks.work.capacity import cores

LIMIT = 10.0  # processor seconds
CORES = cores()
APART = {"audit", "cluster", "crash"}  # marks of tests that take what they take
DEAREST = 10  # tests that the table names


def seconds():
    """Return the processor time of this process so far, and of its children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


class ProcessorTime:
    """A plugin: in a worker it measures tests, in the process that reports it adds them up."""

    def __init__(self):
        """Begin to count."""
        # the time up to which tests have been counted, and that of the test that runs now
        self.last = self.of_test = 0.0
        self.by_test = defaultdict(float)

    def pytest_collection_finish(self):
        """Count from here: imports and the collection are nobody's."""
        self.last = seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """Note what a phase of a test has taken, and let the last one fail where the test took too much."""
        report = yield
        now = seconds()
        took, self.last = now - self.last, now
        own = min(took, CORES * (call.stop - call.start))  # the rest was taken by a child that an earlier test began
        self.of_test = {"setup": own, "call": self.of_test + own}.get(call.when, self.of_test)
        report.user_properties.append(("processor_seconds", took))
        if call.when == "teardown" and report.passed and (fault := too_much(item, self.of_test)):
            report.outcome, report.longrepr = "failed", fault
        return report

    def pytest_runtest_logreport(self, report):
        """Add up what the workers have measured."""
        self.by_test[report.nodeid] += dict(report.user_properties[-1:]).get("processor_seconds", 0.0)

    def pytest_terminal_summary(self, terminalreporter):
        """Print the table, if more than one file was run."""
        if len({test.partition("::")[0] for test in self.by_test}) > 1:
            terminalreporter.section("processor seconds")
            for line in table(self.by_test):
                terminalreporter.write_line(line)


def too_much(item, took):
    """Return what is wrong with what a test has taken; empty if nothing is."""
    marks = {mark.name for mark in item.iter_markers()}
    limit = 3 * LIMIT if "thorough" in marks else LIMIT
    if took <= limit or marks & {"heavy", *APART}:
        return ""
    told = f"{item.nodeid} takes {took:.1f} processor seconds, and the limit is {limit:g}."
    return f'{told} Make it cheaper, as docs/contributing.md says, or mark it heavy("the reason").'


def table(by_test):
    """Yield the lines of the table: seconds by folder, and the tests that took most."""
    by_folder, tests_of = defaultdict[str, float](float), defaultdict[str, int](int)
    for test, took in by_test.items():
        folder = str(Path(test.partition("::")[0]).parent)
        by_folder[folder] += took
        tests_of[folder] += 1
    for folder in sorted(by_folder, key=lambda folder: -by_folder[folder]):
        yield f"{by_folder[folder]:8.1f}  {folder} ({tests_of[folder]} tests)"
    yield f"{sum(by_folder.values()):8.1f}  together"
    for test in sorted(by_test, key=lambda test: -by_test[test])[:DEAREST]:
        yield f"{by_test[test]:8.1f}  {test}"
