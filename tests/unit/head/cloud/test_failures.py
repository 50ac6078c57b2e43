"""What a failure means, and what a person can do about it."""

from __future__ import annotations

from typing import Any

import google.api_core.exceptions
import google.auth.exceptions
import pytest

from runwatch.head.cloud import failures
from runwatch.head.cloud.failures import LOGGING, MONITORING, Refused
from runwatch.head.forward.forwarder import Trouble

exceptions: Any = google.api_core.exceptions  # the library is not typed
of_credentials: Any = google.auth.exceptions


@pytest.mark.parametrize(
    ("error", "why", "todo"),
    [
        (exceptions.PermissionDenied("no"), "refuses (403)", "roles/logging.logWriter"),
        (exceptions.Unauthenticated("no"), "not accepted (401)", "gcloud auth"),
        (exceptions.ResourceExhausted("much"), "over quota (429)", "raise the quota"),
        (exceptions.DeadlineExceeded("late"), "no answer within 7 s", "with more patience"),
        (exceptions.NotFound("no such project"), "not found (404)", "the-project"),
        (exceptions.ServiceUnavailable("DNS resolution failed"), "DNS", "logging.googleapis.com"),
        (exceptions.InternalServerError("oops"), "oops", "tried again by itself"),
    ],
)
def test_every_failure_has_a_way_out(error: Any, why: str, todo: str) -> None:
    trouble = failures.of_call(error, LOGGING, "the-project", 7.0)
    assert isinstance(trouble, Trouble)
    assert why in str(trouble) and todo in trouble.todo


def test_the_role_is_that_of_the_service() -> None:
    trouble = failures.of_call(exceptions.PermissionDenied("no"), MONITORING, "p", 7.0)
    assert isinstance(trouble, Trouble) and "roles/monitoring.metricWriter" in trouble.todo


def test_a_wrong_request_is_not_repeated() -> None:
    assert isinstance(
        failures.of_call(exceptions.InvalidArgument("bad"), LOGGING, "p", 7.0), Refused
    )


def test_long_words_are_cut_and_lines_joined() -> None:
    trouble = failures.of_credentials(
        of_credentials.DefaultCredentialsError("one\ntwo " + "x" * 1000)
    )
    assert "one two x" in str(trouble) and len(str(trouble)) < 400
    assert "GOOGLE_APPLICATION_CREDENTIALS" in trouble.todo
