"""The monitor in real programs: they end, are killed and fork, and nothing of it stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from runwatch.testing import until
from tests.integration.processes import end
from tests.integration.sdk_programs import program_environment, run_program
from tests.sampling import sampled
from tests.unit.compat.goodput.monitor_help import event_files, metric_service, shown, tags

GOODPUT = "goodput/goodput"
DEVIATION = "step_deviation"

JOB = """
import datetime, os, signal, sys, threading
from runwatch.compat.goodput import goodput, monitoring
from runwatch.compat.goodput.goodput_utils import GCPOptions

BEGIN = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=600)

def at(seconds):
    return BEGIN + datetime.timedelta(seconds=seconds)

def record(first, last, begin):
    recorder = goodput.GoodputRecorder("job", "logger", True)
    recorder.record_job_start_time(at(begin))
    for step in range(first, last + 1):
        recorder.record_step_start_time(step, at(begin + 10 + 3 * (step - first)))
    return recorder

def monitor(upload_interval=3600, **options):
    return monitoring.GoodputMonitor(
        job_name="job", logger_name="logger", tensorboard_dir=os.environ["BOARD"],
        upload_interval=upload_interval, monitoring_enabled=True, include_badput_breakdown=True,
        include_step_deviation=True, gcp_options=GCPOptions(enable_gcp_goodput_metrics=False,
        enable_gcp_step_deviation_metrics=False), **options)

def monitor_threads():
    return [t for t in threading.enumerate() if t.name == "runwatch-goodput-monitor"]

def have_ended():
    for thread in monitor_threads():
        thread.join(30)
    return monitor_threads() == []
"""


def program(text: str) -> str:
    return JOB + textwrap.dedent(text)


@pytest.fixture
def board(tmp_path: Path) -> Path:
    return tmp_path / "board"


def run(text: str, root: Path, board: Path) -> subprocess.CompletedProcess[str]:
    return run_program(program(text), root / "runwatch", BOARD=str(board))


def processes_of(session: int) -> list[int]:
    """Every process of a session that is not a zombie."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(name))
    return found


def test_a_killed_program_leaves_no_process_and_whole_files(tmp_path: Path, board: Path) -> None:
    """The original's workers went on uploading after the program that they watched was gone."""
    text = """
        recorder = record(0, 20, 0)
        watching = monitor(0.05, step_deviation_interval_seconds=0.05)
        watching.start_goodput_uploader()
        watching.start_step_deviation_uploader()
        watching.start_rolling_window_goodput_uploader([60])
        threading.Event().wait()
        """
    process = subprocess.Popen(
        [sys.executable, "-c", program(text)],
        env=program_environment(tmp_path / "runwatch", BOARD=str(board)),
        start_new_session=True,
    )
    try:
        until(lambda: board.exists() and tags(board, DEVIATION) and tags(board, GOODPUT))
        assert processes_of(process.pid) == [process.pid]
    finally:
        assert end(process, signal.SIGKILL) == -signal.SIGKILL
    assert processes_of(process.pid) == []
    assert len(event_files(board)) == 1
    assert [step for step, _ in tags(board, DEVIATION)] == list(range(20))


@pytest.mark.parametrize("ending", sampled(["raise RuntimeError('lost')", "", "sys.exit(3)"], 1))
def test_a_program_that_never_stops_its_monitor_still_has_a_last_upload(
    tmp_path: Path, board: Path, ending: str
) -> None:
    done = run(
        f"""
        record(0, 20, 0)
        watching = monitor()
        watching.start_goodput_uploader()
        watching.start_step_deviation_uploader()
        {ending}
        """,
        tmp_path,
        board,
    )
    assert done.returncode == {"": 0, "sys.exit(3)": 3}.get(ending, 1)
    assert "runwatch" not in done.stderr
    assert [step for step, _ in tags(board, GOODPUT)] == [19]
    assert len(tags(board, DEVIATION)) == 20


def test_an_exit_is_not_held_up_by_a_monitor_that_skips_its_last_upload(
    tmp_path: Path, board: Path
) -> None:
    done = run(
        """
        record(0, 20, 0)
        watching = monitor(skip_final_flush=True)
        watching.start_goodput_uploader()
        """,
        tmp_path,
        board,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not board.exists()


def test_a_forked_child_does_not_monitor_until_it_says_so(tmp_path: Path, board: Path) -> None:
    done = run(
        """
        recorder = record(0, 20, 0)
        watching = monitor(0.05, skip_final_flush=True)
        watching.start_goodput_uploader()
        child = os.fork()
        if child == 0:
            assert monitor_threads() == []
            watching.stop_goodput_uploader()
            watching.stop_rolling_window_goodput_uploader()
            assert monitor_threads() == []
            watching.start_goodput_uploader()
            assert len(monitor_threads()) == 1
            watching.stop_goodput_uploader(skip_final_flush=False)
            assert have_ended()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert len(monitor_threads()) == 1
        watching.stop_goodput_uploader(skip_final_flush=False)
        assert have_ended()
        """,
        tmp_path,
        board,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(event_files(board)) == 2  # the parent's and the child's own, both whole
    assert {s.step for s in shown(board)} == {19}


def test_a_job_that_starts_again_goes_on_where_its_files_end(tmp_path: Path, board: Path) -> None:
    for first, last, begin in ((0, 20, 0), (15, 40, 300)):
        done = run(
            f"""
            record({first}, {last}, {begin})
            watching = monitor()
            watching.stop_goodput_uploader()
            watching.stop_step_deviation_uploader()
            """,
            tmp_path,
            board,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert [step for step, _ in tags(board, GOODPUT)] == [19, 39]
    assert [step for step, _ in tags(board, DEVIATION)] == list(range(40))


def test_a_signal_handler_may_stop_the_monitor(tmp_path: Path, board: Path) -> None:
    done = run(
        """
        record(0, 20, 0)
        watching = monitor(0.05)
        stopped = []

        def stop(number, frame):
            watching.stop_goodput_uploader()
            stopped.append(number)

        signal.signal(signal.SIGALRM, stop)
        for _ in range(50):
            count = len(stopped)
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            while len(stopped) == count:
                watching.start_goodput_uploader()
        watching.stop_goodput_uploader()
        assert have_ended()
        """,
        tmp_path,
        board,
    )
    assert done.returncode == 0, done.stderr
    assert {step for step, _ in tags(board, GOODPUT)} == {19}
    assert len(event_files(board)) == 1


def test_an_exit_is_not_held_up_by_an_outlet_that_hangs(tmp_path: Path, board: Path) -> None:
    with metric_service() as (service, _):
        service.may_answer.clear()
        done = run(
            f"""
            import grpc
            from google.cloud import monitoring_v3
            from google.cloud.monitoring_v3.services.metric_service import transports
            channel = grpc.insecure_channel("127.0.0.1:{service.port}")
            grpc.channel_ready_future(channel).result(30)
            client = monitoring_v3.MetricServiceClient(
                transport=transports.MetricServiceGrpcTransport(channel=channel))
            record(0, 20, 0)
            watching = monitoring.GoodputMonitor(
                "job", "logger", os.environ["BOARD"], 3600, True, final_flush_timeout_seconds=3,
                gcp_options=GCPOptions("p", "z", "0", "A"), metrics_client=client)
            watching.start_goodput_uploader()
            """,
            tmp_path,
            board,
        )
        assert service.arrived.is_set()
        assert service.requests == []  # not answered, and the program is gone
    assert done.returncode == 0, done.stderr
    assert [step for step, _ in tags(board, GOODPUT)] == [19]
