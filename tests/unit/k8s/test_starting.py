"""How a program is begun that does not know us: what a real shell makes of the command."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from runwatch.k8s.names import EXEC
from runwatch.k8s.starting import begin, chosen
from runwatch.k8s.wishes import Wishes
from tests.cluster import objects
from tests.unit.k8s.admitted import injected, noted

Thing = dict[str, Any]
PLACE = "/var/lib/runwatch-files/runwatch"
BOTH = f"{PLACE}/sdk/boot:{PLACE}/dropin"
SHOW = "import os, sys; print(os.environ['PYTHONPATH'], *sys.argv[1:], sep='\\n')"


def begun(container: Thing, how: str = "true") -> tuple[Thing, list[str]]:
    warnings: list[str] = []
    begin(container, how, warnings)
    return container, warnings


def run(container: Thing, **environment: str) -> list[str]:
    """What the program is told, as a container runtime starts it."""
    inherited = {name: its for name, its in os.environ.items() if name != "PYTHONPATH"}
    words = [*container["command"], *container.get("args", ())]
    done = subprocess.run(words, env=inherited | environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(("before", "path"), [({}, BOTH), ({"PYTHONPATH": "/app"}, f"{BOTH}:/app")])
def test_what_the_image_has_stays_behind_ours(before: dict[str, str], path: str) -> None:
    hostile = ["a b", "$(id)", "'\"", "", "*"]
    container, warnings = begun({"name": "t", "command": [sys.executable, "-c", SHOW, *hostile]})
    container["args"] = ["last"]
    assert run(container, **before) == [path, *hostile, "last"]
    assert warnings == []


def test_a_program_that_fails_fails_as_itself() -> None:
    container, _ = begun({"name": "t", "command": [sys.executable, "-c", "raise SystemExit(7)"]})
    assert subprocess.run(container["command"]).returncode == 7


def test_the_shell_becomes_the_program() -> None:
    """It has the shell's number: signals of the kubelet are the program's own."""
    tell = "import os; print(os.getpid())"
    container, _ = begun({"name": "t", "command": [sys.executable, "-c", tell]})
    process = subprocess.Popen(container["command"], stdout=subprocess.PIPE, text=True)
    told, _ = process.communicate()
    assert int(told) == process.pid


def test_a_command_that_we_begin_is_begun_once() -> None:
    once, _ = begun({"name": "t", "command": ["python"]})
    before = list(once["command"])
    assert begun(once)[0]["command"] == before


def test_a_shell_of_the_user_is_no_command_of_ours() -> None:
    container, _ = begun({"name": "t", "command": ["/bin/sh", "-c", "python train.py"]})
    assert container["command"][3:] == ["runwatch", "/bin/sh", "-c", "python train.py"]


def test_without_a_command_the_variable_is_set_and_that_is_said() -> None:
    container, warnings = begun({"name": "t"})
    assert container["env"] == [{"name": "PYTHONPATH", "value": BOTH}]
    assert ["no `command`" in each and "replaced" in each for each in warnings] == [True]


def test_the_containers_own_variable_comes_after_ours_once() -> None:
    theirs = {"name": "PYTHONPATH", "value": "$(BASE)/src"}
    container, warnings = begun({"name": "t", "env": [theirs]})
    assert container["env"] == [{"name": "PYTHONPATH", "value": f"{BOTH}:$(BASE)/src"}]
    again, more = begun(container)
    assert again["env"] == [{"name": "PYTHONPATH", "value": f"{BOTH}:$(BASE)/src"}]
    assert warnings == more == []


def test_a_variable_from_elsewhere_has_no_room_for_us() -> None:
    source = {"configMapKeyRef": {"name": "c", "key": "k"}}
    theirs = {"name": "PYTHONPATH", "valueFrom": source}
    container, warnings = begun({"name": "t", "env": [theirs], "command": ["x"]}, "pythonpath")
    assert container["env"] == [theirs] and container["command"] == ["x"]
    assert [EXEC in each for each in warnings] == [True]


def test_by_the_variable_alone_the_command_stays() -> None:
    container, warnings = begun({"name": "t", "command": ["python"]}, "pythonpath")
    assert container["command"] == ["python"]
    assert container["env"] == [{"name": "PYTHONPATH", "value": BOTH}]
    assert len(warnings) == 1


@pytest.mark.parametrize("said", ["off", "0", "false"])
def test_drop_ins_that_are_switched_off_are_not_before_the_originals(said: str) -> None:
    switch = [{"name": "RUNWATCH_DROPIN", "value": said}]
    container, _ = begun({"name": "t", "env": switch}, "pythonpath")
    assert container["env"][1]["value"] == f"{PLACE}/sdk/boot"


@pytest.mark.parametrize("said", ["yes", "exec", "1"])
def test_a_word_that_is_none_begins_nothing_and_is_said(said: str) -> None:
    warnings: list[str] = []
    assert chosen(objects.pod(), Wishes(starts=said), [objects.container()], warnings) == set()
    assert [said in each for each in warnings] == [True]


def test_a_container_that_came_in_front_is_not_begun() -> None:
    """Another webhook put it there; the API server asked us again."""
    pod = dict(injected(noted(exec="true")).pod)
    pod["spec"]["containers"].insert(0, objects.container("proxy", command=("envoy",)))
    again = injected(pod).pod
    proxy, trainer = again["spec"]["containers"]
    assert proxy["command"] == ["envoy"]
    assert trainer["command"].count("runwatch") == 1
    assert "RUNWATCH_AUTO" not in {each["name"] for each in proxy["env"]}
