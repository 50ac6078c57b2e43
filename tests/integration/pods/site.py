"""A small cluster: a head, nodes with the agent of `deploy/daemonset.yaml`, and pods."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request

import yaml

from runwatch.capture.process import children
from runwatch.kube import Thing
from runwatch.testing import until
from tests.integration.pods.kubelet import OURS, Image, Node, Pod, play
from tests.integration.pods.network import NODE, REPOSITORY, Wire
from tests.integration.processes import Cluster
from tests.tokens import known, urlopen

HEAD: Final = "http://head-1:8090"
MANIFEST: Final = REPOSITORY / "deploy" / "daemonset.yaml"
NAMES: Final = {"head-1": NODE}
"""What a cluster's DNS knows."""
Told = dict[str, Any]


class Site:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.wire = Wire()
        self._cluster = Cluster(root / "cluster")
        self._cluster.http_port, self._cluster.grpc_port = 8090, 8091
        self._pods: list[Pod] = []
        self.agents: dict[str, Pod] = {}

    def start_head(self) -> None:
        with self.wire.inside():
            at = self._cluster.start_head("--bind", "0.0.0.0")
        assert at.token

    def node(self, name: str) -> Node:
        root = self.root / "nodes" / name
        root.mkdir(parents=True)
        # Others than root must be able to come as far as their volumes.
        for folder in (root, *root.parents):
            if folder.owner() == "root" and not folder.stat().st_mode & 0o001:
                folder.chmod(folder.stat().st_mode | 0o011)
        token = {"token": known(self._cluster.http_port)}
        objects = {
            ("runwatch", "Secret", "runwatch"): token,
            ("research", "Secret", "runwatch-ingest"): token,
        }
        return Node(name, root, self.wire, objects, NAMES)

    # ── pods ──────────────────────────────────────────────────────────────────────────────────

    def play(self, pod: Thing, node: Node, images: Mapping[str, Image] | None = None) -> Pod:
        played = play(pod, node, {"runwatch": OURS} | dict(images or {}))
        self._pods.append(played)
        return played

    def start_agent(self, node: Node) -> Pod:
        """As the manifest says, with nothing left out but its system call filter."""
        daemon = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]
        about = {"name": f"agent-{node.name}", "namespace": "runwatch", "uid": str(uuid.uuid4())}
        agent = self.play({**daemon, "metadata": {**daemon["metadata"], **about}}, node)
        self.agents[node.name] = agent
        journals = node.path("/var/lib/runwatch/journals")
        until(lambda: any(journals.glob(f"*-{node.name}-*")), 60, "the agent to begin")
        return agent

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
        with self.wire.inside(), urlopen(asked, timeout=30) as answer:
            told: Told = json.load(answer)
        return told

    def runs(self) -> dict[str, Told]:
        return {run["run"]: run for run in self.ask("/runs")["runs"]}

    def processes(self, run: str) -> list[Told]:
        """Of its ranks, in order; none before the head knows of the run."""
        try:
            told = self.ask(f"/runs/{run}/processes")["processes"]
        except HTTPError as error:
            assert error.code == 404, error.read()
            error.close()
            return []
        return sorted(told, key=lambda each: (each["attempt"], each["rank"]))

    def process(self, run: str, **wanted: Any) -> Told:
        """The run's one process, as soon as the head says this of it."""

        def found() -> Told | None:
            told = self.processes(run)
            same = [p for p in told if all(p[name] == wanted[name] for name in wanted)]
            return same[0] if same and len(told) == 1 else None

        return until(found, 60, f"{wanted} of {self.processes(run)} {self.words()}")

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

    def words(self) -> str:
        said = {name: pod.main.words()[-2000:] for name, pod in self.agents.items()}
        return f"head: {self._cluster.words()}, agents: {said}"

    def close(self) -> None:
        for pod in reversed(self._pods):
            pod.close()
        self._cluster.close()
        self.wire.close()


def program_below(pid: int) -> int:
    """The process that a shell has started, and its own number if it became the program."""
    below = children(pid)
    return program_below(below[0]) if below else pid
