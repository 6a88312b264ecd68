"""What keeps Prefect's list of runs readable and small: names and tags by which runs are found, and the end of old ones."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from httpx import HTTPError
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterEndTime,
    FlowRunFilterState,
    FlowRunFilterStateName,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound

from flows.spec.sections.schedule import day_of, scheduled_id

_AT_ONCE = 200  # runs that a server lists at most


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A spec whose deployment runs on a schedule, by its name, with the schedule's time zone."""

    name: str
    timezone: str
    dataset: str


def describe_run(run: str, release_id: str, dataset: str = "") -> None:
    """Name a flow run after its release unless its name says it, and tag it with release and dataset: people look for them.

    If the server does not answer, the run goes on as it is.
    """
    with suppress(HTTPError, RuntimeError, ObjectNotFound), get_client(sync_client=True) as client:
        known = client.read_flow_run(UUID(run))
        name = known.name if release_id in known.name else release_id
        client.update_flow_run(UUID(run), name=name, tags=sorted({*known.tags, *_tags(release_id, dataset)}))


def name_scheduled_runs(schedules: Sequence[Scheduled]) -> None:
    """Name the runs that are scheduled after the releases that they will make."""
    with suppress(HTTPError, RuntimeError, ObjectNotFound), get_client(sync_client=True) as client:
        for schedule in schedules:
            deployment = client.read_deployment_by_name(f"release/{schedule.name}")
            coming = FlowRunFilter(
                deployment_id=FlowRunFilterDeploymentId(any_=[deployment.id]),
                state=FlowRunFilterState(name=FlowRunFilterStateName(any_=["Scheduled"])),
            )
            for run in client.read_flow_runs(flow_run_filter=coming, limit=_AT_ONCE):
                if run.auto_scheduled and run.expected_start_time:
                    release_id = scheduled_id(schedule.name, day_of(run.expected_start_time, schedule.timezone))
                    if run.name != release_id:
                        tags = sorted(set(run.tags) | _tags(release_id, schedule.dataset))
                        client.update_flow_run(run.id, name=release_id, tags=tags)


def _tags(release_id: str, dataset: str) -> set[str]:
    return {f"release:{release_id}"} | ({f"dataset:{dataset}"} if dataset else set())


def delete_old_runs(older_than: timedelta) -> int:
    """Delete from Prefect's database the runs that ended so long ago, with their task runs, logs and artifacts.

    The store keeps every release, and `trellis show` shows it.

    Returns:
        How many runs were deleted.
    """
    ended = FlowRunFilter(
        state=FlowRunFilterState(
            type=FlowRunFilterStateType(
                any_=[StateType.COMPLETED, StateType.FAILED, StateType.CANCELLED, StateType.CRASHED]
            )
        ),
        end_time=FlowRunFilterEndTime.model_validate({"before_": datetime.now(UTC) - older_than}),
    )
    deleted = 0
    with get_client(sync_client=True) as client:
        while runs := client.read_flow_runs(flow_run_filter=ended, limit=_AT_ONCE):
            for run in runs:
                _delete_artifacts(client, run.id)
                with suppress(ObjectNotFound):  # another command deletes too
                    client.delete_flow_run(run.id)
                deleted += 1
    return deleted


def _delete_artifacts(client: SyncPrefectClient, run: UUID) -> None:
    of_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run]))
    while artifacts := client.read_artifacts(artifact_filter=of_run):
        for artifact in artifacts:
            with suppress(ObjectNotFound):
                client.delete_artifact(artifact.id)
