"""What a pod's program does: a program that knows nothing of us, from its start to its end; and one
that hangs."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.integration.pods.kubelet import Node, Pod
from tests.integration.pods.site import PROGRAMS, Site
from tests.integration.pods.workloads import JobSet, ours, unchanged

pytestmark = pytest.mark.xdist_group("pods")


def line_of(words: str) -> str:
    """As stacks say it: of the one line in which these words stand."""
    lines = (PROGRAMS / "ways.py").read_text().splitlines()
    [number] = [n for n, line in enumerate(lines, 1) if words in line]
    return f"ways.py:{number}"


def reached(site: Site, job: JobSet) -> str:
    """The job's run, once the head knows whom to ask about its ranks."""
    run = site.run(job)
    assert run is not None
    path = f"/runs/{run['run']}/captures/preflight"
    site.until(lambda: site.ask(path, {})["processes"], "its node to be known")
    return str(run["run"])


def test_an_unchanged_program(site: Site, node: Node) -> None:
    """Nor has its image anything of ours.  It trains, and waits in a sleep."""
    job = unchanged("plain")
    pod = site.started(job, node)
    assert_it_is_known(site, job, pod)
    run = reached(site, job)
    assert_its_stacks_are_told(site, run)
    assert_it_can_be_profiled(site, run)
    pod.main.signal(signal.SIGUSR1)
    assert pod.finish() == {"trainer": 0}
    ended = site.process(pod, job, state="completed", exit_code=0)
    assert ended["signal"] is None and not ended["out_of_memory"]


def assert_it_is_known(site: Site, job: JobSet, pod: Pod) -> None:
    told = site.process(pod, job, state="running")
    assert told["pod"] == pod.pod["metadata"]["name"] and told["pod_namespace"] == "research"
    assert told["host"] == "plain-workers-0-0" and told["node"] == "gpu-1"
    assert told["workload"] == "JobSet/plain" and told["workload_uid"] == job.uid
    assert (told["rank"], told["attempt"], told["pid"]) == (0, 1, 1)
    run = site.run(job)
    assert run is not None and run["name"] == "research/plain"
    assert run["last_step"] == 4 and run["headline"]["metric"] == "loss"
    assert run["headline"]["value"] == pytest.approx(1 / 5)


def assert_its_stacks_are_told(site: Site, run: str) -> None:
    """By the command, on a person's machine.  Outside, the process has another number than in its
    pod."""
    done = site.command("stacks", run, "--json")
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert told["unreachable"] == {} and told["waiting_for"] == [], told
    [group] = told["groups"]
    assert group["ranks"] == [0] and line_of("time.sleep") in group["text"]


def assert_it_can_be_profiled(site: Site, run: str) -> None:
    begun = site.ask(f"/runs/{run}/captures", {"ranks": [0], "duration_ms": 100})
    path = f"/runs/{run}/captures/{begun['session']}"
    told = site.until(lambda: _if_over(site.ask(path)), "the end of the capture")
    [process] = told["processes"]
    assert told["hosts"] == ["gpu-1"] and process["host"] == "plain-workers-0-0"
    assert (process["rank"], process["state"], process["framework"]) == (0, "done", "torch")
    [file] = process["files"]
    path = f"/profiles/{run}/{begun['session']}"
    kept = site.until(lambda: site.ask(path)["files"], f"{file} at the head")
    assert [each["name"] for each in kept] == [file] and file.startswith("plain-workers-0-0.")
    assert site.ask(path)["ranks"] == [0]


def _if_over(capture: dict[str, Any]) -> dict[str, Any] | None:
    return None if capture["state"] in ("asked", "running") else capture


@pytest.mark.soak
@pytest.mark.parametrize(
    ("end", "code", "reason"),
    [
        ("three", 3, "exit code 3"),
        ("fails", 1, "ValueError: the learning rate is negative (exit code 1)"),
    ],
)
def test_how_an_unchanged_program_fails(
    site: Site, node: Node, end: str, code: int, reason: str
) -> None:
    job = unchanged(f"unchanged-{end}", end)
    pod = site.started(job, node)
    pod.main.signal(signal.SIGUSR1)
    assert pod.finish() == {"trainer": code}
    assert site.process(pod, job, exit_code=code, state="failed")["reason"] == reason


def test_a_rank_that_hangs_in_native_code_is_named_with_its_line(site: Site, node: Node) -> None:
    """By the head itself, which has its stacks taken."""
    job = ours("hung", "hangs", env={"HURRIES": "1"})
    site.started(job, node)
    run = reached(site, job)

    def named() -> list[Any]:
        told = site.ask(f"/runs/{run}/incidents")["incidents"]
        return [each for each in told if each["named_ns"]]

    [incident] = site.until(named, "the line to be named")
    assert incident["ranks"] == [0] and line_of("# hung") in incident["text"]
    shown = site.run(job)
    assert shown is not None and shown["stalled"]
