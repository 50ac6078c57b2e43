"""Run a real four-rank training job with a slow phase, a crash and a restart, and report on it.

It starts a head with the embedded store on this machine, trains a small model with NumPy (nothing
is downloaded), kills one rank on purpose, restarts from the checkpoint, and prints what happened.
In a terminal it then keeps serving until Ctrl-C; otherwise it ends after the report.

example:
  runwatch demo
  runwatch demo --steps 300 --no-serve
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from runwatch.address import Listening, read_address
from runwatch.agent.lock import end_agents
from runwatch.cli import demo_train
from runwatch.cli.commands.runs import print_runs
from runwatch.cli.commands.show import attempt_reasons, process_table
from runwatch.cli.pictures import goodput as goodput_picture
from runwatch.cli.pictures import tables
from runwatch.cli.pictures.chart import draw
from runwatch.cli.pictures.progress import no_progress
from runwatch.cli.source import RemoteSource
from runwatch.errors import RunwatchError, UsageError
from runwatch.record.node import ProcessExit
from runwatch.settings import runwatch_dir

RANKS: Final = 4
STEPS: Final = 400
RUN: Final = "demo-spirals"
RANKS_LOG: Final = "ranks.log"
START_SECONDS: Final = 30.0
SETTLE_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.1


def arguments(parser: argparse.ArgumentParser) -> None:
    least = demo_train.CRASH_STEP + 1
    parser.add_argument(
        "--steps", type=int, default=STEPS, help=f"at least {least} (default {STEPS})"
    )
    parser.add_argument("--dir", type=Path, help="where to put it (default $RUNWATCH_DIR/demo)")
    parser.add_argument(
        "--port", type=int, default=0, help="port of the page (default: a free one)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON, and end")
    serve = parser.add_mutually_exclusive_group()
    serve.add_argument("--serve", action="store_true", default=None, help="keep serving")
    serve.add_argument(
        "--no-serve", action="store_false", dest="serve", help="end after the report"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.steps <= demo_train.CRASH_STEP:
        raise UsageError(
            f"--steps is {arguments.steps}: a rank is killed at step {demo_train.CRASH_STEP}, so "
            "the demo needs more"
        )
    out = tables.console(to_stderr=arguments.json)
    root = _fresh_directory(arguments.dir)
    serve = sys.stdout.isatty() if arguments.serve is None else arguments.serve
    serve = serve and not arguments.json
    with _head(root, arguments.port) as at, _agent_ended(root):
        _say(out, f"head with an embedded store: {at.link}")
        _train(out, root, at, arguments.steps)
        head = RemoteSource(at.http, at.token)
        _settle(head)
        if arguments.json:
            of_run = f"/runs/{RUN}"
            tables.print_json({"run": head.get(of_run), "goodput": head.get(f"{of_run}/goodput")})
        else:
            _report(out, head, arguments.steps)
        if serve:
            _say(out, f"\nSee it in a browser: {at.link}#/run/{RUN}")
            _say(out, f"or: runwatch show {RUN} --dir {root}\nEnd with Ctrl-C.")
            _wait_for_interrupt()
    _say(out, f"\nSee it in a browser: {_program()} ui {root} --port 0")
    return 0


def _say(out: Console, line: str) -> None:
    """Print the line unchanged, so that it can be copied."""
    out.print(line, highlight=False, markup=False, soft_wrap=True)


def _program() -> str:
    """The command to type in this shell: after `make demo` the environment is not active."""
    ours = Path(sys.executable).parent / "runwatch"
    on_path = shutil.which("runwatch")
    if on_path is not None and Path(on_path) == ours:
        return "runwatch"
    return os.path.relpath(ours) if ours.is_relative_to(Path.cwd()) else str(ours)


def _fresh_directory(chosen: Path | None) -> Path:
    """The demo's own directory.  An earlier demo's is emptied; any other is refused."""
    root = chosen or runwatch_dir() / "demo"
    marker = root / "made-by-runwatch-demo"
    if root.exists() and any(root.iterdir()):
        if not marker.exists():
            raise RunwatchError(f"{root} is not empty and no demo made it; choose another --dir")
        shutil.rmtree(root)
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    marker.touch()
    return root


# ── the processes ──────────────────────────────────────────────────────────────────────────────


@contextmanager
def _head(root: Path, port: int) -> Iterator[Listening]:
    command = [sys.executable, "-m", "runwatch.cli", "head", "--dir", str(root)]
    command += ["--http-port", str(port), "--grpc-port", "0"]
    with (root / "head.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield _wait_for_head(root, process)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_head(root: Path, process: subprocess.Popen[bytes]) -> Listening:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        address = read_address(root)
        if address is not None and address.pid == process.pid:
            return address
        time.sleep(POLL_SECONDS)
    words = (root / "head.log").read_text(errors="replace").strip()
    raise RunwatchError(f"the head did not start: {words[-500:] or 'it logged nothing'}")


@contextmanager
def _agent_ended(root: Path) -> Iterator[None]:
    """End the agent that the SDK started, instead of waiting until it is idle and ends itself."""
    try:
        yield
    finally:
        end_agents(root)


def _start_ranks(
    root: Path, at: Listening, steps: int, attempt: int
) -> list[subprocess.Popen[bytes]]:
    environment = os.environ | {
        "RUNWATCH_DIR": str(root),
        "RUNWATCH_HEAD": at.grpc,
        "RUNWATCH_TOKEN": at.token,
        "RUNWATCH_AGENT": "on",
        "WORLD_SIZE": str(RANKS),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "runwatch.cli.demo_train", "--steps", str(steps)]
    command += ["--attempt", str(attempt), "--checkpoint", str(root / "checkpoint.npz")]
    command += ["--address", str(root / f"ranks-{attempt}")]
    with (root / RANKS_LOG).open("ab") as log:
        return [
            subprocess.Popen(command, env=environment | {"RANK": str(rank)}, stdout=log, stderr=log)
            for rank in range(RANKS)
        ]


def _train(out: Console, root: Path, at: Listening, steps: int) -> None:
    """Start the ranks.  If one dies, stop the others and start all again, as launchers do."""
    head = RemoteSource(at.http, at.token)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("step {task.completed}"))
    quiet = not sys.stdout.isatty()
    shown = Progress(*columns, TimeElapsedColumn(), console=out, transient=True, disable=quiet)
    with no_progress(), shown:
        for attempt in (1, 2, 3):
            began = time.monotonic()
            ranks = _start_ranks(root, at, steps, attempt)
            task = shown.add_task(f"attempt {attempt}: {RANKS} ranks", total=steps)
            try:
                failed = _watch(ranks, partial(_show_step, shown, task, head))
            finally:
                _stop(ranks)
            took = time.monotonic() - began
            if failed is None:
                out.print(f"attempt {attempt}: all ranks finished after {took:.1f} s")
                return
            how = _ending(ranks[failed].returncode)
            out.print(f"attempt {attempt}: rank {failed} {how} after {took:.1f} s; starting again")
    raise RunwatchError(f"the demo's job failed three times; see {root / RANKS_LOG}")


def _watch(ranks: list[subprocess.Popen[bytes]], tick: Callable[[], None]) -> int | None:
    """The rank that failed, or None when all have finished.

    Ranks that lose a peer fail, too: a killed rank is the cause, so it is preferred.
    """
    while True:
        codes = [rank.poll() for rank in ranks]
        failed = [number for number, code in enumerate(codes) if code]
        if failed:
            return min(failed, key=lambda number: codes[number] or 0)
        if all(code == 0 for code in codes):
            return None
        tick()
        time.sleep(POLL_SECONDS)


def _stop(ranks: list[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        if rank.poll() is None:
            rank.terminate()
    for rank in ranks:
        rank.wait()


def _ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _show_step(shown: Progress, task: TaskID, head: RemoteSource) -> None:
    runs = head.get("/runs")["runs"]
    shown.update(task, completed=(runs[0]["last_step"] or 0) if runs else 0)


# ── the report ─────────────────────────────────────────────────────────────────────────────────


def _settle(head: RemoteSource) -> None:
    """Wait until the head knows how every process ended."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        runs = head.get("/runs")["runs"]
        if runs and runs[0]["state"] != "running" and _every_end_is_known(head):
            return
        time.sleep(POLL_SECONDS)


def _every_end_is_known(head: RemoteSource) -> bool:
    exits = head.get(f"/runs/{RUN}/events", kind=ProcessExit.KIND)["events"]
    processes = head.get(f"/runs/{RUN}/processes")["processes"]
    return len(exits) >= len(processes)


def _report(out: Console, head: RemoteSource, steps: int) -> None:
    out.rule("runs")
    print_runs(head.get("/runs")["runs"])
    for reason in attempt_reasons(head.get(f"/runs/{RUN}")):
        out.print(reason, style="dim", highlight=False, soft_wrap=True)
    out.rule("how each process ended")
    out.print(process_table(head.get(f"/runs/{RUN}/processes")["processes"]))
    out.rule("metrics")
    answer = head.get(
        f"/runs/{RUN}/curves", metric=["loss", "accuracy"], axis="step", buckets=steps
    )
    out.print(_metric_table(head, answer["curves"]))
    newest = [curve for curve in answer["curves"] if curve["metric"] == "loss"]
    out.print(Text.from_ansi(draw(newest, "step", width=min(out.width, 100), height=14)))
    _say_slow_phase(out, head, steps)
    out.rule("goodput: where the time went")
    answer = head.get(f"/runs/{RUN}/goodput", buckets=min(out.width, goodput_picture.WIDEST))
    out.print(goodput_picture.account(head.get(f"/runs/{RUN}"), answer, out.width))


def _metric_table(head: RemoteSource, curves: list[dict[str, Any]]) -> Any:
    shown = tables.table(
        "metric", "attempt", "points", "first", "last", "least", "most",
        right=("attempt", "points", "first", "last", "least", "most"),
    )  # fmt: skip
    for curve in sorted(curves, key=lambda c: (c["metric"], c["attempt"])):
        least = min(value for value in curve["minimum"] if value is not None)
        most = max(value for value in curve["maximum"] if value is not None)
        shown.add_row(
            curve["metric"], str(curve["attempt"]), f"{sum(curve['count']):,}",
            *(tables.number(v) for v in (curve["first"][0], curve["last"][-1], least, most)),
        )  # fmt: skip
    return shown


def _say_slow_phase(out: Console, head: RemoteSource, steps: int) -> None:
    """Print which rank waited longest for its data, and when: that is the injected slow phase."""
    answer = head.get(
        f"/runs/{RUN}/curves", metric="data_wait_seconds", axis="step", buckets=steps, attempt=1
    )
    waits = {
        c["rank"]: sum(m * n for m, n in zip(c["mean"], c["count"], strict=True))
        for c in answer["curves"]
    }
    if not waits:
        return
    worst = max(waits, key=lambda rank: waits[rank])
    curve = next(c for c in answer["curves"] if c["rank"] == worst)
    slow = [
        p
        for p, m in zip(curve["position"], curve["mean"], strict=True)
        if m > demo_train.SLOW_SECONDS / 2
    ]
    others = sorted(value for rank, value in waits.items() if rank != worst)
    span = f"in steps {slow[0]}–{slow[-1]}" if slow else "throughout"
    out.print(
        f"\nrank {worst} waited {waits[worst]:.1f} s for data, mostly {span}; "
        f"the other ranks {others[0]:.2f}–{others[-1]:.2f} s",
        highlight=False,
        soft_wrap=True,
    )


def _wait_for_interrupt() -> None:
    try:
        signal.pause()
    except KeyboardInterrupt:
        return
