"""A small cluster: a head, nodes with the chart's agent, and pods."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.request import Request

from runwatch.capture.process import children
from runwatch.kube import Thing
from runwatch.testing import until
from tests.integration.pods import release
from tests.integration.pods.kubelet import OURS, Image, Node, Pod, play
from tests.integration.pods.network import NODE, Wire
from tests.integration.pods.workloads import JobSet
from tests.integration.processes import Cluster
from tests.mounted import MountedSecret
from tests.tokens import known, urlopen

PROGRAMS: Final = Path(__file__).parent / "programs"
TOKENS: Final = {release.AGENTS: "agents-" * 5, release.JOBS: "jobs-" * 6}
"""With these a sender may send, and nothing else."""
STALL_SECONDS: Final = 3
Told = dict[str, Any]
T = TypeVar("T")


class Site:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.wire = Wire()
        self._cluster = Cluster(root / "cluster")
        self._cluster.http_port, self._cluster.grpc_port = 8090, 8091
        settings = self._cluster.node_root / "config.toml"
        settings.write_text(f"[head]\nstall_floor_seconds = {STALL_SECONDS}\n")
        self._tokens = MountedSecret(root / "tokens", TOKENS)
        self._pods: list[Pod] = []
        self._runs: dict[str, str] = {}
        """Uid of a workload → its run."""
        self.agents: dict[str, Pod] = {}

    def start_head(self) -> None:
        with self.wire.inside():
            at = self._cluster.start_head(
                "--bind", "0.0.0.0", "--tokens-directory", str(self._tokens.place)
            )
        assert at.token

    def stop_head(self) -> None:
        self._cluster.stop_head()

    def node(self, name: str) -> Node:
        root = self.root / "nodes" / name
        root.mkdir(parents=True)
        # Others than root must be able to come as far as their volumes.
        for folder in (root, *root.parents):
            if folder.owner() == "root" and not folder.stat().st_mode & 0o001:
                folder.chmod(folder.stat().st_mode | 0o011)
        programs = {file.name: file.read_text() for file in PROGRAMS.glob("*.py")}
        objects = {
            ("runwatch", "Secret", release.TOKENS): TOKENS,
            ("runwatch", "Secret", "runwatch"): TOKENS,
            ("research", "Secret", release.webhook().token_secret): {"token": TOKENS[release.JOBS]},
            ("research", "ConfigMap", "programs"): programs,
            # Every pod that an API server has stored wants it, for its service account.
            ("team", "ConfigMap", "kube-root-ca.crt"): {"ca.crt": ""},
        }
        return Node(name, root, self.wire, objects, release.NAMES)

    # ── pods ──────────────────────────────────────────────────────────────────────────────────

    def play(self, pod: Thing, node: Node, images: Mapping[str, Image] | None = None) -> Pod:
        played = play(
            pod, node, dict.fromkeys(("runwatch", release.image()), OURS) | dict(images or {})
        )
        self._pods.append(played)
        return played

    def started(self, job: JobSet, node: Node, rank: int = 0) -> Pod:
        """Its program waits to be told to go on."""
        pod = self.play(job.admitted(rank), node)
        self.holds(pod, job, node)
        return pod

    def holds(self, pod: Pod, job: JobSet, node: Node) -> None:
        """Wait until the node's agent would see its process end, and the head knows that one."""
        self.until(lambda: self.watches(node, pod.main.pid), f"the agent to hold {pod.name}")
        self.process(pod, job, state="running")

    def start_agent(self, node: Node, template: Thing | None = None) -> Pod:
        """As the chart says, with nothing left out but its system call filter.  `template`: as
        another DaemonSet says."""
        daemon = template or release.agent()
        about = {"name": f"agent-{node.name}", "namespace": "runwatch", "uid": str(uuid.uuid4())}
        journals = node.path("/var/lib/runwatch/journals")
        before = set(journals.glob(f"*-{node.name}-*"))
        agent = self.play({**daemon, "metadata": {**daemon["metadata"], **about}}, node)
        self.agents[node.name] = agent
        self.until(lambda: set(journals.glob(f"*-{node.name}-*")) - before, "the agent to begin")
        return agent

    def kill_agent(self, node: Node) -> None:
        agent = self.agents.pop(node.name)
        agent.main.signal(signal.SIGKILL)
        agent.main.wait(60)

    def watches(self, node: Node, pid: int) -> bool:
        """Whether the node's agent holds the process."""
        agent = self.agents[node.name].main
        for file in Path(f"/proc/{agent.pid}/fdinfo").iterdir():
            try:
                if f"Pid:\t{pid}\n" in file.read_text():
                    return True
            except FileNotFoundError:
                continue
        return False

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """The pods that are played in it end with it, but agents."""
        before = list(self._pods)
        try:
            yield
        finally:
            kept = [*before, *self.agents.values()]
            for pod in reversed(self._pods):
                if pod not in kept:
                    pod.close()
            self._pods = [pod for pod in self._pods if pod in kept]

    # ── what the head says ────────────────────────────────────────────────────────────────────

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Told:
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self._cluster.http_port}/api/v1{path}"
        asked = Request(url, data, {"Content-Type": "application/json"})
        with self.wire.inside(), urlopen(asked, timeout=100) as answer:
            told: Told = json.load(answer)
        return told

    def run(self, job: JobSet) -> Told | None:
        """That of the workload; None before the head knows of it."""
        if job.uid not in self._runs:
            runs = self.ask("/runs")["runs"]
            self._runs |= {run["workload_uid"]: run["run"] for run in runs}
        run = self._runs.get(job.uid)
        return self.ask(f"/runs/{run}") if run else None

    def processes(self, job: JobSet) -> list[Told]:
        """Of all attempts; none before the head knows of the run."""
        run = self._runs.get(job.uid) or (self.run(job) or {}).get("run")
        told = self.ask(f"/runs/{run}/processes")["processes"] if run else []
        return sorted(told, key=lambda each: (each["attempt"], each["rank"]))

    def process(self, pod: Pod, job: JobSet, **wanted: Any) -> Told:
        """The pod's, as soon as the head says this of it."""

        def found() -> Told | None:
            same = [p for p in self.processes(job) if p["pod_uid"] == pod.uid]
            is_so = [p for p in same if all(p[name] == wanted[name] for name in wanted)]
            assert len(same) < 2, same
            return is_so[0] if is_so else None

        return self.until(found, f"{wanted} of {pod.name}", job)

    def values(self, job: JobSet) -> tuple[int, float | None]:
        """How many of the run's the head has, and their sum; None if there is no run."""
        run = self.run(job)
        if run is None:
            return 0, None
        asked = f"/runs/{run['run']}/curves?metric=value&buckets=1"
        found = [(curve["count"], curve["mean"]) for curve in self.ask(asked)["curves"]]
        return sum(n for many, _ in found for n in many), sum(
            n * mean for many, means in found for n, mean in zip(many, means, strict=True)
        )

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`runwatch …` on a person's machine."""
        with self.wire.inside():
            return subprocess.run(
                [sys.executable, "-m", "runwatch.cli", *words],
                env=self._cluster.environment
                | {
                    "RUNWATCH_DIR": str(self.root / "person"),
                    "RUNWATCH_HEAD": f"http://{NODE}:8090",
                    "RUNWATCH_TOKEN": known(self._cluster.http_port),
                },
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )

    def until(self, condition: Callable[..., T | None], what: str, job: JobSet | None = None) -> T:
        """Wait until it holds.  If it never does, what all have written by then is shown."""
        try:
            return until(condition, 60, what)
        except AssertionError as error:
            told = [] if job is None else self.processes(job)
            words = {pod.name: pod.words() for pod in self._pods}
            raise AssertionError(f"{error} {told} {words} {self._cluster.words()}") from None

    def close(self) -> None:
        for pod in reversed(self._pods):
            pod.close()
        self._cluster.close()
        self.wire.close()


def program_below(pid: int) -> int:
    """The process that a shell has started, and its own number if it became the program."""
    below = children(pid)
    return program_below(below[0]) if below else pid
