"""The guide of google-cloud-mldiagnostics: its examples run on the drop-in, without an account."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.testing import Story, read_stories
from tests.integration.sdk_programs import program_environment
from tests.integration.standins import StandIns
from tests.seeds import Block, blocks, filled_in, run_blocks, run_shell, with_document

SEED = "001"
PROGRAMS = ("apt-get", "curl", "gcloud", "gpg", "helm", "kubectl", "pip", "python3.11", "sudo")
VALUES = {
    "run_name": "run-1", "run_group": "group-1", "some_project": "project-1",
    "some_zone": "us-central1", "some_bucket": "bucket-1", "bucket": "bucket-1",
    "workload": "train", "yaml_name": "job", "your-namespace": "diagon",
}  # fmt: skip
AROUND = """
import os, runwatch_dropin_start
import jax, jax.numpy
num_steps = 20
step_size, loss, gradient, total_weights = 0.1, 0.2, 0.3, 4
step_time, throughput, latency, tflops, mfu = 0.5, 6, 0.7, 8, 9
def train_model(): jax.numpy.ones(8).sum().block_until_ready()
def evaluate_model(): pass
"""
"""What the examples take for granted.  The first line is what an installed drop-in does itself."""


def environment(place: Path, **more: str) -> dict[str, str]:
    # On an address of its own, the port 9999 is nobody else's.
    return program_environment(
        place,
        HOME=str(place.parent),
        NO_GCE_CHECK="true",
        RUNWATCH_XPROF_ADDRESS="127.9.9.9",
        ENV="prod",
        JAX_PLATFORMS="cpu",
        GOOGLE_APPLICATION_CREDENTIALS="",
        CLOUDSDK_CONFIG="",
        **more,
    )


def lines(stories: list[Story]) -> Iterator[str]:
    for story in stories:
        for event in story.events:
            if event.kind == "console":
                yield from event.body["lines"]


def is_shell(block: Block) -> bool:
    return block.language == "bash" or "source " in block.text


def whole(text: str) -> str:
    """Dots stand for other arguments: here, for none, or for the name that a run must have."""
    text = re.sub(r"^ *\.\.\.\n", "", text, flags=re.MULTILINE)
    return re.sub(r"(machinelearning_run\(\n) *# \.\.\.\n", r'\1name="run-1",\n', text)


@with_document(SEED)
def test_every_example_of_the_document_runs(tmp_path: Path) -> None:
    found = [b for b in blocks(SEED) if b.language == "python" and not is_shell(b)]
    assert len(found) == 11
    for name in ("jax", "yaml"):  # the examples' own
        pytest.importorskip(name)
    (tmp_path / "config.yaml").write_text("epochs: 3\noptimizer: adam\n")
    parts = [("what is taken for granted", AROUND)]
    parts += [(f"block {b.number}", filled_in(whole(b.text), VALUES)) for b in found]
    done = run_blocks(parts, environment(tmp_path / "runwatch"), tmp_path)
    assert "finds no credentials" in done.stderr
    stories = read_stories(tmp_path / "runwatch")
    said = [*lines(stories)]
    assert not [line for line in said if line.startswith("ERROR")]
    assert "INFO:root:MLRun created: run-1" in said and "INFO:root:Profile captured." in said
    assert [value for story in stories for value in story.values("mfu")] == [9.0, 9.0]
    # Nobody can write to that bucket here: each profile is kept beside the run.
    profiles = (tmp_path / "runwatch" / "profiles").glob("run-1/plugins/profile/*/*.xplane.pb")
    assert len([*profiles]) == 6
    assert {"epochs": 3, "optimizer": "adam"}.items() <= stories[0].config("user").items()


@with_document(SEED)
def test_every_command_line_of_the_document_runs(tmp_path: Path) -> None:
    found = [b for b in blocks(SEED) if is_shell(b)]
    assert len(found) == 14
    standins = StandIns(tmp_path / "standins", *PROGRAMS)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "activate").touch()
    for block in found:
        run_shell(filled_in(block.text, VALUES), standins, tmp_path)
    assert standins.calls("python3.11") == [["train.py"]]
    assert ["install", "google-cloud-mldiagnostics"] in standins.calls("pip")
    assert len(standins.calls("helm", "install", "oci://")) == 2
    assert len(standins.calls("gcloud", "download")) == 2
    assert standins.calls("kubectl", "label", "managed-mldiagnostics-gke=true")
    assert len(standins.calls("kubectl", "delete", "-f")) == 3


@with_document(SEED)
def test_nothing_of_the_document_is_left_out(tmp_path: Path) -> None:
    rest = {b.language: b.text for b in blocks(SEED) if b.language not in ("bash", "python")}
    assert sorted(rest) == ["", "dockerfile", "yaml"]
    assert rest["yaml"].rstrip().endswith('managed-mldiagnostics-gke: "true"')
    assert rest["dockerfile"].count("google-cloud-mldiagnostics") >= 1
    begins = rest[""].partition("{")[0]
    program = (
        "import logging; logging.basicConfig(level='DEBUG')\n"
        "from google_cloud_mldiagnostics import machinelearning_run\n"
        "machinelearning_run('n', gcs_path='gs://b')"
    )
    parts = [("debug", program)]
    done = run_blocks(parts, environment(tmp_path / "runwatch"), tmp_path)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith(begins)]
    assert "'gcs_path': 'gs://b'" in line


# ── the same in our own words, wherever the tests run ─────────────────────────────────────────

OURS = """
import logging, os, json, runwatch_dropin_start
import google.cloud.logging

client = google.cloud.logging.Client()
client.setup_logging()
logging.getLogger().setLevel(logging.DEBUG)
logging.debug("details")

from google_cloud_mldiagnostics import machinelearning_run, metric_types, metrics, xprof

with open("config.json") as file:
    configs = json.load(file)
run = machinelearning_run(name="one", run_group="g", configs=configs, project="p",
                          region="us-central1", gcs_path="PROFILES", on_demand_xprof=True,
                          environment=os.environ.get("ENV", "env"))
logging.info("began %s", run.name)
metrics.record(metric_types.MetricType.LOSS, 0.123, step=1)

profile = xprof()
profile.start()
profile.stop()
profile.start(session_id="named")
profile.stop()

@xprof()
def trained(a):
    return a + 1

assert trained(1) == 2
with xprof() as profile:
    pass
only = xprof(process_index_list=[0, 2])
only.start()
only.stop()
nobody = xprof(process_index_list=[7])
nobody.start()
nobody.stop()
"""


def test_the_calls_of_the_examples_in_our_words(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"epochs": 3}')
    program = OURS.replace("PROFILES", str(tmp_path / "profiles"))
    run_blocks([("ours", program)], environment(tmp_path / "runwatch"), tmp_path)
    (story,) = read_stories(tmp_path / "runwatch")
    said = [*lines([story])]
    assert "DEBUG:root:details" in said and "INFO:root:began one" in said
    assert any(line.startswith("DEBUG:google_cloud_mldiagnostics.core.") for line in said)
    assert (story.values("loss"), story.config("user")) == ([0.123], {"epochs": 3})
    sessions = {e.body["session"] for e in story.events if e.kind == "profile"}
    assert "named" in sessions and len(sessions) == 5
