"""What Events about a pod, and its node, say that happened to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runwatch.k8s.operator.pod_events import ready_of, told_of_event, told_of_node
from runwatch.k8s.operator.pods import about
from tests.cluster.kubelet import (
    PULL_FAILED,
    SILENT,
    UNSCHEDULABLE,
    Played,
    Time,
    event_about,
    node_named,
    pod_named,
)

TIME = Time()
POD = Played(pod_named("llama-0"), TIME).thing
PULL = f'Failed to pull image "x": {PULL_FAILED}'


@pytest.mark.parametrize(
    "reason, message, what, said",
    [
        ("FailedScheduling", UNSCHEDULABLE, "unschedulable", "FailedScheduling"),
        ("Pulling", 'Pulling image "x"', "pulling", "Pulling"),
        ("Failed", PULL, "pull_failed", "ErrImagePull"),
        ("BackOff", 'Back-off pulling image "x"', "pull_failed", "ImagePullBackOff"),
        ("Preempted", "Preempted by pod b on node node-1", "preempted", "Preempted"),
        ("Evicted", "The node was low on resource: memory.", "evicted", "Evicted"),
    ],
)
def test_events_of_interest(reason: str, message: str, what: str, said: str) -> None:
    told = told_of_event(event_about(POD, reason, message, TIME, container="train"))
    assert told is not None
    assert (told.time_ns, told.what.what, told.what.reason) == (TIME.ns, what, said)
    assert (told.what.pod, told.what.namespace) == ("llama-0", "team")
    assert told.what.uid == POD["metadata"]["uid"] and told.what.message == message
    assert told.what.container == ("train" if what.startswith("pull") else "")


@pytest.mark.parametrize(
    "reason, message",
    [
        ("BackOff", "Back-off restarting failed container train in pod llama-0"),
        ("Failed", "Error: ErrImagePull"),
        ("Failed", "Error: failed to create containerd task"),
        ("FailedScheduling", "skip schedule deleting pod: team/llama-0"),
        ("Pulled", 'Successfully pulled image "x" in 812ms'),
        ("Started", "Started container train"),
        ("Killing", "Stopping container train"),
        ("", ""),
    ],
)
def test_events_that_say_nothing_new(reason: str, message: str) -> None:
    assert told_of_event(event_about(POD, reason, message, TIME)) is None


def test_events_about_others_are_passed_over() -> None:
    event = event_about(POD, "Evicted", "x", TIME)
    assert told_of_event({**event, "involvedObject": {"kind": "Node", "uid": "n"}}) is None
    assert told_of_event({**event, "involvedObject": {"kind": "Pod"}}) is None
    assert told_of_event({}) is None


def test_an_event_of_the_newer_form_has_its_time_elsewhere() -> None:
    event = event_about(POD, "FailedScheduling", UNSCHEDULABLE, TIME)
    newer = {**event, "firstTimestamp": None, "lastTimestamp": None}
    newer["eventTime"] = TIME.written(3).replace("Z", ".250000Z")
    told = told_of_event(newer)
    assert told is not None and told.time_ns == TIME.ns + 3_250_000_000


def test_an_event_that_comes_again_keeps_its_first_time() -> None:
    event = event_about(POD, "FailedScheduling", UNSCHEDULABLE, TIME)
    again = {**event, "count": 12, "lastTimestamp": TIME.written(700)}
    assert told_of_event(again) == told_of_event(event)


def test_a_silent_node_is_told_of_with_the_time_at_which_it_was_given_up() -> None:
    ready = ready_of(node_named("node-1", TIME, "Unknown"))
    assert ready is not None
    told = told_of_node(ready, about(POD), TIME.ns - 5)
    assert told is not None and told.time_ns == TIME.ns
    assert told.what == replace(
        about(POD), what="node_not_ready", reason="NodeStatusUnknown", message=SILENT
    )


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_both_ways_not_to_be_ready(status: str) -> None:
    ready = ready_of(node_named("node-1", TIME, status))
    assert ready is not None and not ready.is_ready


def test_that_a_node_is_ready_is_news_only_if_it_was_not_while_the_pod_was_there() -> None:
    ready = ready_of(node_named("node-1", TIME))
    assert ready is not None
    assert told_of_node(ready, about(POD), TIME.ns + 1) is None
    assert told_of_node(ready, about(POD), None) is None
    told = told_of_node(ready, about(POD), TIME.ns - 1)
    assert told is not None and told.what.what == "node_ready"


def test_a_node_that_nobody_has_judged_yet_says_nothing() -> None:
    assert ready_of({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}) is None
    assert ready_of({}) is None
