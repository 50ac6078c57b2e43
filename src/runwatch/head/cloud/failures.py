"""What a failure of a Google service means, and what a person can do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from runwatch.head.forward.forwarder import Trouble

if TYPE_CHECKING:  # the libraries are loaded by the forwarders' threads
    from google.api_core.exceptions import GoogleAPICallError

LONGEST: Final = 300
"""Characters of a service's own words."""
BY_ITSELF: Final = "it is tried again by itself"
NO_CREDENTIALS: Final = (
    "run `gcloud auth application-default login`, or let GOOGLE_APPLICATION_CREDENTIALS name a "
    "key file; on Google Cloud, give the machine or pod a service account"
)


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    host: str
    role: str
    """What the head's account needs to write."""
    library: str


LOGGING: Final = Service(
    "Cloud Logging", "logging.googleapis.com", "roles/logging.logWriter", "google-cloud-logging"
)
MONITORING: Final = Service(
    "Cloud Monitoring",
    "monitoring.googleapis.com",
    "roles/monitoring.metricWriter",
    "google-cloud-monitoring",
)


class Refused(Exception):
    """The request itself is wrong: repeating it would not help."""

    def __init__(self, error: GoogleAPICallError) -> None:
        super().__init__(words(error))
        self.details: list[Any] = list(error.details or ())


def missing(service: Service) -> Trouble:
    return Trouble(f"{service.library} is not installed", 'pip install "runwatch[gcp]"')


def no_project(service: Service) -> Trouble:
    return Trouble(
        f"no project is named for {service.name}",
        "set gcp.project (or RUNWATCH_GCP_PROJECT) to the project's id",
    )


def of_credentials(error: Exception) -> Trouble:
    return Trouble(f"there are no Google credentials that work: {words(error)}", NO_CREDENTIALS)


def of_call(
    error: GoogleAPICallError, service: Service, project: str, seconds: float
) -> Trouble | Refused:
    """`seconds`: the deadline of the request."""
    from google.api_core import exceptions

    if isinstance(error, exceptions.InvalidArgument | exceptions.OutOfRange):
        return Refused(error)
    if isinstance(error, exceptions.Forbidden):
        todo = (
            f"grant {service.role} to the head's account in project {project}, and check that "
            f"{service.host} is enabled there"
        )
        return Trouble(f"the service refuses (403): {words(error)}", todo)
    if isinstance(error, exceptions.Unauthorized):
        return Trouble(f"the credentials are not accepted (401): {words(error)}", NO_CREDENTIALS)
    if isinstance(error, exceptions.TooManyRequests):
        asked = _asked_seconds(error)
        return Trouble(f"over quota (429): {words(error)}", _quota(service, project), asked)
    if isinstance(error, exceptions.DeadlineExceeded):
        todo = f"{BY_ITSELF}, with more patience; check the way from the head to {service.host}"
        return Trouble(f"no answer within {seconds:.0f} s", todo)
    if isinstance(error, exceptions.NotFound):
        return Trouble(f"not found (404): {words(error)}", f"check the project's id: {project}")
    todo = f"{BY_ITSELF}; check that the head reaches {service.host}, and its credentials"
    return Trouble(f"it does not answer: {words(error)}", todo, _asked_seconds(error))


def _quota(service: Service, project: str) -> str:
    return f"{BY_ITSELF}; raise the quota of {service.host} in project {project}, or send less"


def _asked_seconds(error: GoogleAPICallError) -> float:
    """How long the service asks to wait; 0 if it does not say."""
    from google.rpc.error_details_pb2 import RetryInfo

    delays = (d.retry_delay for d in error.details or () if isinstance(d, RetryInfo))
    return max((delay.seconds + delay.nanos / 1e9 for delay in delays), default=0.0)


def words(error: Exception) -> str:
    text = getattr(error, "message", "") or str(error) or type(error).__name__
    line = " ".join(str(text).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
