"""How home and workers speak with the scheduler: encrypted, and with a certificate on both sides."""

from typing import TYPE_CHECKING

from storage.errors import StoreError
from storage.mailbox.cluster_file import ClusterFile

if TYPE_CHECKING:
    from distributed.security import Security


def check_installed() -> None:
    """Refuse to go on where Dask is not installed.

    Raises:
        StoreError: it is not.
    """
    try:
        import distributed  # noqa: F401 (whether it is there)
    except ModuleNotFoundError:
        raise StoreError(
            "run.workers: dask needs the package distributed.",
            field="run.workers",
            hint="Run pip install 'trellis[dask]', or set run.workers to threads.",
        ) from None


def security_of(file: ClusterFile) -> "Security":
    """Return the certificates of this machine, for every part that it may play."""
    from distributed.security import Security

    certificate, key = str(file.certificate), str(file.private_key)
    return Security(  # type: ignore[no-untyped-call]
        require_encryption=True,
        tls_ca_file=str(file.ca),
        tls_client_cert=certificate,
        tls_client_key=key,
        tls_worker_cert=certificate,
        tls_worker_key=key,
        tls_scheduler_cert=certificate,
        tls_scheduler_key=key,
    )


def no_answer(file: ClusterFile, fault: BaseException) -> StoreError:
    """Return the error that the scheduler does not answer, of what Dask, Tornado or ssl has raised."""
    return StoreError(
        f"The scheduler {file.scheduler} does not answer, or does not know this certificate ({type(fault).__name__}).",
        field="scheduler",
        hint="See that it runs, and that one authority has signed its certificate and that of this machine.",
    )
