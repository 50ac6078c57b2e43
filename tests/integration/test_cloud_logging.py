"""`google.cloud.logging` beside the drop-in: with credentials, without, and without the package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from runwatch.testing import Story, read_stories
from tests.integration.sdk_programs import program_environment

NO_CREDENTIALS = "google.cloud.logging finds no credentials; log entries are recorded in the run"
NOT_INSTALLED = "google-cloud-logging is not installed; log entries are recorded in the run"

PROGRAM = """
import logging
import google.cloud.logging
from google_cloud_mldiagnostics import machinelearning_run, metrics

client = google.cloud.logging.Client()
client.setup_logging()
logging.info("before there is a run")
run = machinelearning_run("n")
logging.info(f"created: {run.name}")
logging.getLogger("trainer").warning("slow")
logging.debug("not at this level")
named = client.logger("mine")
named.log_struct({"a": 1}, severity="ERROR")
with named.batch() as batch:
    batch.log_text("of a batch")
assert list(named.list_entries()) == []
assert isinstance(client, google.cloud.logging.Client)
try:
    raise OSError("disk")
except OSError as error:
    logging.error("bad: %s", error, exc_info=True)
metrics.record("loss", 1.0)
"""
LINES = [
    "INFO:root:before there is a run",
    "INFO:root:created: n",
    "WARNING:trainer:slow",
    'ERROR:mine:{"a": 1}',
    "DEFAULT:mine:of a batch",
    "ERROR:root:bad: disk",
    "OSError: disk",
]


def run(
    program: str, place: Path, *flags: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    (place / "home").mkdir(exist_ok=True)
    clean = {"HOME": str(place / "home"), "NO_GCE_CHECK": "true", "CLOUDSDK_CONFIG": "",
             "GOOGLE_APPLICATION_CREDENTIALS": "", "GOOGLE_CLOUD_PROJECT": ""}  # fmt: skip
    return subprocess.run(
        [sys.executable, *flags, "-c", program],
        env=program_environment(place / "runwatch", **{**clean, **environment}),
        text=True, capture_output=True, timeout=100,
    )  # fmt: skip


def lines(story: Story) -> list[str]:
    return [line for event in story.events if event.kind == "console"
            for line in event.body["lines"]]  # fmt: skip


def check(done: subprocess.CompletedProcess[str], place: Path, said: str) -> None:
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if said in line] == done.stderr.splitlines()
    assert len(done.stderr.splitlines()) == 1
    (story,) = read_stories(place / "runwatch")
    found = lines(story)
    assert [line for line in found if line in LINES] == LINES
    assert not [line for line in found if "not at this level" in line or "diagnostic" in line]
    assert story.values("loss") == [1.0]


def test_without_credentials_entries_are_in_the_run(tmp_path: Path) -> None:
    check(run(PROGRAM, tmp_path), tmp_path, NO_CREDENTIALS)


def test_without_the_package_entries_are_in_the_run(tmp_path: Path) -> None:
    """-S: no installed package is found, and so not even `google`."""
    started = "import runwatch_dropin_start\n" + PROGRAM
    check(run(started, tmp_path, "-S"), tmp_path, NOT_INSTALLED)


def test_without_the_package_its_other_names_are_there(tmp_path: Path) -> None:
    program = """
import runwatch_dropin_start, logging
import google.cloud.logging_v2
from google.cloud import logging as cloud_logging
from google.cloud.logging.handlers import CloudLoggingHandler, setup_logging
assert google.cloud.logging_v2.Client is cloud_logging.Client
setup_logging(CloudLoggingHandler(cloud_logging.Client(project="p")), log_level=logging.DEBUG)
logging.debug({"as": "it is"})
try:
    import google.cloud.storage
except ModuleNotFoundError as error:
    print(error.name)
import runwatch
runwatch.init("n")
logging.error("then")
"""
    done = run(program, tmp_path, "-S")
    assert (done.returncode, done.stdout) == (0, "google.cloud.storage\n"), done.stderr
    (story,) = read_stories(tmp_path / "runwatch")
    assert lines(story) == ['DEBUG:root:{"as": "it is"}', "ERROR:root:then"]


def test_what_came_before_the_run_waits_for_it(tmp_path: Path) -> None:
    program = """
import runwatch_dropin_start, logging, google.cloud.logging
google.cloud.logging.Client().setup_logging()
logging.info("early")
from google_cloud_mldiagnostics import machinelearning_run
machinelearning_run("n")
"""
    assert run(program, tmp_path, "-S").returncode == 0
    (story,) = read_stories(tmp_path / "runwatch")
    assert lines(story) == ["INFO:root:early"]


def test_with_credentials_nothing_changes(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    key.write_text(json.dumps({"type": "authorized_user", "client_id": "c", "client_secret": "s",
                               "refresh_token": "r"}))  # fmt: skip
    program = """
import google_cloud_mldiagnostics
import google.cloud.logging, google.auth.credentials, google.oauth2.credentials
from google.cloud.logging_v2.client import Client
client = google.cloud.logging.Client(project="p")
assert type(client) is Client and client._logging_api is None
assert isinstance(client._credentials, google.oauth2.credentials.Credentials)
assert "setup_logging" in vars(Client) and client.project == "p"
import os
del os.environ["GOOGLE_APPLICATION_CREDENTIALS"]
mine = google.auth.credentials.AnonymousCredentials()
given = google.cloud.logging.Client(project="p", credentials=mine)
assert given._credentials is mine and type(given) is Client and given._logging_api is None
"""
    done = run(program, tmp_path, GOOGLE_APPLICATION_CREDENTIALS=str(key))
    assert (done.returncode, done.stderr) == (0, "")


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    program = (
        "import google_cloud_mldiagnostics, google.cloud.logging\n"
        "from google.auth.exceptions import DefaultCredentialsError\n"
        "try:\n    google.cloud.logging.Client()\n"
        "except DefaultCredentialsError:\n    print('as ever')"
    )
    done = run(program, tmp_path, RUNWATCH_CLOUD_LOGGING="off")
    assert (done.stdout, done.stderr) == ("as ever\n", "")


def test_what_runwatch_exec_starts_needs_no_import_of_ours_first(tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    script.write_text(
        "import logging\nimport google.cloud.logging\n"
        "google.cloud.logging.Client().setup_logging()\nlogging.info('heard')\n"
        "import runwatch\nrunwatch.init('n')\nlogging.info('here')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "runwatch", "exec", "--", sys.executable, str(script)],
        env=program_environment(tmp_path / "runwatch", HOME=str(tmp_path), NO_GCE_CHECK="true"),
        text=True, capture_output=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0 and NO_CREDENTIALS in done.stderr, done.stderr
    found = [line for story in read_stories(tmp_path / "runwatch") for line in lines(story)]
    assert {"INFO:root:heard", "INFO:root:here"} <= {*found}


def test_starting_costs_nothing_of_runwatch(tmp_path: Path) -> None:
    program = """
import sys
import runwatch_dropin_start
print([name for name in sys.modules if name.split(".")[0] in ("runwatch", "google", "typing")])
"""
    done = run(program, tmp_path, "-S")
    assert (done.stdout, done.stderr) == ("[]\n", "")
