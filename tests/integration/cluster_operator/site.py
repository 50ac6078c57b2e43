"""A cluster with a head, an agent, a training in two pods, and operators that may be killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from runwatch.testing import until
from tests import tokens
from tests.cluster.chart import rendered
from tests.cluster.server import Cluster as ApiServer
from tests.integration import processes
from tests.integration.cluster_operator import objects, programs
from tests.integration.cluster_operator.relay import Relay

RUN: Final = "llama"
WORLD: Final = 2
DEADLINE: Final = 40.0
Thing = dict[str, Any]
T = TypeVar("T")

NEEDED: Final = (
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
)
"""Of the chart: the kinds, and the rights that the operator has."""
QUICK: Final = {
    "RUNWATCH_LEASE_SECONDS": "2",
    "RUNWATCH_RUNS_SECONDS": "0.5",
    "RUNWATCH_PROGRESS_SECONDS": "1",
    "RUNWATCH_RETRY_FIRST_SECONDS": "0.2",
    "RUNWATCH_RETRY_SECONDS": "1",
}


class Operator:
    """`runwatch k8s operator`, as a pod of its Deployment runs it."""

    def __init__(self, site: Site, name: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self.port = processes.free_port()
        self.log = site.root / f"operator-{name}.log"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
        settings = {
            "RUNWATCH_HEAD": site.relay.address,
            "RUNWATCH_TOKEN_FILE": str(site.token_file),
            "RUNWATCH_DIR": str(site.root / f"operator-{name}"),
            "RUNWATCH_OPERATOR_PORT": str(self.port),
            "RUNWATCH_OPERATOR_BIND": "127.0.0.1",
            "RUNWATCH_FILES": str(site.profiles),
            "POD_NAME": name,
            "RUNWATCH_HOST": name,  # a pod has a host's name of its own
        }
        command = [sys.executable, "-m", "runwatch.cli", "k8s", "operator"]
        command += ["--server", site.api.server, "--account", str(site.account)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env={**inherited, **QUICK, **settings, **environment},
                stdout=log,
                stderr=log,
            )

    def is_leader(self) -> bool:
        return "\nrunwatch_operator_is_leader 1\n" in self.metrics()

    def handled(self, line: str) -> int:
        found = re.search(rf'handled_total{{line="{line}"}} (\d+)', self.metrics())
        return int(found[1]) if found else 0

    def metrics(self) -> str:
        try:
            with urllib.request.urlopen(self._url("metrics"), timeout=5) as answer:
                text: str = answer.read().decode()
                return text
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return ""

    def asked(self, path: str) -> int:
        try:
            with urllib.request.urlopen(self._url(path), timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return 0

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def works(self) -> None:
        def leads() -> bool:
            assert self.process.poll() is None, self.words()
            return self.is_leader()

        until(leads, DEADLINE, f"{self.name} to lead: {self.words()}")

    def words(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    def kill(self) -> None:
        processes.end(self.process, signal.SIGKILL)

    def stop(self) -> int:
        return processes.end(self.process, signal.SIGTERM)


class Site(processes.Cluster):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.counts, self.profiles = root / "counts", root / "stored"
        for folder in (self.counts, self.profiles, root / "kineto"):
            folder.mkdir()
        self.token_file = root / "token"
        self.operators: list[Operator] = []
        self.programs: list[subprocess.Popen[bytes]] = []
        self._asked_before = 0
        self._usual: Operator | None = None
        self.relay = Relay(self.http_port)
        self.api = ApiServer(root / "api").__enter__()

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {
            "KINETO_IPC_SOCKET_DIR": str(self.root / "kineto"),
            "RUNWATCH_ATTEMPT": "one",
            "OMP_NUM_THREADS": "1",
        }

    def start(self) -> None:
        """The API server's objects, the head and the agent."""
        for namespace in ("runwatch", objects.NAMESPACE):
            self.api.namespace(namespace)
        self.grant({})
        self.account = self.api.account("runwatch", "runwatch-operator")
        self.head_root.mkdir()
        (self.head_root / "config.toml").write_text("[head]\nstall_floor_seconds = 2.0\n")
        at = self.start_head()
        self.token_file.touch(mode=0o600)
        self.token_file.write_text(at.token)
        self.start_agent()

    def grant(self, values: Mapping[str, Any]) -> None:
        """The kinds and the rights that the chart gives with these values."""
        self.api.apply(thing for thing in rendered(values) if thing["kind"] in NEEDED)

    def refused(self) -> list[str]:
        """What an operator asked for and may not, since the last one was ended."""
        return [
            f"{asked.method} {asked.path}"
            for asked in self.api.asked[self._asked_before :]
            if asked.status == 403 and asked.user.endswith(":runwatch-operator")
        ]

    def train(self) -> Thing:
        """The workload whose pods the programs are."""
        workload = objects.job(self.api, RUN)
        made = [objects.pod(self.api, f"llama-{rank}", workload) for rank in range(WORLD)]
        uids = [each["metadata"]["uid"] for each in made]
        self.begin(programs.TRAINING, str(self.counts), RUN, *uids, **objects.inside(workload))
        return workload

    def begin(self, program: str, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *words],
            env=self.environment | environment,
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,  # with those that it forks
        )
        self.programs.append(process)
        return process

    def usual(self) -> Operator:
        """One that several tests have in turn: to begin one costs more than most of them."""
        if self._usual is None or self._usual.process.poll() is not None:
            self.end_operators()
            self._usual = self.begin_operator("operator-usual")
        return self._usual

    def begin_operator(self, name: str = "operator-a", **environment: str) -> Operator:
        """The usual one makes way for it."""
        if self._usual is not None:
            self._usual.kill()
            self._usual = None
            self.forget_lease()
        made = Operator(self, name, environment)
        self.operators.append(made)
        return made

    def end_operators(self) -> None:
        for operator in self.operators:
            operator.kill()
        self.operators.clear()
        self._usual = None
        self.forget_lease()
        self.settle()

    def is_usual(self) -> bool:
        return self._usual is not None and self._usual.process.poll() is None

    def forget_lease(self) -> None:
        if self.api.find("lease", "runwatch-operator", "runwatch"):
            self.api.delete("lease", "runwatch-operator", "runwatch")

    def settle(self) -> None:
        """Nothing goes wrong any more."""
        self._asked_before = len(self.api.asked)
        self.api.faults.clear()
        self.api.faults.done.clear()
        self.relay.clear()

    def close(self) -> None:
        self.end_operators()
        for process in self.programs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.stdin is not None:
                process.stdin.close()
            process.wait(100)
        self.relay.close()
        self.api.__exit__(None, None, None)
        super().close()

    def wait(self, condition: Callable[[], T | None], what: str, seconds: float = DEADLINE) -> T:
        try:
            return until(condition, seconds, what)
        except AssertionError as error:
            error.add_note(self.words())
            raise

    def words(self) -> str:
        return super().words() + "".join(operator.words() for operator in self.operators)

    # ── what became of it ─────────────────────────────────────────────────────────────────────

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """The head, as its own user."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.http_port}/api/v1{path}"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        try:
            with tokens.urlopen(request, timeout=100) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["error"]

    def captures(self) -> list[str]:
        """The sessions that nodes were asked for, as the head recorded it: doubled ones twice."""
        _, told = self.ask(f"/runs/{RUN}/events?kind=capture&limit=1000")
        return [each["body"]["session"] for each in told["events"]]

    def traces(self, session: str) -> list[str]:
        """The files that the programs made of it."""
        folder = self.node_root / "profiles" / RUN / "plugins" / "profile" / session
        return sorted(file.name for file in folder.glob("[!.]*"))

    def check_captured_once(self, session: str) -> None:
        assert self.captures().count(session) == 1, (session, self.captures(), self.words())
        assert len(self.traces(session)) == WORLD, self.traces(session)

    def ended(
        self,
        kind: str,
        name: str,
        seconds: float = DEADLINE,
        *,
        namespace: str = objects.NAMESPACE,
    ) -> Thing:
        """Its status, once it is over."""

        def over() -> Thing | None:
            status: Thing = self.api.get(kind, name, namespace).get("status") or {}
            return status if status.get("phase") in ("Succeeded", "Failed") else None

        return self.wait(over, f"{kind} {name} to end", seconds)
