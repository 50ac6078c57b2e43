"""Programs for ml-goodput-measurement, in processes that know only its names or ours."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from runwatch.compat.goodput.log.backend import JournalLogger
from runwatch.compat.goodput.log.entries import Entry
from runwatch.record import JournalId
from runwatch.rows import ProcessRow
from runwatch.testing import Story, read_stories, until
from runwatch.views.attempts import attempts
from tests.integration.sdk_programs import ROOT, program_environment, run_program, start_program

PACKAGES = ("runwatch.compat.goodput", "ml_goodput_measurement")
MODULES = (
    "checkpoint_badput_calculator", "gcp_metrics", "goodput", "goodput_cache", "goodput_elastic",
    "goodput_utils", "monitoring", "monitoring_elastic",
)  # fmt: skip


def read(directory: Path, job: str, logger: str) -> list[Entry]:
    source = JournalLogger(job, logger, root=directory)
    try:
        return source.read_cloud_logging_entries()[0]
    finally:
        source.close()


def attempt_numbers(stories: list[Story]) -> list[int]:
    rows = []
    for story in stories:
        (scope,) = story.scopes
        origin = story.origin
        rows.append(
            ProcessRow(
                origin.journal, scope.run, scope.name, origin.host, origin.pid, scope.rank,
                scope.world_size, scope.attempt_key, scope.group, origin.start_ns, origin.boot,
                origin.process_start_ticks, origin.role, origin.start_ns,
            )
        )  # fmt: skip
    numbers = attempts(rows)
    return [numbers[JournalId(row.journal), row.run] for row in rows]


# ── imports ───────────────────────────────────────────────────────────────────────────────────


def test_every_way_to_import_leads_to_the_same_modules(tmp_path: Path) -> None:
    done = run_program(
        f"""
        import importlib, sys
        import ml_goodput_measurement
        light = [name for name in sys.modules if name.partition(".")[0] == "runwatch"]
        for name in {(*MODULES, "goodput_exclusion", "exclusion_utils")}:
            ours = importlib.import_module("runwatch.compat.goodput." + name)
            assert importlib.import_module("ml_goodput_measurement." + name) is ours, name
            assert importlib.import_module("ml_goodput_measurement.src." + name) is ours, name
            assert getattr(importlib.import_module("ml_goodput_measurement.src"), name) is ours
        from runwatch.compat import goodput as ours
        for name in {MODULES}:
            assert getattr(ml_goodput_measurement, name) is getattr(ours, name)
            assert name in dir(ml_goodput_measurement)
        from ml_goodput_measurement import goodput, monitoring
        import ml_goodput_measurement.goodput
        from ml_goodput_measurement.src.goodput import GoodputRecorder
        assert ml_goodput_measurement.goodput is goodput
        assert GoodputRecorder is goodput.GoodputRecorder
        assert monitoring.GCPOptions is ml_goodput_measurement.goodput_utils.GCPOptions
        assert not hasattr(ml_goodput_measurement, "gooodput")
        print(light)
        """,
        tmp_path,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_users_own_test_can_patch_its_way_in(tmp_path: Path) -> None:
    done = run_program(
        """
        from unittest import mock
        from ml_goodput_measurement import goodput
        with mock.patch("ml_goodput_measurement.goodput.GoodputRecorder") as recorder:
            goodput.GoodputRecorder("job", "log", True)
        recorder.assert_called_once_with("job", "log", True)
        with mock.patch("ml_goodput_measurement.src.goodput.GoodputCalculator") as calculator:
            assert goodput.GoodputCalculator is calculator
        print(goodput.GoodputRecorder.__name__)
        """,
        tmp_path,
    )
    assert (done.stdout, done.stderr) == ("GoodputRecorder\n", "")


# ── the guide ─────────────────────────────────────────────────────────────────────────────────

# The calls are the guide's, letter by letter; what stands around them is ours.
GUIDE = """
import datetime, json, time, types
import numpy as np
from PACKAGE import goodput
from PACKAGE import monitoring
from PACKAGE import goodput_utils

jax = types.SimpleNamespace(process_index=lambda: 0)
config = types.SimpleNamespace(run_name="guide/run 1", steps=6, monitor_goodput=True,
                               tensorboard_dir="board", goodput_upload_interval_seconds=0.2)
start_step = 0

goodput_logger_name = f'goodput_{config.run_name}'
goodput_recorder = goodput.GoodputRecorder(job_name=config.run_name, logger_name=goodput_logger_name, logging_enabled=(jax.process_index() == 0))

def load_next_batch(data_iterator, example_batch, config):
    time.sleep(0.002)

def train_loop(config, state=None):
    data_iterator = example_batch = None
    goodput_recorder.record_tpu_init_start_time()
    time.sleep(0.01)
    goodput_recorder.record_tpu_init_end_time()
    goodput_recorder.record_training_preparation_start_time()
    time.sleep(0.02)
    goodput_recorder.record_training_preparation_end_time()
    for step in np.arange(start_step, config.steps):
        goodput_recorder.record_data_loading_start_time()
        example_batch = load_next_batch(data_iterator, example_batch, config)
        goodput_recorder.record_data_loading_end_time()
        goodput_recorder.record_step_start_time(step)
        time.sleep(0.5 if step == 0 else 0.01)  # longer than others take on a busy machine
    return state

def main(argv):
    goodput_recorder.record_job_start_time(datetime.datetime.now())
    train_loop(config)
    goodput_recorder.record_job_end_time(datetime.datetime.now())

main([])

goodput_calculator = goodput.GoodputCalculator(job_name=config.run_name, logger_name=goodput_logger_name)
goodput_calculator = goodput.GoodputCalculator(job_name=config.run_name, logger_name=goodput_logger_name, using_pathways=True)

total_goodput, _, _ = goodput_calculator.get_job_goodput()
print(f"Total job goodput: {total_goodput:.2f}%")

goodput, badput_breakdown, last_step = goodput_calculator.get_job_goodput(include_badput_breakdown=True)
print(f"Last step recorded: {last_step}")
print(f"Goodput: {goodput:.2f}%")
print(f"Badput due to TPU initialization: {badput_breakdown[goodput.BadputType.TPU_INITIALIZATION]:.2f}%")
print(f"Badput due to training preparation: {badput_breakdown[goodput.BadputType.TRAINING_PREP]:.2f}%")
print(f"Badput due to program startup: {badput_breakdown[goodput.BadputType.PROGRAM_STARTUP]:.2f}%")
print(f"Badput due to data loading: {badput_breakdown[goodput.BadputType.DATA_LOADING_SYNC]:.2f}%")
print(f"Badput due to disruption and wasted progress: {badput_breakdown[goodput.BadputType.WASTED_PROGRESS_FROM_DISRUPTION]:.2f}%")
print(f"Badput due to checkpoint save: {badput_breakdown[goodput.BadputType.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME]:.2f}%")
print(f"Badput due to checkpoint restore: {badput_breakdown[goodput.BadputType.UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME]:.2f}%")
print(f"Badput from unknown source: {badput_breakdown[goodput.BadputType.OTHER]:.2f}%")

def convert_pst_to_utc(text):
    return datetime.datetime.fromisoformat(text).astimezone(datetime.timezone.utc)

now = datetime.datetime.now()
start_time_str = (now - datetime.timedelta(hours=1)).isoformat(" ")
start_time_utc = convert_pst_to_utc(start_time_str)
end_time_str = now.isoformat(" ")
end_time_utc = convert_pst_to_utc(end_time_str)
current_goodput, badput_breakdown, last_step, total_time, disruptions = goodput_calculator.get_job_goodput_interval(start_time_utc, end_time_utc)
print(json.dumps([current_goodput, len(badput_breakdown), last_step, total_time, disruptions]))
"""  # noqa: E501

MONITORS = """
import types
from PACKAGE import goodput
from PACKAGE import monitoring
from PACKAGE import goodput_utils

jax = types.SimpleNamespace(process_index=lambda: 0)
config = types.SimpleNamespace(run_name="guide", monitor_goodput=True, tensorboard_dir="board",
                               goodput_upload_interval_seconds=0.2)
logger_name = goodput_logger_name = f'goodput_{config.run_name}' # You can choose your own logger name.
recorder = goodput.GoodputRecorder(config.run_name, logger_name, True)
recorder.record_job_start_time()
for step in range(5):
    recorder.record_step_start_time(step)
recorder.record_job_end_time()

goodput_monitoring_enabled = config.monitor_goodput and jax.process_index() == 0 # Check for configs whether or not the enable monitoring.

goodput_monitor = monitoring.GoodputMonitor(
      job_name=config.run_name,
      logger_name=logger_name,
      tensorboard_dir=config.tensorboard_dir,
      upload_interval=config.goodput_upload_interval_seconds,
      monitoring_enabled=True,
      include_badput_breakdown=True,
    )

goodput_monitor = monitoring.GoodputMonitor(
      job_name=config.run_name,
      logger_name=logger_name,
      tensorboard_dir=config.tensorboard_dir,
      upload_interval=config.goodput_upload_interval_seconds,
      monitoring_enabled=True,
      include_badput_breakdown=True,
      pathway_enabled=True
    )

goodput_monitor = monitoring.GoodputMonitor(
      job_name=config.run_name,
      logger_name=logger_name,
      tensorboard_dir=config.tensorboard_dir,
      upload_interval=config.goodput_upload_interval_seconds,
      monitoring_enabled=True,
      include_badput_breakdown=True,
      include_step_deviation=True,
      configured_ideal_step_time=None # Optional, the library will compute ideal step time if it is not provided
    )

gcp_options = goodput_utils.GCPOptions(
      project_id=None, # If None, the library will automatically identify from GCE internal metadata
      location=None, # If None, the library will automatically identify from GCE internal metadata
      replica_id='0', # Default is '0'
      acc_type=None, # If None, the library will automatically identify from GCE internal metadata
      enable_gcp_goodput_metrics=True,
      enable_gcp_step_deviation_metrics=True,
    )

goodput_monitor = monitoring.GoodputMonitor(
      job_name=config.run_name,
      logger_name=logger_name,
      tensorboard_dir=config.tensorboard_dir,
      upload_interval=config.goodput_upload_interval_seconds,
      monitoring_enabled=True,
      include_badput_breakdown=True,
      include_step_deviation=True,
      configured_ideal_step_time=None, # Optional, the library will compute ideal step time if it is not provided
      gcp_options=gcp_options
    )

gcp_options = goodput_utils.GCPOptions(
      project_id=None, # If None, the library will automatically identify from GCE internal metadata
      location=None, # If None, the library will automatically identify from GCE internal metadata
      replica_id='0', # Default is '0'
      acc_type=None, # If None, the library will automatically identify from GCE internal metadata
      enable_gcp_goodput_metrics=True,
    )

goodput_monitor = monitoring.GoodputMonitor(
      job_name=config.run_name,
      logger_name=logger_name,
      tensorboard_dir=config.tensorboard_dir,
      upload_interval=config.goodput_upload_interval_seconds,
      monitoring_enabled=True,
      include_badput_breakdown=True,
      gcp_options=gcp_options
    )

gcp_options = goodput_utils.GCPOptions(
      project_id=None, # If None, the library will automatically identify from GCE internal metadata
      location=None, # If None, the library will automatically identify from GCE internal metadata
      replica_id='0', # Default is '0'
      acc_type=None, # If None, the library will automatically identify from GCE internal metadata
      enable_gcp_goodput_metrics=False,
      enable_gcp_step_deviation_metrics=False,
    )

goodput_monitor = monitoring.GoodputMonitor(
      job_name=config.run_name,
      logger_name=logger_name,
      tensorboard_dir=config.tensorboard_dir,
      upload_interval=config.goodput_upload_interval_seconds,
      monitoring_enabled=True,
      include_badput_breakdown=True,
      include_step_deviation=True,
      configured_ideal_step_time=None, # Optional, the library will compute ideal step time if it is not provided
      gcp_options=gcp_options
    )
goodput_monitor.start_goodput_uploader()
goodput_monitor.start_step_deviation_uploader()
goodput_monitor.start_goodput_interval_uploader(window_size_seconds = 43200)

goodput_monitor.stop_goodput_uploader()
goodput_monitor.stop_step_deviation_uploader()
goodput_monitor.stop_goodput_interval_uploader()
print("done")
"""  # noqa: E501


@pytest.mark.parametrize("package", PACKAGES)
def test_the_guides_programs_run(tmp_path: Path, package: str) -> None:
    done = run_program(GUIDE.replace("PACKAGE", package), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, interval = done.stdout.splitlines()
    said = dict(line.rsplit(": ", 1) for line in lines)
    assert said["Last step recorded"] == "5"
    percent = {name: float(text.rstrip("%")) for name, text in said.items()}
    assert percent["Total job goodput"] == percent["Goodput"]
    assert 0 < percent["Goodput"] < 100
    assert percent["Badput due to TPU initialization"] > 0
    assert percent["Badput due to training preparation"] > 0
    assert percent["Badput due to program startup"] > 0
    assert percent["Badput due to disruption and wasted progress"] == 0
    current, buckets, last_step, total_seconds, disruptions = json.loads(interval)
    assert 0 < current < 100
    assert (buckets, last_step, disruptions) == (11, 5, 0)
    assert total_seconds > 0.1
    (story,) = read_stories(tmp_path)
    assert story.scopes[0].name == "guide/run 1"
    assert story.warnings == {}
    assert story.end["status"] == "completed"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_guides_monitors_run(tmp_path: Path, package: str) -> None:
    text = "import os; os.chdir(os.environ['RUNWATCH_DIR'])\n" + MONITORS
    done = run_program(text.replace("PACKAGE", package), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert len(list((tmp_path / "board" / "goodput").iterdir())) == 1


def test_the_example(tmp_path: Path) -> None:
    folder = ROOT / "examples" / "03-goodput-program"
    for attempt in (1, 2):
        done = subprocess.run(
            [sys.executable, str(folder / "train.py")],
            env=program_environment(tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        stories = read_stories(tmp_path)
        assert attempt_numbers(stories) == [*range(1, attempt + 1)]
        assert done.stderr == ""
        assert done.stdout.startswith("Last step recorded: 59\nGoodput: ")
        assert "CUSTOM_BADPUT_EVENTS EVALUATION: " in done.stdout
    assert stories[0].steps("goodput.step_start_time") == list(range(60))
    assert "python examples/03-goodput-program/train.py" in (folder / "README.md").read_text()


# ── kills and restarts ────────────────────────────────────────────────────────────────────────

ENDLESS = """
import sys
from ml_goodput_measurement import goodput
recorder = goodput.GoodputRecorder("job", "log", True)
recorder.record_job_start_time()
step = int(sys.argv[1]) if len(sys.argv) > 1 else 0
while True:
    recorder.record_step_start_time(step)
    print(step, flush=True)
    step += 1
"""

ASK = """
import json
from ml_goodput_measurement import goodput
calculator = goodput.GoodputCalculator(JOB, "log")
percent, badput, last_step = calculator.get_job_goodput(True)
details = calculator.get_job_goodput_details()
print(json.dumps([percent, last_step, details["disruption_count"]]))
"""


def ask(directory: Path, job: str = "job") -> list[Any]:
    done = run_program(ASK.replace("JOB", repr(job)), directory)
    assert (done.returncode, done.stderr) == (0, "")
    answer: list[Any] = json.loads(done.stdout)
    return answer


def record_until_killed(directory: Path, enough: int) -> int:
    """The last step that the program said it had recorded."""
    with start_program(ENDLESS, directory) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) >= enough:
                    break
        finally:
            process.kill()
        rest = process.stdout.read().split("\n")[:-1]
        return int(rest[-1]) if rest else enough


def test_after_a_kill_the_journal_answers(tmp_path: Path) -> None:
    last = record_until_killed(tmp_path, 300)
    steps = [e["step_count"] for e in read(tmp_path, "job", "log")[1:]]
    assert steps == list(range(len(steps)))
    assert last <= steps[-1] <= last + 1
    percent, last_step, disruptions = ask(tmp_path)
    assert 0 < percent <= 100
    assert last_step == steps[-1] - 1  # the last has no end that is known
    assert disruptions == 0


def test_a_job_that_is_started_again_is_another_attempt(tmp_path: Path) -> None:
    record_until_killed(tmp_path, 50)
    before = len(read(tmp_path, "job", "log"))
    run_program(
        """
        from ml_goodput_measurement import goodput
        recorder = goodput.GoodputRecorder("job", "log", True)
        recorder.record_job_start_time()
        for step in range(40, 100):
            recorder.record_step_start_time(step)
        recorder.record_job_end_time()
        """,
        tmp_path,
    )
    stories = read_stories(tmp_path)
    assert attempt_numbers(stories) == [1, 2]
    assert len(read(tmp_path, "job", "log")) == before + 62
    _, last_step, disruptions = ask(tmp_path)
    assert (last_step, disruptions) == (99, 1)


def test_two_processes_record_into_one_log(tmp_path: Path) -> None:
    program = """
        from ml_goodput_measurement import goodput
        recorder = goodput.GoodputRecorder("job", "log", True)
        for step in range(50):
            recorder.record_step_start_time(step)
            print(step, flush=True)
        input()
        """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            env=program_environment(tmp_path, RANK=str(rank), WORLD_SIZE="2"),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    try:
        # While both still live, and follow each other in time.
        until(lambda: len(read(tmp_path, "job", "log")) == 100, what="both to record")
    finally:
        for process in processes:
            process.communicate(b"\n", timeout=100)
    source = JournalLogger("job", "log", root=tmp_path)
    columns = list(source.read_columns())
    source.close()
    moments = [moment for some in columns for moment in some.time_ns]
    assert moments == sorted(moments)
    assert sorted(s for some in columns for s in some.step) == sorted([*range(50)] * 2)
    stories = read_stories(tmp_path)
    assert {s.scopes[0].rank for s in stories} == {0, 1}
    assert attempt_numbers(stories) == [1, 1]


@pytest.mark.parametrize("name", ["team/llama 70b", "ein Lauf mit Ümläuten 模型", "../../etc"])
def test_any_name_of_a_job(tmp_path: Path, name: str) -> None:
    done = run_program(
        f"""
        from ml_goodput_measurement import goodput
        recorder = goodput.GoodputRecorder({name!r}, "log", True)
        recorder.record_job_start_time()
        for step in range(5):
            recorder.record_step_start_time(step)
        recorder.record_job_end_time()
        """,
        tmp_path / "here",
    )
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    assert ask(tmp_path / "here", name)[1:] == [4, 0]
