"""The sections `noise` and `run`: how noise is drawn, and where and with how much memory a release is made."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, ByteSize, Field

from flows.specification.rules import Keys, no_boolean

LEAST_MEMORY = 256_000_000  # bytes


class NoiseKeys(Keys):
    """How the noise is drawn.

    Attributes:
        law: The law of the noise: gaussian, laplace, or auto. Laplace has less noise where few levels are measured, but fewer
            releases fit a cap. auto takes the law with less noise at the finest level, and gaussian with a schedule. If left out,
            gaussian, or for group sizes laplace.
        sampler: opendp or table. The table sampler is much faster and uses up a small part of delta.
    """

    law: Literal["gaussian", "laplace", "auto"] = "gaussian"
    sampler: Literal["opendp", "table"] = "opendp"


class RunKeys(Keys):
    """How a release runs. What it publishes does not depend on these keys.

    Attributes:
        workers: Whether branches run in threads, in processes, or on the workers of a Dask cluster.
        max_memory: The memory for the arrays of all branches that run at once; with dask, for those of any one branch. If left out, a
            quarter of the machine's memory.
        prefect: Whether `trellis release` and `trellis rerun` run it on a Prefect server that answers, or leave a record for the next
            one. With `off` they ask no server, and the UI does not list the release.
    """

    workers: Literal["threads", "processes", "dask"] = "threads"
    max_memory: Annotated[ByteSize, BeforeValidator(no_boolean), Field(ge=LEAST_MEMORY)] | None = None
    prefect: bool = True
