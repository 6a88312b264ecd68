"""The Prefect flow that looks for crashed runs on a schedule, for a worker pool, where no long-running process looks."""

from prefect import flow
from prefect.runtime import flow_run

from flows.server.runs import begin_deployed


@flow(name="look-for-crashes", flow_run_name="look for crashes", persist_result=False, log_prints=False)
def look() -> None:
    """Do what the beginning of any run does: note what dead processes have left, and try again what never began."""
    begin_deployed(str(flow_run.id))
