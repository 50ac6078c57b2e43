"""What objects ask for, and what of it is refused in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runwatch.errors import UsageError
from runwatch.k8s.operator import asking, captures, storage, targets
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.k8s.operator.targets import Way

Thing = dict[str, Any]


def a_capture(**spec: Any) -> Thing:
    return {"metadata": {"uid": "u"}, "spec": {"run": "llama"} | spec}


def a_connection(**trigger: Any) -> Thing:
    wanted = {
        "capturePort": 9999,
        "durationSeconds": 5,
        "podName": "a,b",
        "podNamespace": "team",
        "profiler": "google_cloud_mldiagnostics",
        "storageLocation": "gs://bucket/path",
    } | trigger
    return {"metadata": {"uid": "u"}, "spec": {"triggerCapture": wanted}}


def test_a_capture_asks_for_seconds_or_steps_of_ranks() -> None:
    assert captures.wanted_of(a_capture(durationSeconds=3)) == ("llama", {"duration_ms": 3000})
    assert captures.wanted_of(a_capture(steps=5, ranks=[3, 1, 3])) == (
        "llama",
        {"steps": 5, "ranks": [1, 3]},
    )
    assert captures.session_of(a_capture()) == "capture-u"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "exactly one of the two"),
        ({"durationSeconds": 1, "steps": 1}, "exactly one of the two"),
        ({"durationSeconds": 0}, "spec.durationSeconds is 0: 1 to 600"),
        ({"durationSeconds": 601}, "spec.durationSeconds is 601: 1 to 600"),
        ({"steps": True}, "spec.steps is True"),
        ({"steps": 10_001}, "1 to 10000"),
        ({"steps": 1, "ranks": [-1]}, "a list of numbers from 0 on"),
        ({"steps": 1, "ranks": "all"}, "a list of numbers from 0 on"),
        ({"steps": 1, "run": " "}, "the name or id of a run"),
    ],
)
def test_a_capture_that_cannot_be_is_refused_with_its_value(spec: Thing, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        captures.wanted_of(a_capture(**spec))
    assert words in str(refused.value)


def test_a_connection_names_pods_with_commas() -> None:
    wanted = targets.wanted_of(a_connection(podName=" a, b ,a"), OperatorSettings())
    assert wanted.pods == ("a", "b") and wanted.location == "gs://bucket/path"
    assert (wanted.namespace, wanted.port, wanted.seconds) == ("team", 9999, 5)


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ({"podName": ""}, "none empty"),
        ({"podName": "a,,b"}, "none empty"),
        ({"capturePort": 0}, "capturePort is 0: 1 to 65535"),
        ({"capturePort": 65536}, "1 to 65535"),
        ({"durationSeconds": 601}, "durationSeconds is 601: 1 to 600"),
        ({"podNamespace": ""}, "RUNWATCH_NAMESPACES"),
        ({"podNamespace": "others"}, "RUNWATCH_NAMESPACES"),
        ({"storageLocation": ""}, "storageLocation"),
        ({"storageLocation": "ftp://host/path"}, "RUNWATCH_STORAGE_SCHEMES"),
        ({"storageLocation": "gs://"}, "names no bucket"),
        ({"storageLocation": "gs://bucket/../other"}, "names no bucket"),
        ({"storageLocation": "/data"}, "RUNWATCH_FILES"),
        ({"storageLocation": "file:///etc"}, "RUNWATCH_FILES"),
        ({"storageLocation": "zip://a::gs://bucket/x"}, "use gs://BUCKET/PATH"),
    ],
)
def test_a_connection_that_cannot_be_is_refused_with_its_value(trigger: Thing, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        targets.wanted_of(a_connection(**trigger), OperatorSettings(namespaces="team, two"))
    assert words in str(refused.value)


def test_profiles_are_stored_in_the_operators_folder_and_nowhere_else(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "out").symlink_to(tmp_path)
    settings = OperatorSettings(files=ours)
    assert storage.checked_location(f"{ours}/a/b", settings) == f"{ours}/a/b"
    assert storage.checked_location(f"file://{ours}/a", settings) == f"{ours}/a"
    for place in (tmp_path, f"{ours}/../theirs", f"{ours}/out/theirs"):
        with pytest.raises(UsageError, match="and below"):
            storage.checked_location(str(place), settings)


def test_a_trace_is_called_by_its_pod() -> None:
    assert storage.file_name("llama-0", None, "vm.xplane.pb") == "llama-0.xplane.pb"
    assert storage.file_name("llama-0", 3, "vm.rank3.xplane.pb") == "llama-0.rank3.xplane.pb"
    assert storage.file_name("a", None, "h.torch_xla.xplane.pb") == "a.torch_xla.xplane.pb"
    assert storage.file_name("../../etc/a", None, "h.kineto.json.gz") == "etc-a.kineto.json.gz"


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    output = storage.output_of(str(tmp_path / "base"), "connection-u")
    assert storage.there(output) == set()
    for words in ("first", "second"):
        (tmp_path / words).write_text(words)
        storage.put(output, [(tmp_path / words, "a.xplane.pb")])
    assert storage.there(output) == {"a.xplane.pb"}
    assert (Path(output) / "a.xplane.pb").read_text() == "first"
    assert output == f"{tmp_path}/base/plugins/profile/connection-u"


def test_the_way_is_read_as_it_was_written() -> None:
    way = Way("run-1", {"a": [0, 1], "b": [2]})
    thing = a_connection()
    assert targets.way_of(thing) is None
    thing["metadata"]["annotations"] = {"runwatch.dev/capture": way.written()}
    found = targets.way_of(thing)
    assert found == way and found is not None and found.all_ranks == [0, 1, 2]
    assert found.pod_of(1) == ("a", False) and found.pod_of(2) == ("b", True)
    thing["metadata"]["annotations"] = {"runwatch.dev/capture": Way().written()}
    assert targets.way_of(thing) == Way()


@pytest.mark.parametrize(
    "told",
    ["{", "[]", '"head"', json.dumps({"way": "head"}), json.dumps({"way": "head", "run": "r"}),
     json.dumps({"way": "head", "run": "r", "ranks": {"a": ["x"]}}), json.dumps({"way": "other"})],
)  # fmt: skip
def test_an_annotation_that_none_of_us_wrote_is_refused(told: str) -> None:
    thing = a_connection()
    thing["metadata"]["annotations"] = {"runwatch.dev/capture": told}
    with pytest.raises(UsageError, match="none of us wrote that"):
        targets.way_of(thing)


def test_a_capture_is_over_when_the_head_says_so_and_says_what_is_missing() -> None:
    assert not asking.is_over({"state": "asked"}) and not asking.is_over({"state": "running"})
    assert asking.is_over({"state": "partial"})
    assert asking.left_out({"processes": []}) == "no process was captured"
    assert asking.left_out({"unreachable": {"node-1": "no agent"}}) == "node-1: no agent"
    done = {"processes": [{"state": "done", "rank": 0, "files": ["a.xplane.pb"]}]}
    assert asking.left_out(done) == ""
    assert list(asking.expected_files(done)) == ["a.xplane.pb"]
