"""`examples/05-kubernetes`: each file is one that a cluster takes, and its pods are watched."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.answers import Refusal
from tests.cluster.chart import CHART
from tests.cluster.controllers import played
from tests.cluster.schemas import pruned, wrong
from tests.cluster.server import Cluster
from tests.integration.processes import free_port
from tests.integration.webhook.site import Site, is_watched
from tests.unit.deploy.kubernetes import NEWEST, complaints, foreign, templates
from tests.unit.deploy.releases import Thing

pytestmark = pytest.mark.xdist_group("kubernetes-examples")  # they share a webhook
FOLDER = Path(__file__).parents[3] / "examples/05-kubernetes"
WORKLOADS = ("job", "jobset", "pytorchjob", "lws", "rayjob")
OURS = ("capture", "connection")
OLDEST = (1, 28)
LABEL, EXEC = "runwatch.dev/watch", "runwatch.dev/exec"
WORK = "/work/train.py"


def example(name: str) -> Thing:
    [found] = [each for each in yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()) if each]
    assert isinstance(found, dict)
    return found


def test_every_file_is_known_here_and_named_by_the_readme() -> None:
    there = {path.stem for path in FOLDER.glob("*.yaml")}
    assert there == {*WORKLOADS, *OURS}
    readme = (FOLDER / "README.md").read_text()
    assert there == set(re.findall(r"\]\(([\w-]+)\.yaml\)", readme))


# ── what a cluster takes ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_and_its_pods_are_valid(name: str, version: tuple[int, int]) -> None:
    thing = example(name)
    assert complaints(thing, version) == []
    found = list(templates(thing["spec"]))
    assert found
    for template in found:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, **template}
        assert complaints(pod, version) == []
        for container in template["spec"]["containers"]:
            tag = container["image"].rpartition(":")[2]
            assert "/" not in tag and tag != "latest"
            assert "memory" in container["resources"]["limits"]


def test_a_wrong_field_of_such_a_kind_would_be_seen() -> None:
    for name in ("jobset", "pytorchjob", "lws", "rayjob"):
        thing = example(name)
        assert foreign(thing["apiVersion"], thing["kind"])
        thing["spec"]["replicatedjobs"] = []
        assert complaints(thing, NEWEST) == ["spec.replicatedjobs: no such field"]


@pytest.mark.parametrize("name", OURS)
def test_every_object_of_ours_meets_its_schema(name: str) -> None:
    thing = example(name)
    group, _, version = thing["apiVersion"].partition("/")
    [definition] = [
        each
        for each in map(_read, sorted((CHART / "files/crds").glob("*.yaml")))
        if (each["spec"]["group"], each["spec"]["names"]["kind"]) == (group, thing["kind"])
    ]
    [its] = [each for each in definition["spec"]["versions"] if each["name"] == version]
    schema = its["schema"]["openAPIV3Schema"]
    assert pruned(copy.deepcopy(thing), schema) == [] and list(wrong(thing, schema)) == []


def _read(path: Path) -> Thing:
    found: Thing = yaml.safe_load(path.read_text())
    return found


# ── what becomes of it ────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster with the chart, and its webhook as a process."""
    place = tmp_path_factory.mktemp("site")
    with Cluster(place / "cluster") as cluster:
        made = Site(place, cluster)
        made.start().ready()
        yield made
        made.close()


# Kind → its pods, and those of them that train.
PODS = {"job": (1, 1), "jobset": (2, 2), "pytorchjob": (2, 2), "lws": (2, 2), "rayjob": (3, 2)}


@pytest.mark.parametrize("name", WORKLOADS)
def test_its_pods_are_watched_by_the_label_of_the_workload(site: Site, name: str) -> None:
    site.cluster.namespace(name)
    thing = example(name)
    pods = played(site.cluster, thing, name)
    assert (len(pods), len([pod for pod in pods if begun(pod)])) == PODS[name]
    for pod in pods:
        assert is_watched(pod)
        workload = json.loads(pod["metadata"]["annotations"]["runwatch.dev/workload"])
        assert workload["kind"] == thing["kind"] and workload["name"] == thing["metadata"]["name"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_without_the_label_its_pods_are_as_they_were(site: Site, name: str) -> None:
    space = f"{name}-unlabelled"
    site.cluster.namespace(space)
    thing = example(name)
    del thing["metadata"]["labels"][LABEL]
    for pod in played(site.cluster, thing, space):
        assert not is_watched(pod) and not begun(pod)


def begun(pod: Thing) -> bool:
    """Whether the webhook lets its program be watched though it does not know us."""
    text = json.dumps([pod["spec"]["containers"], pod["spec"].get("initContainers", [])])
    return "PYTHONPATH" in text and "runwatch-files" in text


def test_objects_of_ours_are_taken_by_the_cluster_of_the_chart(site: Site) -> None:
    for name in OURS:
        thing = example(name)
        thing["metadata"]["name"] = thing["metadata"].pop("generateName") + "1"
        stored = site.cluster.create(thing, "default")
        assert stored["spec"] == example(name)["spec"]
        del thing["spec"][next(iter(thing["spec"]))]
        thing["metadata"]["name"] += "2"
        with pytest.raises(Refusal, match="Required value"):
            site.cluster.create(thing, "default")


# ── the program ───────────────────────────────────────────────────────────────────────────────


def commands(thing: Thing) -> list[list[str]]:
    if "entrypoint" in thing["spec"]:
        return [thing["spec"]["entrypoint"].split()]
    return [
        container["command"]
        for template in templates(thing["spec"])
        for container in template["spec"]["containers"]
    ]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_command_starts_the_program_of_this_folder(name: str) -> None:
    for command in commands(example(name)):
        assert command[0] in ("python", "torchrun") and WORK in command
    for template in templates(example(name)["spec"]):
        volumes = {each["name"]: each for each in template["spec"]["volumes"]}
        assert volumes["work"]["configMap"] == {"name": "train"}
        for container in template["spec"]["containers"]:
            assert {"name": "work", "mountPath": "/work"} in container["volumeMounts"]


def test_the_program_trains() -> None:
    [[python, program]] = commands(example("job"))
    done = subprocess.run(
        [sys.executable, program.replace(WORK, str(FOLDER / "train.py")), "1"],
        env=alone(), capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert python == "python" and done.returncode == 0, done.stderr
    assert re.fullmatch(r"rank 0, epoch 0: loss \d+\.\d{4}\n", done.stdout)


def alone() -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RUNWATCH_", "PYTHON"))}
    return inherited | {"OMP_NUM_THREADS": "1"}


@pytest.mark.soak
@pytest.mark.parametrize("name", ["jobset", "lws"])
def test_two_pods_train_one_model(name: str) -> None:
    """By the very words of torchrun in the file, with what the controller fills in."""
    [command] = commands(example(name))
    port = str(free_port())
    started = []
    for rank in ("0", "1"):
        told = {
            "$(JOB_COMPLETION_INDEX)": rank,
            "$(LWS_WORKER_INDEX)": rank,
            "$(LWS_GROUP_SIZE)": "2",
            "$(LWS_LEADER_ADDRESS)": "127.0.0.1",
            "gpt-workers-0-0.gpt": "127.0.0.1",
            "29500": port,
            WORK: str(FOLDER / "train.py"),
            "100000": "1",
        }
        started.append(pod_of([filled(word, told) for word in command[1:]]))
    said = [process.communicate(timeout=110) for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    for number, (words, _) in enumerate(said):
        assert f"rank {number}, epoch 0: loss " in words


def filled(word: str, told: dict[str, str]) -> str:
    for name, value in told.items():
        word = word.replace(name, value)
    return word


def pod_of(words: list[str]) -> subprocess.Popen[Any]:
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *words],
        env=alone(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
