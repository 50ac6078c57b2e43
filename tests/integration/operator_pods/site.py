"""A cluster, a head and the part of the operator that tells of pods."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from runwatch.address import Listening
from runwatch.clock import SystemClock
from runwatch.head.main import Head
from runwatch.head.reading import Reading
from runwatch.head.settings import HeadSettings
from runwatch.k8s.api import Access, Api
from runwatch.k8s.operator import head as heads
from runwatch.k8s.operator.objects import Ref
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.k8s.operator.telling import KIND, Telling
from runwatch.record import Event, JournalId, RunId, RunScope, Series
from runwatch.record.life import RunEnd, RunStart
from runwatch.testing import BatchWriter, origin, read_stories, until
from tests.cluster.chart import rendered
from tests.cluster.kubelet import Kubelet, Thing, Time, pod_named, watched
from tests.cluster.server import Cluster
from tests.tokens import remember, urlopen

NEEDED = (
    "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role",
    "RoleBinding",
)  # fmt: skip
"""Of the chart: the kinds, and the rights that the operator has."""
SECOND = 1_000_000_000
TEAM = "team"


class Site:
    """`time` is the cluster's: it begins a quarter of an hour ago, and a test moves it.

    The API server is asked with the rights that the chart gives the operator."""

    def __init__(self, root: Path, cluster: Cluster, head: Head, at: Listening, clock: Time):
        self.root, self.cluster, self.head, self.at, self.time = root, cluster, head, at, clock
        self.kubelet = Kubelet(cluster, TEAM, clock)
        self.settings = OperatorSettings(
            head=at.http,
            token=at.token,
            dir=root / "operator",
            runs_seconds=0.05,
            retry_seconds=0.3,
            first_delay_seconds=0.05,
        )
        self.account = cluster.account("runwatch", "runwatch-operator")
        self._names = itertools.count(1)
        self.began_ns = clock.ns

    def access(self) -> Access:
        return Access(self.cluster.server, self.account)

    def again(self) -> None:
        """For the next test."""
        self.time.seconds = int(time.time()) - 900
        self.began_ns = self.time.ns

    def name(self, stem: str) -> str:
        return f"{stem}-{next(self._names)}"

    @property
    def reading(self) -> Reading:
        return self.head.local.context.reading

    # ── pods and programs ─────────────────────────────────────────────────────────────────────

    def pod(self, workload: str, rank: int = 0, **more: Any) -> str:
        """Its name.  The workload's uid is made of its name."""
        thing = pod_named(self.name(f"{workload}-{rank}"), marks=marks(workload), **more)
        return str(self.kubelet.creates(thing)["metadata"]["name"])

    def thing(self, pod: str) -> Thing:
        return self.cluster.get("pod", pod, TEAM)

    def program(
        self, pod: str, run: str, *, rank: int = 0, ranks: int = 1, of: str = ""
    ) -> Program:
        """It runs in the pod from now on, and nobody watches how it ends.  `of`: which one."""
        return Program(self, self.thing(pod), run, rank, ranks, of)

    # ── asking ────────────────────────────────────────────────────────────────────────────────

    def get(self, path: str) -> Any:
        with urlopen(f"{self.at.http}/api/v1{path}") as answer:
            return json.load(answer)

    def run(self, run: str) -> Mapping[str, Any]:
        return self.get(f"/runs/{run}")  # type: ignore[no-any-return]

    def told(self, run: str) -> list[tuple[int, str, str]]:
        """Every record of pods that the head has: seconds since the beginning, pod, what."""
        rows = self.head.local.store.events(RunId(run), kinds=["pod"])
        return sorted(
            ((row.time_ns - self.began_ns) // SECOND, row.body["pod"], row.body["what"])
            for row in rows
        )

    def settled(self, settings: OperatorSettings | None = None) -> None:
        """The head has all that is in the journals of the operators of a directory."""
        folder = (settings or self.settings).root / "operator"
        stories = read_stories(folder)
        names = {story.origin.journal for story in stories}
        count = sum(len(story.bodies("pod")) for story in stories)

        def stored() -> int:
            rows = self.head.local.store.events(None, kinds=["pod"])
            return sum(row.journal in names for row in rows)

        until(lambda: stored() == count, what=f"{count} records of pods; there are {stored()}")

    def arrives(self, run: str, count: int) -> list[tuple[int, str, str]]:
        return until(
            lambda: found if len(found := self.told(run)) >= count else None,
            what=f"{count} records of pods of {run}: {self.told(run)}",
        )


class Program:
    """Its records are stored with the cluster's times."""

    def __init__(
        self, site: Site, pod: Thing, run: str, rank: int, ranks: int, of: str = ""
    ) -> None:
        meta = pod["metadata"]
        self._site, self._run = site, run
        told = json.loads(meta["annotations"]["runwatch.dev/workload"])
        who = replace(
            origin(f"j-{meta['name']}-{run}{of}", host=meta["name"]), start_ns=site.time.ns
        )
        scope = RunScope(1, RunId(run), run, rank=rank, world_size=ranks)
        self._writer = BatchWriter(who, [scope, Series(1, "loss", scope=1)])
        start = RunStart(
            run=run,
            rank=rank,
            world_size=ranks,
            pod=meta["name"],
            pod_namespace=meta["namespace"],
            pod_uid=meta["uid"],
            container="train",
            node=pod["spec"].get("nodeName", ""),
            workload=f"{told['kind']}/{told['name']}",
            workload_uid=told["uid"],
        )
        self._store([Event(site.time.ns, start.KIND, start.body(), scope=1)])

    @property
    def journal(self) -> JournalId:
        return self._writer.origin.journal

    def heard(self) -> None:
        self._store([], [(1, self._site.time.ns, None, 1.0)])

    def done(self) -> None:
        end = RunEnd("completed", explicit=True, done=True)
        self._store([Event(self._site.time.ns, end.KIND, end.body(), scope=1)])

    def _store(self, events: Sequence[Event], points: Sequence[Any] = ()) -> None:
        batch = self._writer.batch(points, events=events)
        assert self._site.head.local.ingest.submit(batch).result(100).accepted


def marks(workload: str) -> dict[str, Thing]:
    return watched(workload, uid_of(workload))


def uid_of(workload: str) -> str:
    return f"uid-of-{workload}"


class _Clock(SystemClock):
    """The time of day is the cluster's."""

    def __init__(self, time: Time) -> None:
        self.wall_ns = lambda: time.ns + 7


class Operator:
    """`Telling`, a call at a time, in a loop that stands still between them."""

    def __init__(self, runner: asyncio.Runner, telling: Telling) -> None:
        self._runner, self.telling = runner, telling

    def looks(self, *pods: str) -> list[float | None]:
        return [self._runner.run(look(self.telling, pod)) for pod in pods]

    def comes_again(self, pod: str) -> float | None:
        """After how many seconds."""
        return self._runner.run(self.telling.handle(Ref(KIND, TEAM, pod)))

    def hears_of(self, node: str) -> None:
        self._runner.run(self.telling.node(node))

    def runs(self, deed: Coroutine[Any, Any, None]) -> None:
        self._runner.run(deed)

    def minds(self, seconds: float = 0.3) -> None:
        """What it does by itself."""
        self._runner.run(asyncio.sleep(seconds))


async def look(telling: Telling, pod: str) -> float | None:
    """And once more if it wants that: the head may have been asked just before."""
    ref = Ref(KIND, TEAM, pod)
    if (seconds := await telling.handle(ref)) is not None:
        await asyncio.sleep(seconds)
        seconds = await telling.handle(ref)
    return seconds


@contextmanager
def operator(site: Site, settings: OperatorSettings | None = None) -> Iterator[Operator]:
    settings = settings or site.settings
    with asyncio.Runner() as runner:
        api, head = Api(site.access()), heads.Head(settings)
        runner.run(api.__aenter__())
        runner.run(head.__aenter__())
        telling = Telling(api, head, settings, clock=_Clock(site.time))
        runner.run(telling.__aenter__())
        try:
            yield Operator(runner, telling)
        finally:
            runner.run(telling.__aexit__(None, None, None))
            runner.run(head.__aexit__(None, None, None))
            runner.run(api.__aexit__(None, None, None))


@contextmanager
def running_head(directory: Path) -> Iterator[tuple[Head, Listening]]:
    head = Head(HeadSettings(dir=directory, http_port=0, grpc_port=0, hang_watch=False))
    ready: list[Listening] = []
    thread = threading.Thread(target=head.run, args=[ready.append], name="tests-head")
    thread.start()
    try:
        at = until(lambda: ready[0] if ready else None, what="the head to listen")
        yield head, remember(at)
    finally:
        head.stop()
        thread.join(100)


@contextmanager
def running(root: Path) -> Iterator[Site]:
    clock = Time(int(time.time()) - 900)
    (root / "head").mkdir()
    with (
        Cluster(root / "cluster", clock=clock) as cluster,
        running_head(root / "head") as (head, at),
    ):
        for namespace in (TEAM, "runwatch"):
            cluster.namespace(namespace)
        cluster.apply(thing for thing in rendered() if thing["kind"] in NEEDED)
        yield Site(root, cluster, head, at, clock)
