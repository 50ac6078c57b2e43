"""Profiles that programs take of themselves: real JAX and real torch, on the CPU."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import grpc
import pytest

from runwatch.agent.errands.control import NoAnswer, ask
from runwatch.capture.tracing.profiler_service import SERVICE
from runwatch.capture.tracing.trace_checks import fields
from runwatch.journal.liveness import this_host
from runwatch.testing import Story, read_stories, until
from runwatch.traces import kineto as kineto_traces
from runwatch.traces import xplane
from runwatch.traces.account import Reading
from runwatch.traces.opening import Limits
from tests.integration.processes import free_port
from tests.integration.sdk_programs import program_environment, run_program, start_program

HOST = this_host()
CPU = {"JAX_PLATFORMS": "cpu"}
JAX = """
import jax, jax.numpy as jnp
multiply = jax.jit(lambda x: x @ x)
ones = jnp.ones((64, 64))
def work():
    return float(multiply(ones).block_until_ready()[0, 0])
work()
"""
TORCH = """
import torch
def work():
    return float((torch.ones(64, 64) @ torch.ones(64, 64))[0, 0])
"""

jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
xprof = pytest.mark.skipif(find_spec("xprof") is None, reason="xprof is not installed")


def joined(*parts: str) -> str:
    """Programs, one after the other; each is indented as it stands here."""
    lines = []
    for part in parts:
        own = part.strip("\n").splitlines()
        indent = len(own[0]) - len(own[0].lstrip())
        lines += [line[indent:] for line in own]
    return "\n".join(lines)


def tell(directory: Path, *parts: str, **environment: str) -> Story:
    """What the program's only journal says; the program must have ended well."""
    done = run_program(joined(*parts), directory, **CPU, **environment)
    assert done.returncode == 0, done.stderr
    (story,) = read_stories(directory)
    return story


def ends(story: Story) -> list[Mapping[str, Any]]:
    """The `profile` events that end a session; each was begun, unless it could not begin.

    In the order in which they were begun: files are written beside, and a later one may be first.
    """
    told = [body for body in story.bodies("profile") if body["state"] != "started"]
    return sorted(told, key=lambda body: body["start_ns"])


def files_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*.*"))


def session(path: Path, run: str, name: str) -> Path:
    return path / run / "plugins" / "profile" / name


def kineto(file: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return events


def marks(file: Path) -> list[str]:
    """In the order of the steps: as text, 100 comes before 99."""
    named = [str(e.get("name")) for e in kineto(file)]
    steps = [name for name in named if name.startswith("ProfilerStep#")]
    return sorted(steps, key=lambda name: int(name.partition("#")[2]))


def ran_on_host(reading: Reading) -> set[str]:
    """The functions that count as the program's, by their names alone."""
    calls = reading.account.totals[False].count
    names = [name for name, count in zip(reading.names, calls, strict=False) if count]
    return {re.sub(r".*[ .]", "", name) for name in names}


OWN = {"_keep", "keep", "_attend", "_await_end", "accept"}
"""Of Runwatch's threads, which wait while the program works."""


@jax
def test_the_drop_ins_three_ways_with_jax(tmp_path: Path) -> None:
    story = tell(
        tmp_path,
        JAX,
        f"""
        import asyncio, inspect, time
        from google_cloud_mldiagnostics import machinelearning_run, xprof
        from google_cloud_mldiagnostics.custom_types.exceptions import ProfilingError
        assert inspect.isclass(xprof)
        assert list(inspect.signature(xprof).parameters) == ["run", "process_index_list"]
        for use in (xprof().start, xprof()._ensure_initialized, xprof()(work), xprof().__enter__):
            try:
                use()
                raise SystemExit("there is no run")
            except ProfilingError:
                pass
        run = machinelearning_run("three", gcs_path={str(tmp_path / "gcs")!r})
        profiler = xprof(run)
        profiler._ensure_initialized()
        profiler.start(session_id="by-hand")
        profiler.start(session_id="again")
        deadline = time.monotonic() + 0.7  # the threads that Runwatch has wait, and wake
        while time.monotonic() < deadline:
            work()
        profiler.stop()
        profiler.stop()
        with xprof() as found:
            assert isinstance(found, xprof)
            work()

        @xprof()
        def doubled(number):
            "Doc."
            work()
            return 2 * number
        assert (doubled(2), doubled(3)) == (4, 6)
        assert (doubled.__name__, doubled.__doc__) == ("doubled", "Doc.")

        @xprof(run)
        async def later():
            return work()
        assert asyncio.run(later()) == 64.0
        try:
            with xprof():
                raise KeyError("mine")
        except KeyError:
            pass
        xprof(process_index_list=[1]).start("not-this-rank")
        """,
    )
    told = ends(story)
    assert [body["state"] for body in told] == ["done"] * 5 + ["failed"], told
    assert told[5]["why"] == "the profiled code raised KeyError: 'mine'"
    assert len({body["session"] for body in told}) == 6
    for body in told:
        folder = session(tmp_path / "gcs", "three", body["session"])
        assert body["directory"] == str(folder)
        assert body["files"] == [f"{HOST}.xplane.pb"] == os.listdir(folder)
        assert body["bytes"] == (folder / f"{HOST}.xplane.pb").stat().st_size > 100
        assert body["start_ns"] < body["end_ns"]
        assert (body["framework"], body["origin"], body["command"]) == ("jax", "program", "")
    assert told[0]["session"] == "by-hand"
    ran = ran_on_host(xplane.read(Path(told[0]["directory"]) / f"{HOST}.xplane.pb", Limits()))
    assert "work" in ran and not ran & OWN
    assert len(told[1]["session"]) == len("20261115_101719_272010")
    assert story.warnings["profile again"] == story.warnings["profile idle"] == 1
    assert not list((tmp_path / "captures").iterdir())


@jax
def test_without_a_path_the_drop_in_refuses_and_runwatch_does_not(tmp_path: Path) -> None:
    done = run_program(
        joined(
            JAX,
            """
            import google_cloud_mldiagnostics as original
            from runwatch.compat import mldiagnostics
            from google_cloud_mldiagnostics.custom_types.exceptions import ProfilingError
            run = mldiagnostics.machinelearning_run("pathless")
            try:
                original.xprof(run).start()
                raise SystemExit("there is no gcs_path")
            except ProfilingError as error:
                assert "gcs_path" in str(error)
            with mldiagnostics.xprof():
                work()
            run.finish()
            mldiagnostics.machinelearning_run("silent", metric_only_run=True, gcs_path="nowhere")
            with original.xprof():
                work()
            """,
        ),
        tmp_path,
        **CPU,
    )
    assert done.returncode == 0, done.stderr
    first, second = read_stories(tmp_path)
    (told,) = ends(first)
    assert Path(told["directory"]).parent == session(tmp_path / "profiles", "pathless", "x").parent
    assert told["state"] == "done"
    assert second.bodies("profile") == []


@torch
def test_so_many_steps_of_a_torch_program(tmp_path: Path) -> None:
    story = tell(
        tmp_path,
        TORCH,
        """
        import runwatch
        run = runwatch.init("steps")
        with run.profile(steps=3, session="inside"):
            for step, _ in run.steps(range(10), start=100):
                work()
        for step, _ in run.steps(range(8)):
            if step == 2:
                later = run.profile(steps=2, session="later").start()
            work()
            if step == 5:
                assert later.wait(30) and later.state == "done", later.why

        @run.profile(session="called", shapes=True)
        def once():
            return work()
        assert once() == 64.0
        import torch._inductor.config, warnings
        warnings.simplefilter("ignore")
        with run.profile(session="compiler"):
            with run.step(77):
                work()
        timed = run.profile(seconds=0.5, session="timed", stacks=True).start()
        while timed.active:
            work()
        """,
    )
    told = {body["session"]: body for body in ends(story)}
    assert {name: body["state"] for name, body in told.items()} == dict.fromkeys(told, "done"), told
    assert list(told) == ["inside", "later", "called", "compiler", "timed"]
    place = tmp_path / "profiles"
    (file,) = session(place, "steps", "inside").iterdir()
    assert file.name == f"{HOST}.kineto.json.gz"
    assert marks(file) == [f"ProfilerStep#{n}" for n in (100, 101, 102)]
    assert (told["inside"]["first_step"], told["inside"]["last_step"]) == (100, 102)
    (file,) = session(place, "steps", "later").iterdir()
    assert marks(file) == ["ProfilerStep#3", "ProfilerStep#4"]
    for name in ("inside", "called", "compiler", "timed"):
        (file,) = session(place, "steps", name).iterdir()
        assert "aten::mm" in {e.get("name") for e in kineto(file)}
        assert told[name]["problems"] == []
    ran = ran_on_host(kineto_traces.read(file, "json.gz", Limits()))
    assert "work" in ran and not ran & OWN
    assert story.steps("step_seconds") == [*range(100, 110), *range(8), 77]
    assert story.warnings == {}


@jax
@torch
def test_two_frameworks_and_programs_that_trace_themselves(tmp_path: Path) -> None:
    story = tell(
        tmp_path,
        JAX,
        TORCH.replace("work", "torch_work"),
        f"""
        import runwatch
        run = runwatch.init("both")
        def both():
            work(), torch_work()
        with run.profile(session="both"):
            both()
        with run.profile(session="one", frameworks=["torch"]):
            both()
        beside = run.profile(session="beside-torch")
        with torch.profiler.profile() as theirs:
            with beside:
                both()
        assert beside.wait(30)
        assert any(e.name == "aten::mm" for e in theirs.events())
        jax.profiler.start_trace({str(tmp_path / "theirs")!r})
        with run.profile(session="beside-jax", frameworks=["jax"]):
            both()
        jax.profiler.stop_trace()
        with run.profile(session="strange", frameworks=["tensorflow", "cobol"]):
            both()
        """,
    )
    told = {body["session"]: body for body in ends(story)}
    assert sorted(told["both"]["files"]) == [f"{HOST}.kineto.json.gz", f"{HOST}.xplane.pb"]
    assert (told["both"]["framework"], told["both"]["state"]) == ("jax+torch", "done")
    assert told["one"]["files"] == [f"{HOST}.kineto.json.gz"]
    assert told["beside-torch"]["state"] == "done"
    assert told["beside-torch"]["files"] == [f"{HOST}.xplane.pb"]
    assert told["beside-torch"]["why"] == "torch: the program itself is tracing (torch.profiler)"
    assert told["beside-jax"]["state"] == "failed"
    assert told["beside-jax"]["why"].startswith("jax: the program itself is tracing")
    assert told["strange"]["state"] == "failed"
    assert "tensorflow: this process has not imported it" in told["strange"]["why"]
    assert "cobol: not a framework" in told["strange"]["why"]
    assert [p.name for p in (tmp_path / "theirs").rglob("*.xplane.pb")] == [f"{HOST}.xplane.pb"]


@torch
def test_steps_without_a_loader_are_as_long_as_they_take(tmp_path: Path) -> None:
    """Only the optimizer tells them: each one's begin is known when it ends."""
    tell(
        tmp_path,
        """
        import time, torch, runwatch
        from runwatch.sdk import auto
        auto.begin()
        layer = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        run = runwatch.init("alone")
        for number in range(12):
            if number == 4:
                taken = run.profile(steps=3, session="three").start()
            time.sleep(0.02)
            layer(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert taken.wait(60) and taken.state == "done", taken.why
        """,
    )
    (file,) = session(tmp_path / "profiles", "alone", "three").iterdir()
    steps = {e["name"]: e["dur"] for e in kineto(file) if "ProfilerStep#" in str(e.get("name"))}
    assert len(steps) == 3
    assert min(steps.values()) >= 20_000, steps


@pytest.mark.soak
@jax
@xprof
def test_four_processes_of_a_session_are_four_hosts_to_xprof(tmp_path: Path) -> None:
    program = joined(
        JAX,
        f"""
        from runwatch.compat import mldiagnostics
        run = mldiagnostics.machinelearning_run("four", gcs_path={str(tmp_path / "gcs")!r})
        profiler = mldiagnostics.xprof()
        profiler.start(session_id="same")
        for _ in run.steps(range(4)):
            work()
        profiler.stop()
        run.finish()
        """,
    )
    ranks = [
        start_program(program, tmp_path, **CPU, RANK=str(n), LOCAL_RANK=str(n), WORLD_SIZE="4")
        for n in range(4)
    ]
    for process in ranks:
        with process:
            _, errors = process.communicate(timeout=100)
            assert process.returncode == 0, errors
    folder = session(tmp_path / "gcs", "four", "same")
    names = [HOST, *(f"{HOST}.rank{n}" for n in (1, 2, 3))]
    assert files_in(folder) == sorted(f"{name}.xplane.pb" for name in names)
    stories = read_stories(tmp_path)
    told = {body["rank"]: body["files"] for story in stories for body in ends(story)}
    assert told == {n: [f"{name}.xplane.pb"] for n, name in enumerate(names)}

    done = run_program(
        f"""
        import json, os
        from xprof import profile_plugin
        from xprof.convert import raw_to_tool_data
        folder = {str(folder)!r}
        names = sorted(os.listdir(folder))
        paths = [os.path.join(folder, name) for name in names]
        tools = {{}}
        for tool in ("overview_page", "trace_viewer"):
            data, kind = raw_to_tool_data.xspace_to_tool_data(paths[:1], tool, {{}})
            tools[tool] = json.loads(data)
        print(json.dumps([sorted(profile_plugin._get_hosts(names)), tools]))
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    hosts, tools = json.loads(done.stdout.splitlines()[-1])
    assert hosts == sorted(names)
    assert len(tools["overview_page"]) > 0
    events = tools["trace_viewer"]["traceEvents"]
    assert {"step 0", "step 1", "step 2", "step 3"} <= {e.get("name") for e in events}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@torch
def test_a_trace_that_cannot_be_written_costs_the_program_nothing(
    tmp_path: Path, small_disk: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    root = tmp_path / "root"
    root.mkdir()
    story = tell(
        root,
        TORCH,
        f"""
        import os, runwatch
        run = runwatch.init("costs")
        def take(session, path):
            one = run.profile(session=session, path=path)
            with one:
                for _ in run.steps(range(3)):
                    for _ in range(200):
                        torch.rand(2) + torch.rand(2)
            assert one.wait(30)
        take("in-the-way", {str(tmp_path / "file" / "below")!r})
        take("no-such-scheme", "nosuch://bucket/path")
        take("disk-full", {str(small_disk)!r})
        staging = os.path.join(os.environ["RUNWATCH_DIR"], "captures")
        os.rmdir(staging)
        os.symlink({str(small_disk)!r}, staging)
        take("no-room", None)
        os.unlink(staging)
        take("well-again", None)
        for bad in ("../../up", "a/b", "", ".hidden", "a..b", "x" * 129, 7):
            with run.profile(session=bad):
                work()
        with run.profile(steps=0), run.profile(seconds="soon"), run.profile(colour=True):
            work()
        run.profile().stop()
        """,
    )
    told = {body["session"]: body for body in ends(story)}
    own = root / "profiles" / "costs" / "plugins" / "profile"
    for name, word in (
        ("in-the-way", "NotADirectoryError"),
        ("no-such-scheme", "nosuch"),
        ("disk-full", "No space left"),
    ):
        assert told[name]["state"] == "failed", told[name]
        assert told[name]["why"].startswith("cannot write to") and word in told[name]["why"]
        assert f"kept in {root / 'profiles'}" in told[name]["why"]
        assert os.listdir(own / name) == list(told[name]["files"]) == [f"{HOST}.kineto.json.gz"]
    assert told["no-room"]["state"] == "failed" and told["no-room"]["files"] == []
    assert "could not write" in told["no-room"]["why"]
    assert told["well-again"]["state"] == "done"
    assert [path for path in small_disk.rglob("*") if path.is_file()] == []
    refused = [body for body in ends(story) if "a name has up to 128" in body["why"]]
    assert len(refused) == 7 and {body["state"] for body in refused} == {"failed"}
    assert story.steps("step_seconds") == [0, 1, 2] * 5
    assert not (tmp_path / "up").exists() and not (tmp_path.parent / "up").exists()
    assert {"read steps: UsageError", "read seconds: UsageError"} <= set(story.warnings)
    assert story.end["status"] == "completed"


def test_a_program_without_a_framework_says_so(tmp_path: Path) -> None:
    story = tell(
        tmp_path,
        """
        import sys, runwatch
        with runwatch.init("bare") as run:
            with run.profile(session="nothing"):
                pass
            for _ in run.steps(range(2)):
                pass
        assert "numpy" not in sys.modules and "grpc" not in sys.modules
        """,
    )
    (told,) = ends(story)
    assert told["state"] == "failed"
    assert told["why"].startswith("nothing to trace: this process has imported none of jax, torch")


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A torch program that takes steps until its input ends, and the folder of its journal."""
    program = joined(
        TORCH,
        """
        import os, time, runwatch
        run = runwatch.init("asked")
        for step, _ in run.steps(iter(int, 1)):
            work()
            time.sleep(0.005)
            while os.path.exists("pause"):
                time.sleep(0.005)
            if os.path.exists("stop"):
                break
        """,
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env=program_environment(tmp_path), text=True
    )
    try:
        control = until(lambda: next(iter(tmp_path.glob("journals/*/control.sock")), None), 60)
        yield process, control.parent
    finally:
        (tmp_path / "stop").touch()
        (tmp_path / "pause").unlink(missing_ok=True)
        process.wait(60)


@torch
def test_asked_at_the_control_socket(
    trainer: tuple[subprocess.Popen[str], Path], tmp_path: Path
) -> None:
    process, journal = trainer

    def profile(**body: object) -> Mapping[str, Any]:
        return ask(journal, "profile", body, 10)

    def told(name: str) -> list[Mapping[str, Any]]:
        return [b for b in ends(read_stories(tmp_path)[0]) if b["session"] == name]

    def taken(name: str, path: Path) -> Mapping[str, Any]:
        folder = session(path, "asked", name)
        until(lambda: list(folder.glob("*.gz")), 60)  # cheaper than to read the journal each time
        (body,) = until(lambda: told(name), 60)
        return body

    until(lambda: profile(preflight=True)["accepted"], 60, "torch to be there")
    assert profile(preflight=True) == {"accepted": True, "why": "", "frameworks": ["torch"]}
    for body, word in (
        ({"session": "../x", "duration_ms": 5}, "a name has up to"),
        ({"session": "x"}, "needs duration_ms or steps"),
        ({"session": "x", "duration_ms": 10**9}, "from 1 to 600000"),
        ({"session": "x", "duration_ms": 0}, "from 1 to 600000"),
        ({"session": "x", "steps": "many"}, "not a whole number"),
        ({"session": "x", "steps": 1, "start_ns": 2**62}, "more than 600 s ahead"),
        ({"session": "x", "steps": 1, "options": {"colour": True}}, "the options are"),
    ):
        answer = profile(**body)
        assert not answer["accepted"] and word in answer["why"]
    begin = time.time_ns() + 300_000_000
    command = {"session": "timed", "start_ns": begin, "duration_ms": 300, "command": "c1"}
    assert profile(**command)["accepted"]
    timed = taken("timed", tmp_path / "profiles")
    late = timed["why"].startswith("it began")  # a machine that is busy with other things
    assert timed["state"] == "done" and (late or timed["why"] == ""), timed
    assert (timed["origin"], timed["command"]) == ("demand", "c1")
    assert timed["start_ns"] >= begin and timed["end_ns"] >= begin + 300_000_000
    (tmp_path / "pause").touch()  # else that step may be over before it is asked for
    at = read_stories(tmp_path)[0].steps("step_seconds")[-1]
    assert at is not None
    at += 20
    assert profile(session="stepped", steps=2, at_step=at, path=str(tmp_path / "p"))["accepted"]
    (tmp_path / "pause").unlink()
    stepped = taken("stepped", tmp_path / "p")
    assert (stepped["first_step"], stepped["last_step"]) == (at, at + 1)
    (file,) = session(tmp_path / "p", "asked", "stepped").iterdir()
    assert marks(file) == [f"ProfilerStep#{at}", f"ProfilerStep#{at + 1}"]
    assert profile(session="never", steps=1, at_step=10**9)["accepted"]
    second = profile(session="too", duration_ms=100)
    assert not second["accepted"] and second["why"] == "another profile is being recorded: never"
    (tmp_path / "stop").touch()
    assert process.wait(60) == 0
    (never,) = told("never")
    assert (never["state"], never["why"]) == ("failed", "step 1000000000 did not come in time")
    with pytest.raises(NoAnswer):
        profile(preflight=True)


@jax
def test_the_port_that_others_ask_on(tmp_path: Path) -> None:
    port = free_port()
    program = joined(
        JAX,
        """
        import os
        from google_cloud_mldiagnostics import machinelearning_run
        run = machinelearning_run("port", on_demand_xprof=True, gcs_path=os.environ["GCS"])
        while not os.path.exists(os.environ["GCS"] + ".stop"):
            work()
        """,
    )
    gcs = tmp_path / "gcs"
    environment = {**CPU, "GCS": str(gcs), "LOCAL_RANK": str(port - 9999)}
    process = start_program(program, tmp_path, **environment)
    with process, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(60)
            call = channel.unary_unary(f"/{SERVICE}/Profile")
            answer = call(_request(duration_ms=100, emit_xspace=True))
            space = {number: (a, b) for number, a, b in fields(answer, 0, len(answer))}
            assert list(space) == [8]
            begin, end = space[8]
            assert b"/host:CPU" in answer[begin:end]
            refusals = {
                _request(duration_ms=100, root="/somewhere/else"): "profiles go to",
                _request(duration_ms=100, emit_xspace=True, session="../x"): "a name has up to",
                _request(): "duration_ms 0",
            }
            for message, word in refusals.items():
                with pytest.raises(grpc.RpcError) as refused:
                    call(message)
                assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
                assert word in refused.value.details()
            with pytest.raises(grpc.RpcError) as refused:
                call(b"\xff\xff\xff")
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            own = f"{gcs}/port/plugins/profile"
            assert call(_request(duration_ms=100, root=own, session="written")) == b""
            (listening,) = _listeners(port)
            assert listening.endswith("0100007F")  # 127.0.0.1, or the same as an IPv6 address
        finally:
            (tmp_path / "gcs.stop").touch()
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert [p.name for p in gcs.rglob("*.pb")] == [f"{HOST}.rank0.xplane.pb"]
    assert _listeners(port) == set()


def _request(
    duration_ms: int = 0, *, emit_xspace: bool = False, root: str = "", session: str = ""
) -> bytes:
    message = b"\x08" + bytes([duration_ms]) if duration_ms else b""
    for number, text in ((5, root), (6, session)):
        message += bytes([number << 3 | 2, len(text)]) + text.encode() if text else b""
    return message + (b"\x48\x01" if emit_xspace else b"")


def _listeners(port: int) -> set[str]:
    """The addresses, as the kernel writes them, that listen on the port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    rows += [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1][-4:], 16) == port}
