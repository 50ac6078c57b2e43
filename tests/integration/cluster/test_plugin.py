"""`kubectl runwatch` as a person types it, with real kubectl, port-forward, head and agent.

The training process has the variables that the real webhook wrote on its Job's pod.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import pytest

from runwatch.capture.process import children
from runwatch.testing import until
from tests.cluster.chart import NAMESPACE
from tests.integration.capture_programs import TORCH_STEP
from tests.integration.cluster.estate import WATCH, Estate
from tests.integration.processes import Cluster as Nodes
from tests.integration.processes import end

pytestmark = pytest.mark.xdist_group("kubectl_runwatch")

Thing = dict[str, Any]
HEAD: Final = "runwatch-head"
PORT: Final = 8090
PROGRAM: Final = """
import time
import runwatch

def one_step(number):
    time.sleep(0.05)
    runwatch.log(loss=1 / (number + 1), step=number)

with runwatch.init(console=True):
    print("begun", flush=True)
    for number in range(100_000):
        one_step(number)
"""


class World:
    def __init__(self, estate: Estate, nodes: Nodes) -> None:
        self.estate, self.cluster, self.nodes = estate, estate.cluster, nodes
        self.pod = ""
        self.programs: list[subprocess.Popen[bytes]] = []

    def environment(self, config: Path | None = None) -> dict[str, str]:
        """`kubectl-runwatch` is beside this Python, as an installation puts it."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ours = ("RUNWATCH", "KUBECONFIG")
        given = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        return given | {
            "PATH": path,
            "KUBECONFIG": str(config or self.cluster.kubeconfig),
            "RUNWATCH_DIR": str(self.nodes.root / "mine"),
        }

    def start(self, job: str, program: str) -> str:
        """A Job in the cluster, and its program here with what its pod was given: the pod."""
        [pod] = self.estate.job(job, "team")
        self.estate.has_run("Job", job, "team")
        name: str = pod["metadata"]["name"]
        given = {
            each["name"]: each["value"]
            for each in pod["spec"]["containers"][0]["env"]
            if "value" in each and each["name"] not in ("RUNWATCH_DIR", "RUNWATCH_HEAD")
        }
        given |= {"POD_NAME": name, "POD_NAMESPACE": "team", "NODE_NAME": "gpu-1"}
        given |= {"RUNWATCH_POD_UID": pod["metadata"]["uid"]}
        path = self.nodes.root / f"{job}.py"
        path.write_text(program)
        process = subprocess.Popen(
            [sys.executable, str(path)],
            env=self.nodes.environment | given,
            stdout=self.nodes.log,
            stderr=self.nodes.log,
        )
        self.programs.append(process)
        return name

    def close(self) -> None:
        for each in self.programs:
            end(each, signal.SIGKILL)
        self.nodes.close()
        self.estate.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("plugin")
    estate = Estate(place)
    with estate.cluster:
        made = World(estate, Nodes(place / "nodes"))
        try:
            _begin(made)
            yield made
        finally:
            made.close()


def _begin(world: World) -> None:
    estate, cluster, nodes = world.estate, world.cluster, world.nodes
    estate.node("gpu-1")
    cluster.namespace("team", {WATCH: "true"})
    estate.install()
    estate.all_is_ready()
    estate.agents("gpu-1")
    tokens = nodes.root / "tokens"  # as the Secret is mounted
    tokens.mkdir()
    secret = cluster.get("secret", "runwatch-tokens", NAMESPACE)
    for key, value in secret["data"].items():
        (tokens / key).write_bytes(base64.b64decode(value))
        (tokens / key).chmod(0o400)
    nodes.start_head("--tokens-directory", str(tokens))
    nodes.start_agent()
    cluster.ports[NAMESPACE, f"{HEAD}-0"] = {PORT: ("127.0.0.1", nodes.http_port)}
    world.pod = world.start("llama", PROGRAM)
    until(lambda: _has_run(world), 60, "the program's run")


def _has_run(world: World) -> bool:
    assert world.programs[0].poll() is None, world.nodes.words()
    return bool(json.loads(asked(world, "runs", "--json").stdout)["runs"])


Said = subprocess.CompletedProcess[str]


def asked(world: World, *words: str, config: Path | None = None) -> Said:
    return subprocess.run(
        ["kubectl", "runwatch", *words],
        env=world.environment(config),
        capture_output=True,
        text=True,
        timeout=120,
    )


def well(world: World, *words: str) -> str:
    done = asked(world, *words)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


# ── what it is for ────────────────────────────────────────────────────────────────────────────


def test_kubectl_finds_it_and_it_says_what_it_can(world: World) -> None:
    said = well(world, "--help")
    for command in ("runs", "logs", "stacks", "capture", "open", "status"):
        assert f"kubectl runwatch {command}" in said
    listed = subprocess.run(
        ["kubectl", "plugin", "list"], env=world.environment(), capture_output=True, text=True
    )
    assert "kubectl-runwatch" in listed.stdout


def test_runs(world: World) -> None:
    told = json.loads(well(world, "runs", "--json"))
    run = next(each for each in told["runs"] if "llama" in each["name"])
    assert run["state"] == "running" and "llama" in run["name"]
    assert run["name"] in well(world, "--context", "tests", "runs", "-n", "team")


SOAKED: Final = pytest.mark.soak
NAMES: Final = [
    "job/llama",
    "POD",
    pytest.param("RUN", marks=SOAKED),
    pytest.param("pod/POD", marks=SOAKED),
    pytest.param("jobs.batch/llama", marks=SOAKED),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_named_as_the_cluster_names_it(world: World, name: str) -> None:
    runs = json.loads(well(world, "runs", "--json"))["runs"]
    run = next(each for each in runs if "llama" in each["name"])
    called = name.replace("POD", world.pod).replace("RUN", run["name"])
    told = json.loads(well(world, "show", called, "-n", "team", "--json"))
    assert told["run"] == run["run"]


def test_logs(world: World) -> None:
    until(lambda: "begun" in well(world, "logs", "job/llama", "-n", "team"), 60, "its line")


def test_stacks(world: World) -> None:
    def seen() -> bool:
        return "one_step" in well(world, "stacks", "job/llama", "-n", "team", "--full")

    until(seen, 60, "the program's stack")


def test_capture_says_why_nothing_can_be_captured(world: World) -> None:
    """A program without a framework: the head, the agent and the program were all asked."""
    done = asked(world, "capture", "job/llama", "-n", "team", "--preflight")
    assert done.returncode == 1 and "nothing to trace" in done.stdout
    done = asked(world, "capture", "job/llama", "-n", "team", "--steps", "1")
    assert done.returncode == 2 and "nothing can be captured: rank 0" in done.stderr


@pytest.mark.soak
def test_capture(world: World) -> None:
    """torch takes seconds to be imported."""
    step = (
        TORCH_STEP + "\nimport runwatch\nwith runwatch.init():\n    while True:\n        work()\n"
    )
    world.start("gpt", step)

    def can() -> bool:
        return asked(world, "capture", "job/gpt", "-n", "team", "--preflight").returncode == 0

    until(can, 120, "a rank that can be captured")
    told = well(world, "capture", "job/gpt", "-n", "team", "--duration", "300", "--json")
    [process] = json.loads(told)["processes"]
    assert (process["state"], len(process["files"])) == ("done", 1), told


def test_status_is_that_of_the_cluster(world: World) -> None:
    done = asked(world, "status", "--json", "-n", "team")
    told = json.loads(done.stdout)
    assert done.returncode == (1 if told["attention"] else 0)
    assert told["cluster"]["pods"]["watched"] == len(world.programs)


# ── open ──────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def opened(world: World) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The page's process and its link."""
    process = subprocess.Popen(
        ["kubectl-runwatch", "open", "--no-browser", "--json"],
        executable=str(Path(sys.executable).parent / "kubectl-runwatch"),
        env=world.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["link"]
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 0),
        pytest.param(signal.SIGTERM, 143, marks=SOAKED),
        (signal.SIGKILL, -9),
    ],
)
def test_the_page_is_there_until_it_is_ended_and_then_nothing_is(
    world: World, number: int, code: int
) -> None:
    with opened(world) as (process, link):
        browser = build_opener(HTTPCookieProcessor())
        browser.addheaders = [("Accept", "text/html")]
        with browser.open(link, timeout=100) as answer:
            assert "<title>" in answer.read().decode()
        [forward] = children(process.pid)
        process.send_signal(number)
        assert process.wait(100) == code
    until(lambda: not Path(f"/proc/{forward}").exists(), what="the forward to end")
    with pytest.raises(OSError):
        urlopen(link, timeout=5)


def test_the_page_ends_with_the_way_to_it(world: World) -> None:
    with opened(world) as (process, _):
        [forward] = children(process.pid)
        os.kill(forward, signal.SIGKILL)
        _, said = process.communicate(timeout=100)
    assert process.returncode == 1 and "the way to the head has ended" in said


# ── what goes wrong, and the way out ──────────────────────────────────────────────────────────

RULES: Final[Mapping[str, Sequence[str]]] = {
    "bare": (),
    "no-secrets": ("services", "statefulsets", "pods", "pods/portforward"),
    "no-forward": ("services", "statefulsets", "pods", "secrets"),
}


def account(world: World, name: str) -> Path:
    """Of a team, with these rights in the release's namespace."""
    config = world.cluster.kubeconfig_of("team", name)
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    rule = {"apiGroups": ["", "apps"], "verbs": ["get", "list", "create"]}
    to = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "team"}
    world.cluster.apply(
        [
            {**rbac, "kind": "Role", "rules": [{**rule, "resources": [*RULES[name]]}]},
            {**rbac, "kind": "RoleBinding", "roleRef": to, "subjects": [subject]},
        ],
        NAMESPACE,
    )
    return config


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bare", ("the head cannot be looked for", "--release-namespace")),
        ("no-secrets", ("you may not read the head's tokens", "--token or RUNWATCH_TOKEN")),
        ("no-forward", ("you may not do this in the cluster", "pods/portforward")),
    ],
)
def test_who_lacks_a_right_is_told_which(world: World, name: str, words: Sequence[str]) -> None:
    done = asked(world, "runs", config=account(world, name))
    assert (done.returncode, done.stdout) == (1, "")
    assert all(word in done.stderr for word in words), done.stderr


def test_with_a_token_of_one_s_own_no_secret_is_read(world: World) -> None:
    secret = world.cluster.get("secret", "runwatch-tokens", NAMESPACE)["data"]
    token = base64.b64decode(secret["view-prometheus"]).decode()
    done = asked(world, "runs", "--token", token, config=account(world, "no-secrets"))
    assert done.returncode == 0 and "llama" in done.stdout


WRONG = {
    "no cluster": (("runs", "--kubeconfig", "/none"), 1, "name one with --context"),
    "another context": (("--context", "none", "runs"), 2, "`kubectl config get-contexts` lists"),
    "no release there": (
        ("runs", "--release-namespace", "team"),
        1,
        "namespace team has no head of Runwatch",
    ),
    "another namespace": (("show", "job/llama"), 1, "in another namespace? -n says which"),
    "no such pod": (
        ("show", "none-0", "-n", "team"),
        1,
        "there is no run 'none-0' in the cluster; `kubectl runwatch runs` lists all",
    ),
    "a wrong token": (("runs", "--token", "wrong"), 2, "a token is needed"),
}


@pytest.mark.parametrize(("words", "code", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_has_a_way_out(
    world: World, words: Sequence[str], code: int, said: str
) -> None:
    done = asked(world, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr and "Traceback" not in done.stderr


def test_of_several_heads_one_is_chosen(world: World) -> None:
    cluster = world.cluster
    cluster.namespace("second")
    service = cluster.get("service", HEAD, NAMESPACE)
    meta = {"name": HEAD, "labels": service["metadata"]["labels"]}
    head = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service["spec"]}
    cluster.create(head, "second")
    try:
        done = asked(world, "runs")
        assert done.returncode == 2 and "in the namespaces runwatch, second" in done.stderr
        assert "llama" in well(world, "runs", "--release-namespace", NAMESPACE)
    finally:
        cluster.delete("service", HEAD, "second")


def test_a_head_that_does_not_run_is_said_at_once(world: World) -> None:
    name = f"{HEAD}-0"
    status = world.cluster.get("pod", name, NAMESPACE)["status"]
    world.cluster.status("pod", name, {"phase": "Pending"}, NAMESPACE)
    try:
        done = asked(world, "runs")
    finally:
        world.cluster.status("pod", name, status, NAMESPACE)
    assert done.returncode == 1 and "the head runwatch/runwatch-head does not run" in done.stderr
    assert "`kubectl describe pods -n runwatch -l app.kubernetes.io/component=head`" in done.stderr
