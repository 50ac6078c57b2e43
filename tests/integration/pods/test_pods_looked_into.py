"""Somebody wants to know what a pod's program does, and asks the head by a command."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from runwatch.testing import until
from tests.integration.pods.kubelet import Node
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
    until(lambda: site.ask(path, {})["processes"], 60, site.words())
    return str(run["run"])


def stacks(site: Site, run: str) -> dict[str, Any]:
    """By the command, on a person's machine."""
    done = site.command("stacks", run, "--json")
    assert done.returncode == 0, (done, site.words())
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["unreachable"] == {} and told["waiting_for"] == [], told
    [group] = told["groups"]
    return dict(group)


def test_stacks_and_a_profile_of_an_unchanged_program(site: Site, node: Node) -> None:
    """Its main thread sleeps; the agent sees it by another number than it has in its pod."""
    job = unchanged("looked-into", "plain")
    pod = site.started(job, node)
    run = reached(site, job)
    group = stacks(site, run)
    assert group["ranks"] == [0] and line_of("time.sleep") in group["text"]
    done = site.command("capture", run, "--duration", "100", "--json", "--no-summary")
    assert done.returncode == 0, (done, site.words())
    told = json.loads(done.stdout)
    assert told["hosts"] == ["gpu-1"]
    [process] = told["processes"]
    assert (process["rank"], process["state"], process["framework"]) == (0, "done", "torch")
    [file] = process["files"]
    assert file.startswith("looked-into-workers-0-0.")
    path = f"/profiles/{run}/{told['session']}"
    kept = until(lambda: site.ask(path)["files"], 60, f"{file} at the head: {site.words()}")
    assert [each["name"] for each in kept] == [file]
    assert site.ask(path)["ranks"] == [0]
    pod.main.signal(signal.SIGUSR1)
    assert pod.finish() == {"trainer": 0}
    site.process(pod, job, state="completed", exit_code=0)
    told = site.run(job)
    assert told is not None and told["last_step"] == 4


def test_a_rank_that_hangs_in_native_code_is_named_with_its_line(site: Site, node: Node) -> None:
    """By the head itself, which has its stacks taken."""
    job = ours("hung", "hangs", env={"HURRIES": "1"})
    site.started(job, node)
    run = reached(site, job)

    def named() -> list[Any]:
        told = site.ask(f"/runs/{run}/incidents")["incidents"]
        return [each for each in told if each["named_ns"]]

    [incident] = until(named, 60, site.words())
    assert incident["ranks"] == [0] and line_of("# hung") in incident["text"]
    shown = site.run(job)
    assert shown is not None and shown["stalled"]
