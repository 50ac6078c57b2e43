"""`register`: a finished run, made known to Google's registry, or to Runwatch's own."""

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


def register_here(given: Registration) -> str:
    """As a run in the Runwatch directory."""
    import runwatch

    config = {"log_directory": given.log_directory, "region": given.region,
              "project": given.project}  # fmt: skip
    run = runwatch.init(given.run_name, group=given.run_set, config=config)
    run.finish()
    return f"view the ML run with: runwatch show {given.run_name}"


def register_there(context: Context, given: Registration) -> str:
    token = context.runner.run(
        ["gcloud", "auth", "print-access-token"], context.settings.command_seconds
    ).strip()
    place = f"{context.settings.api}/v1alpha/projects/{given.project}/locations/{given.region}"
    body = {
        "displayName": given.run_name,
        "name": given.run_name,
        "runSet": given.run_set,
        "artifacts": {"gcs_path": given.log_directory},
        "state": "STATE_COMPLETED",
    }
    made = _ask(f"{place}/machineLearningRuns", token, body)
    operation = str(made.get("name") or "").rsplit("/", 1)[-1]
    if not operation:
        raise RunwatchError(_complaint(made))
    run = _target(context, f"{place}/operations/{operation}", token)
    url = f"{CONSOLE}/{given.region}/{run}?project={given.project}"
    return f"view the ML run at {url}"


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
            said = answer.read()
    except urllib.error.HTTPError as error:
        said = error.read()
    except OSError as error:
        raise RunwatchError(f"no answer from {url}: {getattr(error, 'reason', error)}") from error
    try:
        told = json.loads(said)
    except ValueError:
        raise RunwatchError(f"{url} answered something else: {said[:200]!r}") from None
    return told if isinstance(told, dict) else {}


def _complaint(told: dict[str, Any]) -> str:
    error = told.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return str(message or f"ML run registration failed. Failed answer: {json.dumps(told)[:300]}")
