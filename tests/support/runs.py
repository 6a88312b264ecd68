"""Releases made and finished through the plain driver, with something done around a stage."""

from concurrent.futures import ThreadPoolExecutor

from flows.run.driver import finish_release, make_release
from flows.run.runner import report_nothing


def plainly(stage, arguments):
    """Carry out a stage, and do nothing else."""
    return stage.fn(*arguments)


def make(plan, release, around=plainly, *, threads=2):
    """Make a release."""
    with ThreadPoolExecutor(threads) as executor:
        make_release(plan, release, _submit_to(executor, around), report_nothing)


def finish(release_id, around=plainly, *, threads=2):
    """Finish a release; return the seconds that its stages took."""
    with ThreadPoolExecutor(threads) as executor:
        return finish_release(release_id, _submit_to(executor, around), report_nothing)


def _submit_to(executor, around):
    def submit(stage, *arguments):
        return executor.submit(around, stage, arguments)

    return submit
