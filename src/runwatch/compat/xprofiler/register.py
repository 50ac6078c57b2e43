"""`register`: report a finished run to Google's registry, or to Runwatch's own."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

from runwatch.compat.xprofiler.backend import Context
from runwatch.errors import RunwatchError

ANSWER_SECONDS: Final = 30.0
CONSOLE: Final = "https://console.cloud.google.com/cluster-director/diagnostics/details"


@dataclass(frozen=True, slots=True)
class Registration:
    log_directory: str
    region: str
    run_name: str
    run_set: str
    project: str


def register_here(registration: Registration) -> str:
    """As a run in the Runwatch directory."""
    import runwatch

    config = {"log_directory": registration.log_directory, "region": registration.region,
              "project": registration.project}  # fmt: skip
    run = runwatch.init(registration.run_name, group=registration.run_set, config=config)
    run.finish()
    return f"view the ML run with: runwatch show {registration.run_name}"


def register_there(context: Context, registration: Registration) -> str:
    token = context.runner.run(
        ["gcloud", "auth", "print-access-token"], context.settings.command_seconds
    ).strip()
    project, region = registration.project, registration.region
    place = f"{context.settings.api}/v1alpha/projects/{project}/locations/{region}"
    body = {
        "displayName": registration.run_name,
        "name": registration.run_name,
        "runSet": registration.run_set,
        "artifacts": {"gcs_path": registration.log_directory},
        "state": "STATE_COMPLETED",
    }
    created = _ask(f"{place}/machineLearningRuns", token, body)
    operation = str(created.get("name") or "").rsplit("/", 1)[-1]
    if not operation:
        raise RunwatchError(_complaint(created))
    run = _target(context, f"{place}/operations/{operation}", token)
    return f"view the ML run at {CONSOLE}/{region}/{run}?project={project}"


def _target(context: Context, operation: str, token: str) -> str:
    deadline = time.monotonic() + context.settings.ready_seconds
    while True:
        state = _ask(operation, token)
        if state.get("error"):
            raise RunwatchError(_complaint(state))
        target = str((state.get("metadata") or {}).get("target") or "")
        if target:
            return target.rsplit("/", 1)[-1]
        if state.get("done") or time.monotonic() > deadline:
            raise RunwatchError(f"ML run registration failed. {operation} names no run.")
        time.sleep(min(2.0, context.settings.poll_seconds))


def _ask(url: str, token: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        text = error.read()
    except OSError as error:
        raise RunwatchError(f"no answer from {url}: {getattr(error, 'reason', error)}") from error
    try:
        answer_json = json.loads(text)
    except ValueError:
        raise RunwatchError(f"{url} answered something else: {text[:200]!r}") from None
    return answer_json if isinstance(answer_json, dict) else {}


def _complaint(answer: dict[str, Any]) -> str:
    error = answer.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return str(message or f"ML run registration failed. Failed answer: {json.dumps(answer)[:300]}")
