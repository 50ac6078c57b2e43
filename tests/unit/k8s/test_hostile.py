"""Pods that are none, and pods that somebody made to hurt: allowed, patched well, or left alone."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import jsonpatch
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runwatch.k8s.api import Access, Api
from runwatch.k8s.judge import Judge, Verdict
from runwatch.k8s.reviews import BadReview, question_in
from runwatch.k8s.settings import WebhookSettings
from runwatch.k8s.workloads import Workloads
from tests.cluster import objects, pods
from tests.cluster.server import Cluster
from tests.unit.k8s.admitted import HEAD, IMAGE
from tests.unit.k8s.conftest import all_closed

Thing = dict[str, Any]
OURS: Final = ("runwatch.dev/watched", "runwatch.dev/injected", "runwatch.dev/workload")


class Judging:
    """Asks one judge again and again."""

    def __init__(self, cluster: Cluster) -> None:
        cluster.namespace("hostile", {"runwatch.dev/watch": "true"})
        self._runner = asyncio.Runner()
        self._api = Api(Access(cluster.server, cluster.account("runwatch", "webhook")))
        self._runner.run(self._api.__aenter__())
        # What it asks about the namespace and the server is kept for the whole module.
        self._workloads = Workloads(self._api, keep_seconds=3600)

    def judge(self, pod: object, mode: str = "node") -> Verdict:
        kind = {"group": "", "version": "v1", "kind": "Pod"}
        request = {"uid": "u", "kind": kind, "operation": "CREATE", "namespace": "hostile"}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = json.dumps(review | {"request": request | {"object": pod}}).encode()
        chosen = WebhookSettings(head=HEAD, image=IMAGE, mode=mode, seconds=4.5)

        async def answer() -> Verdict:
            judge = Judge(self._workloads, chosen, "runwatch")
            until = asyncio.get_running_loop().time() + 30
            return await judge.judge(question_in(body), until)

        return self._runner.run(answer())

    def close(self) -> None:
        self._runner.run(self._workloads.close())
        self._runner.run(self._api.__aexit__(None, None, None))
        self._runner.run(all_closed())
        self._runner.close()


@pytest.fixture(scope="module")
def judging(cluster: Cluster) -> Iterator[Judging]:
    made = Judging(cluster)
    yield made
    made.close()


def after(pod: Any, verdict: Verdict) -> Any:
    """What the API server makes of the answer."""
    response = verdict.review["response"]
    assert (response["allowed"], response["uid"]) == (True, "u")
    assert all(len(each) <= 256 and each.isprintable() for each in response.get("warnings", ()))
    if "patch" not in response:
        return copy.deepcopy(pod)
    steps = json.loads(base64.b64decode(response["patch"]))
    assert {step["op"] for step in steps} <= {"add", "replace"}
    return jsonpatch.JsonPatch(steps).apply(pod)


def is_kept(before: Any, now: Any, path: str = "") -> bool:
    """Nothing of what was there is gone or another; what is empty may be filled."""
    if before is None or (not before and isinstance(now, dict | list)):
        return True
    if isinstance(before, dict):
        return isinstance(now, dict) and all(
            key in now and is_kept(its, now[key], f"{path}/{key}")
            for key, its in before.items()
            if key not in OURS
        )
    if isinstance(before, list) and isinstance(now, list):
        if path.endswith("/command"):
            return now[len(now) - len(before) :] == before
        pairs = zip(before, now, strict=False)
        return len(before) <= len(now) and all(is_kept(a, b, f"{path}/-") for a, b in pairs)
    if path.endswith("/env/-/value") and isinstance(before, str) and isinstance(now, str):
        return now == before or now.endswith(f":{before}") or before == ""
    return type(before) is type(now) and bool(before == now)


TEXT: Final = st.text(max_size=8) | st.sampled_from(
    [
        "$(HOME)",
        "a\nb",
        '"',
        "'",
        "\ud800",
        "runwatch-records",
        "/var/lib/runwatch",
        "true",
        "x" * 999,
    ]
)
JUNK: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Thing]:
    """An object with any of these fields, and now and then junk in place of one."""

    def mostly(its: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.integers(0, 39).flatmap(lambda chance: its if chance else JUNK)

    return st.fixed_dictionaries({}, optional={key: mostly(its) for key, its in fields.items()})


NAME: Final = st.sampled_from(["a", "b", "runwatch-agent", "runwatch-files", "runwatch-records"])
PLACE: Final = st.sampled_from(
    ["/var/lib/runwatch", "/var/lib/runwatch/", "/var/lib/runwatch-files", "/x"]
)
VARIABLE: Final = some(
    name=st.sampled_from(["PYTHONPATH", "RUNWATCH_DIR", "POD_NAME", "RUNWATCH_DROPIN", "X"]),
    value=TEXT,
    valueFrom=some(fieldRef=some(fieldPath=TEXT)),
)
CONTAINER: Final = some(
    name=NAME,
    image=TEXT,
    command=st.lists(TEXT, max_size=3),
    args=st.lists(TEXT, max_size=2),
    env=st.lists(VARIABLE, max_size=3),
    volumeMounts=st.lists(some(name=NAME, mountPath=PLACE, subPath=TEXT), max_size=2),
    securityContext=some(runAsUser=st.integers(0, 9), runAsNonRoot=st.booleans()),
    restartPolicy=st.just("Always"),
)
VOLUME: Final = some(
    name=NAME, emptyDir=some(medium=TEXT), hostPath=some(path=PLACE), secret=some(secretName=TEXT)
)
NOTES: Final = some(
    **{
        "runwatch.dev/mode": st.sampled_from(["node", "sidecar", "none", "?"]),
        "runwatch.dev/exec": st.sampled_from(["true", "pythonpath", "false", "?"]),
        "runwatch.dev/containers": st.sampled_from(["a", "a,b", ",", "c"]),
        "runwatch.dev/name": TEXT,
        "runwatch.dev/user": st.sampled_from(["0", "7", "-1", "x"]),
        "runwatch.dev/workload": TEXT | st.just('{"created": 5}') | st.just("[" * 9999),
    }
)
LABELS: Final = some(
    **{"runwatch.dev/watch": st.sampled_from(["true", "false", "x"]), "a": TEXT},
)
POD: Final = some(
    metadata=some(name=TEXT, labels=LABELS, annotations=NOTES, creationTimestamp=st.none()),
    spec=some(
        containers=st.lists(CONTAINER, max_size=3),
        initContainers=st.lists(CONTAINER, max_size=2),
        volumes=st.lists(VOLUME, max_size=3),
        imagePullSecrets=st.lists(some(name=TEXT), max_size=1),
        securityContext=some(runAsUser=st.integers(0, 9)),
        nodeSelector=some(a=TEXT),
        resources=some(limits=some(cpu=TEXT)),
    ),
)
MODES: Final = st.sampled_from(["node", "sidecar", "none"])


def holds(judging: Judging, pod: Any, mode: str) -> str:
    """The outcome."""
    verdict = judging.judge(pod, mode)
    now = after(pod, verdict)
    assert is_kept(pod, now), now
    again = judging.judge(now, mode)
    assert after(now, again) == now, again
    return verdict.outcome


def test_whatever_a_pod_is_it_is_allowed_and_loses_nothing(judging: Judging) -> None:
    outcomes = Counter[str]()

    @settings(max_examples=150)
    @given(pod=POD, mode=MODES)
    @example(pod=objects.pod(), mode="node")
    def trial(pod: Thing, mode: str) -> None:
        outcomes[holds(judging, pod, mode)] += 1

    trial()
    assert outcomes["injected"] > 30 and outcomes["failed"] > 5, outcomes


@pytest.mark.soak
@settings(max_examples=20_000, suppress_health_check=[*HealthCheck])
@given(pod=POD | JUNK, mode=MODES)
def test_of_twenty_thousand_pods_none_loses_anything(
    judging: Judging, pod: Thing, mode: str
) -> None:
    holds(judging, pod, mode)


def named(*names: str, least: int = 0, **fields: Any) -> st.SearchStrategy[list[Thing]]:
    """Objects of different names."""
    each = st.fixed_dictionaries({"name": st.sampled_from(names)}, optional=fields)
    return st.lists(each, min_size=least, max_size=2, unique_by=lambda made: str(made["name"]))


def taken(names: st.SearchStrategy[str]) -> st.SearchStrategy[list[Thing]]:
    return st.lists(
        st.fixed_dictionaries({"name": names, "mountPath": PLACE}),
        max_size=3,
        unique_by=lambda made: str(made["mountPath"]),
    )


@st.composite
def valid_pods(draw: st.DrawFn) -> Thing:
    """Such as an API server takes; many have names and places of ours."""
    folder: Thing = {"hostPath": {"path": "/var/lib/runwatch"}}
    source: st.SearchStrategy[Thing] = st.sampled_from(
        [{"emptyDir": {}}, {"configMap": {"name": "x"}}, folder]
    )
    names = ["v", "runwatch-records", "runwatch-records-2", "runwatch-files", "runwatch-tmp"]
    chosen = draw(st.lists(st.sampled_from(names), unique=True))
    volumes = [{"name": name, **draw(source)} for name in chosen]
    mounts = taken(st.sampled_from(chosen)) if chosen else st.builds(list)  # a new one each time
    variable = st.fixed_dictionaries(
        {"name": st.sampled_from(["PYTHONPATH", "RUNWATCH_DIR", "POD_NAME", "X"])},
        optional={"value": st.sampled_from(["", "/a:/b", "/var/lib/runwatch", "$(X)"])},
    )
    fields: dict[str, Any] = {
        "command": st.lists(st.sampled_from(["python", "-c", "/bin/sh", "runwatch"]), min_size=1),
        "env": st.lists(variable, max_size=2),
        "volumeMounts": mounts,
        "securityContext": st.fixed_dictionaries({}, optional={"runAsUser": st.integers(0, 3)}),
    }
    containers = draw(named("a", "b", "runwatch-agent", least=1, **fields))
    first = draw(named("i", "runwatch-files", "runwatch-tmp", **fields))
    for each in (*containers, *first):
        each["image"] = "i:1"
    notes = draw(NOTES.filter(lambda made: all(isinstance(each, str) for each in made.values())))
    spec = {"containers": containers, "initContainers": first, "volumes": volumes}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": notes},
        "spec": spec,
    }


@settings(max_examples=150)
@given(pod=valid_pods(), mode=MODES)
def test_a_pod_that_the_api_server_takes_it_takes_with_us(
    judging: Judging, pod: Thing, mode: str
) -> None:
    before = copy.deepcopy(pod)
    pods.filled(before, "x")
    assert list(pods.wrong_pod(before)) == []
    verdict = judging.judge(before, mode)
    assert verdict.outcome == "injected"
    now = after(before, verdict)
    pods.filled(now, "x")
    assert list(pods.wrong_pod(now)) == []
    assert holds(judging, before, mode) == "injected"


@pytest.mark.parametrize("where", ["metadata", "spec", "containers", "labels", "annotations"])
@pytest.mark.parametrize("junk", [7, "x", [], [1], {"a": 1}, True, None])
def test_something_else_where_an_object_should_be(
    judging: Judging, where: str, junk: object
) -> None:
    pod = objects.pod(labels={"a": "b"})
    place = pod if where in pod else pod["spec"] if where in pod["spec"] else pod["metadata"]
    place[where] = junk
    holds(judging, pod, "sidecar")


@pytest.mark.parametrize(
    "words",
    ['say "hi"', "it's", "$(POD_NAME)", "$$(X)", "a\nb\tc", "\\u0000", "\x00", "☃" * 9, "\ud83d"],
)
@pytest.mark.parametrize("note", ["name", "group", "mode", "exec", "containers", "user"])
def test_annotations_with_signs_of_other_languages(judging: Judging, note: str, words: str) -> None:
    pod = objects.pod(notes={f"runwatch.dev/{note}": words})
    holds(judging, pod, "node")


def test_a_quarter_of_a_mebibyte_of_annotation(judging: Judging) -> None:
    pod = objects.pod(notes={"runwatch.dev/name": "x" * (256 << 10)})
    holds(judging, pod, "node")
    pod = objects.pod(notes={"runwatch.dev/exec": "x" * (256 << 10)})
    holds(judging, pod, "node")


def test_a_pod_with_a_thousand_containers(judging: Judging) -> None:
    many = [objects.container(f"c{number}") for number in range(1000)]
    pod = objects.pod(spec=objects.pod_spec(*many))
    assert judging.judge(pod).outcome == "injected"
    holds(judging, pod, "sidecar")


@pytest.mark.parametrize("depth", [100, 100_000])
def test_a_pod_that_is_deep(judging: Judging, depth: int) -> None:
    """Deeper than any Python reads: then there is no answer that could be wrong."""
    words = json.dumps(objects.pod())[:-1] + ', "x": ' + '{"a":' * depth + "{}" + "}" * depth + "}"
    kind = '{"group": "", "version": "v1", "kind": "Pod"}'
    body = (
        '{"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "operation": "CREATE", '
        f'"namespace": "hostile", "kind": {kind}, "object": {words}}}}}'
    )
    if depth == 100:
        holds(judging, json.loads(words), "node")
    else:
        with pytest.raises(BadReview):
            question_in(body.encode())
