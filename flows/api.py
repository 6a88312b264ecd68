"""Trellis from Python: plans, releases without a server, and published folders as data frames. `import trellis` has it all."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import polars as pl
import yaml

from flows.answers.query import Told, answers_to
from flows.specification.file import SpecFile, check_daily, load_spec, parse_spec
from flows.specification.frames import frames_in_files
from storage.errors import SpecError, UsageError, public_errors
from tasks.format.manifest import Manifest
from tasks.released.boxes import level_of
from tasks.released.query.areas import EVERYTHING
from tasks.released.query.sets import AreaSet
from tasks.released.sources.folder import PublishedFolder, open_folder
from tasks.words.spelling import did_you_mean

if TYPE_CHECKING:
    from flows.answers.check import FailedCheck, PassedCheck
    from flows.answers.ledger import LedgerStatement
    from flows.answers.release_status import ReleaseList
    from flows.answers.verify import Verification
    from flows.forecast.values import Forecast
    from tasks.pages.trial_results import TrialResults

Spec: TypeAlias = (
    str | os.PathLike[str] | Mapping[str, Any]
)  # the path of a spec; or its keys, with data frames for tables

NOT_IN_A_FILE = "(a mapping of keys)"  # in place of the name of a spec's file

_COUNTING, _inside, _before = Lock(), 0, 0


@dataclass(frozen=True, slots=True, repr=False)
class PublishedRelease:
    """A published release, read from its folder alone."""

    published: PublishedFolder

    def __repr__(self) -> str:
        return f"<{self.id}, published in {self.folder}>"

    @property
    def id(self) -> str:
        """The id of the release."""
        return self.published.manifest.id

    @property
    def folder(self) -> Path:
        """The published folder."""
        return self.published.path

    @property
    def manifest(self) -> Manifest:
        """The manifest: what the release protects, what it cost, how accurate it is, and what it was made with."""
        return self.published.manifest

    @property
    def levels(self) -> pl.DataFrame:
        """A row per level: per axis the name of the axis level reached, null where it is not refined, then the manifest's numbers.

        `cells` were measured, of which `nonzero` have a count; `rho` and `sigma` (records) are of the noise, `bound` (records)
        the error bound where one is stated, `half_width` (records) that of intervals where they all have one.
        """
        numbers = dict.fromkeys(("cells", "nonzero"), pl.Int64) | dict.fromkeys(("rho", "sigma", "bound"), pl.Float64)
        numbers["half_width"] = pl.Int64
        rows = [
            {"level": entry.level, **entry.axes, **{name: getattr(entry, name) for name in numbers}}
            for entry in self.manifest.levels
        ]
        return pl.DataFrame(rows, {"level": pl.Int64, **dict.fromkeys(self.published.axes, pl.String), **numbers})

    def table(self, level: int | str) -> pl.DataFrame:
        """Return the released counts of a level: codes, `count`, and where there are intervals `low` and `high`.

        Args:
            level: its number; or the name of a level of the axes, for the coarsest table in which every axis that has it has reached it.
        Raises:
            UsageError: the release has no such level.
        """
        deepest, axes = len(self.manifest.levels) - 1, self.published.axes.values()
        numbers: dict[object, int] = {number: number for number in range(deepest + 1)}
        for name in dict.fromkeys(name for names in axes for name in names):
            reached = [names.index(name) + 1 if name in names else 0 for names in axes]
            numbers[name] = level_of(self.published.steps, reached)
        if not isinstance(level, str | SupportsIndex) or isinstance(level, bool) or level not in numbers:
            hint = f"Or the name of a level: {', '.join(str(name) for name in numbers if isinstance(name, str))}."
            raise UsageError(f"level must be 0 to {deepest}, got {level}.", field="level", hint=hint)
        (rows,) = self.published.collect([self.published.scan(self.manifest.levels[numbers[level]])])
        return rows

    @property
    def views(self) -> list[str]:
        """The names of the views, in the order of the spec."""
        return [view.name for view in self.manifest.views]

    def view(self, name: str) -> pl.DataFrame:
        """Return a view: codes, `count`, `low` and `high`, a row for every cell.

        Raises:
            UsageError: the release has no such view.
        """
        view = next((view for view in self.manifest.views if view.name == name), None)
        if view is None:
            known = ", ".join(self.views) or "none"
            hint = f"{did_you_mean(name, self.views)} Its views are {known}.".lstrip()
            raise UsageError(f"The release has no view {name}.", field="name", hint=hint)
        (rows,) = self.published.collect([self.published.scan(view)])
        return rows

    def query(
        self,
        where: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        simultaneous: bool = False,
        areas: Any = None,
        minus: "PublishedRelease | str | os.PathLike[str] | None" = None,
        share_of: Mapping[str, Any] | None = None,
        **asked: Any,
    ) -> pl.DataFrame:
        """Return the counts of areas, with their intervals; every combination where lists of areas are given.

        Args:
            where: areas by axis, for axes that are no names in Python; or a list of such questions, which are answered one after another.
            simultaneous: whether the intervals are to hold all at once, whatever is asked.
            areas: a public table of groups, which are counted one by one: its path, or a data frame, with the columns `code` and `group`, and
                `level` and `axis` where they are needed. Or such tables by axis.
            minus: another release, or its folder, whose answers are taken off.
            share_of: an axis or a derived column, and an area or a code of it that holds what is asked for: `{"mode": "all"}`.
            asked: by axis: a code, as text or as a whole number; `LEVEL=CODE`; `LEVEL=CODE,LEVEL=CODE`, or a mapping of levels to codes, where only the path tells;
                `FIRST..LAST`; several with a + between them, which are added up; None or `all` for everything; or a list of these, which are
                counted one by one. An axis that is left out: everything. By derived column: a code, several with a + between them, or a list of these.
        Returns:
            A row per combination: per axis what was asked for, then `count`, `sd` (its standard deviation, where counts are unbiased), `low`, `high`
            (records; null where no interval can be stated), the tree `level` that was added up, and `how`. With at least the manifest's
            `intervals.confidence`, over all noise, the interval of any one row covers its true count; of all rows together only with `simultaneous`.
            With `minus` also `difference`, `difference_low`, `difference_high` and `difference_how`, with `share_of` `share`, `share_low`,
            `share_high` and `share_how`.
        Raises:
            UsageError: there is no such axis or area, or there are several; or what is compared cannot be.
            StoreError: a file of the folder is missing or altered.
        """
        others: dict[str, Any] = {"simultaneous": simultaneous, "areas": areas, "minus": minus, "share_of": share_of}
        if isinstance(where, list | tuple) and all(isinstance(one, Mapping) for one in where) and where:
            return pl.concat([self.query(one, **others, **asked) for one in where], how="diagonal")
        if not isinstance(where, Mapping | None):
            raise UsageError("where must map axes to areas, or list such mappings.", field="where")
        asked_for = {
            axis: list(of) if isinstance(of, Iterable) and not isinstance(of, str | bytes | Mapping) else [of]
            for axis, of in {**(where or {}), **asked}.items()
        }
        if share_of is not None and (not isinstance(share_of, Mapping) or len(share_of) != 1):
            hint = 'For example {"mode": "all"}.'
            raise UsageError("share_of must map one axis to an area.", field="share_of", hint=hint)
        other = minus if isinstance(minus, PublishedRelease | None) else open_release(minus)
        tables = areas.items() if isinstance(areas, Mapping) else [] if areas is None else [(None, areas)]
        told = answers_to(
            self.published,
            asked_for,
            list(tables),
            minus=None if other is None else other.published,
            share_of=next(iter(share_of.items())) if share_of else None,
            simultaneous=simultaneous,
        )
        names = [*self.published.axes, *(name for name in self.manifest.derived if name in asked_for)]
        asked_too = {"difference": minus, "share": share_of}
        frame = _frame(told, names, [name for name, of in asked_too.items() if of is not None])
        return frame if self.manifest.is_unbiased else frame.drop("sd")


def open_release(folder: str | os.PathLike[str]) -> PublishedRelease:
    """Return the release in a published folder; nothing else is read.

    Raises:
        UsageError: there is none.
    """
    return PublishedRelease(open_folder(Path(folder)))


@public_errors
def plan(spec: Spec) -> "Forecast":
    """Return what a release would cost, and how exact it would be, as `trellis plan --json` prints it. Nothing is measured.

    Args:
        spec: the path of a spec; or its keys, and paths in them are then relative to the working directory. In place of the path of a
            table, of confidential records or of a codebook, there may be a data frame of Polars or pandas, or an Arrow table.
    Raises:
        TrellisError: the reason for a refusal, as on the command line.
    """
    from flows.forecast.answer import plan_answer
    from flows.planning.plan import make_plan

    with _file(spec, only_headers=True) as file:
        return plan_answer(make_plan(file))


@public_errors
def plan_page(spec: Spec) -> str:
    """Return the page that `trellis plan --html` writes, for somebody who decides whether to release; otherwise as `plan`.

    The page is a plan that `release(…, approved_plan=…)` takes, once it is in a file.
    """
    from flows.forecast import page
    from flows.planning.plan import make_plan

    with _file(spec, only_headers=True) as file:
        return page.plan_page(make_plan(file))


def check(spec: Spec) -> "PassedCheck | FailedCheck":
    """Return everything that is wrong with a spec, given as for `plan`, as `trellis check --json` prints it: `ok`, and `problems`.

    Of the confidential table, only the header is read.
    """
    from flows.answers.check import check_answer

    if not isinstance(spec, Mapping):
        return check_answer(Path(spec))
    with _closed_to_others(), frames_in_files(spec, only_headers=True) as keys:
        return check_answer(Path.cwd() / NOT_IN_A_FILE, _text(keys))


@public_errors
def compare(
    spec: Spec,
    mechanisms: Sequence[str] = (),
    epsilons: Sequence[float] = (0.1, 1.0, 10.0),
    *,
    runs: int = 10,
    utilities: Sequence[str] = (),
    like: bool = False,
    total: int | None = None,
    skew: float | None = None,
) -> "TrialResults":
    """Return how far mechanisms are off on a public table, or on one that is made up in its shape, as `trellis compare --json` prints it; without a server and without a page.

    Without `mechanisms`, those are tried that `trellis compare` tries. With `like` the table of the spec stays closed, and one of the
    same shape is made up: with `total` records, in place of the spec's expected_total, and of a `skew` of 2 or another one.

    Raises:
        TrellisError: the spec does not declare its table public, or another refusal, as on the command line.
    """
    from flows.trials.comparison import comparison_answer, make_comparison, trials_of
    from flows.trials.made_up import made_up_of

    if runs < 1:
        raise UsageError(f"runs must be at least 1, got {runs}.", field="runs")
    with _file(spec) as file:
        made_up = made_up_of(file.spec, like=like, total=total, skew=skew)
        comparison = make_comparison(file, mechanisms, epsilons, runs, utilities, made_up)
        rows = [row for entry in comparison.entries for row in trials_of(comparison, entry, range(1, runs + 1))]
        return comparison_answer(comparison, pl.DataFrame(rows, infer_schema_length=None), folder="")


def releases() -> "ReleaseList":
    """Return all releases of the store and their states, as `trellis releases --json` prints them."""
    from flows.answers.release_status import releases_answer

    return releases_answer()


def verify(folder: str | os.PathLike[str], *, workers: int | None = None) -> "Verification":
    """Return whether a published folder is whole and its guarantee follows from its noise: `ok`, and `failures`.

    Nothing but the folder is read, `workers` files at once; one per core if left out.
    """
    from flows.answers.verify import verify_answer

    return verify_answer(Path(folder), workers)


def ledger(dataset: str | None = None) -> "LedgerStatement":
    """Return what was charged to the people of a dataset, or of all datasets, as `trellis ledger --json` prints it.

    Raises:
        UsageError: the ledger has no such dataset.
    """
    from flows.answers.ledger import ledger_answer

    return ledger_answer(dataset)


@public_errors
def release(
    spec: Spec,
    *,
    output: str | os.PathLike[str] | None = None,
    different_people: bool = False,
    approved_plan: str | os.PathLike[str] | None = None,
) -> PublishedRelease:
    """Release the table of a spec at every level, as `trellis release` does, without a server.

    The ledger, the refusals and the locks are the same. The release is in the store at TRELLIS_HOME; if it stops,
    `trellis rerun` continues what was reserved. This function works in notebooks too, and returns once everything is published.

    Args:
        spec: the path of a spec; or its keys, and paths in them are then relative to the working directory.
        output: the folder below which to publish, in place of the spec's.
        different_people: whether the table holds other people than datasets that used it; recorded.
        approved_plan: the path of an approved plan, the page of `plan_page` or the JSON of `trellis plan`; the release is refused
            where the spec, a codebook or the budget differs from what was approved.
    Raises:
        TrellisError: the reason for a refusal or a stop, as on the command line. It holds nothing confidential, not even
            how many rows are at fault, since notebooks keep what they show.
    """
    from flows.planning.plan import make_plan
    from flows.run.driver import make_release, without_prefect
    from flows.run.reservation import new_release
    from flows.run.runner import report_nothing
    from storage.machine.home import give_up_claim
    from storage.releases.approvals import read_approved_plan

    with _releasing(), _file(spec) as file:
        approved = read_approved_plan(Path(approved_plan)) if approved_plan is not None else None
        planned = replace(make_plan(file), approved=approved)
        made = new_release(planned, Path(output) if output is not None else None, different_people=different_people)
        try:
            with without_prefect(made.terms.run.workers) as submit:
                make_release(planned, made, submit, report_nothing)
        except BaseException:
            give_up_claim(made.id)
            raise
        return open_release(made.folder)


@public_errors
def rerun(release_id: str, *, branch: str | None = None) -> PublishedRelease | None:
    """Continue a failed release, as `trellis rerun` does, without a server; nothing is charged again.

    Returns:
        The published release; None while others than the branch that is named are missing.
    Raises:
        TrellisError: as `release`; or there is no such release or branch, or it has ended.
    """
    from flows.planning.admission import resumable_release
    from flows.run.driver import finish_release, without_prefect
    from flows.run.reservation import refresh_run_keys
    from flows.run.runner import report_nothing
    from storage.database.connections import store
    from storage.releases.register import state_of

    with _releasing():
        continued = resumable_release(release_id, branch)
        if continued.state != "published":
            with without_prefect(refresh_run_keys(release_id).terms.run.workers) as submit:
                finish_release(release_id, submit, report_nothing, only=branch)
        with store() as con:
            is_published = state_of(con, release_id) == "published"
        return open_release(continued.folder) if is_published else None


@contextmanager
def _releasing() -> Iterator[None]:
    """Let a release be made inside; refuse it in a worker process, and note the releases that have crashed."""
    from flows.run.crashes import note_crashes

    if parent_process() is not None:
        raise UsageError(
            "release was called by a worker process, because that process ran the calling script again.",
            field="run.workers",
            hint="With run: {workers: processes}, call release below `if __name__ == '__main__':`.",
        )
    with _closed_to_others():
        note_crashes()
        yield


@contextmanager
def _file(spec: Spec, *, only_headers: bool = False) -> Iterator[SpecFile]:
    """Yield a spec; that of some keys as if they were in a file of the working directory. For arguments see `frames_in_files`."""
    if not isinstance(spec, Mapping):
        yield load_spec(Path(spec))
        return
    with _closed_to_others(), frames_in_files(spec, only_headers=only_headers) as keys:
        file = parse_spec(_text(keys), Path.cwd() / NOT_IN_A_FILE)
        check_daily(file.spec)
        yield file


def _text(keys: Mapping[str, Any]) -> str:
    """Return the keys of a spec as the text of its file."""
    try:
        return yaml.safe_dump(dict(keys), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError:
        raise SpecError("The keys of a spec must be texts, numbers, lists and mappings.", field="SPEC") from None


@contextmanager
def _closed_to_others() -> Iterator[None]:
    """Let files that are written inside be their owner's alone, as the command line does; true counts are among them."""
    global _inside, _before
    with _COUNTING:  # several threads may release at once, and the mask is the process's
        if not _inside:
            _before = os.umask(0o077)
        _inside += 1
    try:
        yield
    finally:
        with _COUNTING:
            _inside -= 1
            if not _inside:
                os.umask(_before)


def _frame(answers: Iterable[Told], names: Sequence[str], compared: Sequence[str]) -> pl.DataFrame:
    """Return answers as a data frame: the named axes and derived columns, the numbers, and what was compared."""
    rows = []
    for question, counted, *others in answers:
        of_others = [number for of in others if of for number in (of.value, of.low, of.high, of.how)]
        numbers = counted.count, counted.deviation, counted.low, counted.high, counted.level
        rows.append((*(_written(question.asked[name]) for name in names), *numbers, counted.how, *of_others))
    kinds = {"count": pl.Int64, "sd": pl.Float64} | dict.fromkeys(("low", "high", "level"), pl.Int64)
    schema: dict[str, Any] = dict.fromkeys(names, pl.String) | kinds | {"how": pl.String}
    for name in compared:
        kind = pl.Int64 if name == "difference" else pl.Float64
        schema |= dict.fromkeys((name, f"{name}_low", f"{name}_high"), kind) | {f"{name}_how": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _written(asked: Any) -> str:
    """Return how an area was asked for, as a text."""
    if isinstance(asked, Mapping):
        return ",".join(f"{level}={code}" for level, code in asked.items())
    if isinstance(asked, AreaSet):
        return str(asked.name)
    return EVERYTHING if asked is None else str(asked)
