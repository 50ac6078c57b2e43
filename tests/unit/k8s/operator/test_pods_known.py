"""What is known of pods: each thing is told once, and nothing grows without end."""

from __future__ import annotations

from runwatch.k8s.operator.known_pods import (
    MOST_EARLY,
    MOST_SENTENCES,
    KnownPod,
    KnownPods,
)
from runwatch.k8s.operator.pod_events import told_of_event
from runwatch.k8s.operator.pods import Told
from runwatch.record import RunId
from tests.cluster.kubelet import Played, Time, event_about, pod_named

RUN = RunId("run")
TIME = Time()


def played(name: str = "a") -> Played:
    return Played(pod_named(name), TIME)


def event(pod: Played, message: str, reason: str = "FailedScheduling") -> Told:
    told = told_of_event(event_about(pod.thing, reason, message, TIME))
    assert told is not None
    return told


def seen(known: KnownPods, pod: Played) -> KnownPod:
    found = known.seen(pod.thing, 1)
    assert found is not None
    found.runs[RUN] = "name"
    return found


def tell(known: KnownPods, pod: KnownPod) -> list[str]:
    found: list[str] = []
    for run, told in known.news(pod):
        known.was_told(run, told)
        found.append(told.what.what)
    return found


def test_what_was_told_is_no_news_and_what_is_new_is() -> None:
    known, pod = KnownPods(), played()
    assert tell(known, seen(known, pod)) == ["created"]
    assert tell(known, seen(known, pod)) == []
    pod.scheduled()
    assert tell(known, seen(known, pod)) == ["scheduled"]


def test_an_event_that_came_before_its_pod_is_told_with_its_workload_and_node() -> None:
    known, pod = KnownPods(), played()
    known.keep(event(pod, "no GPU"))
    pod.scheduled("node-7")
    found = {told.what.what: told.what for _, told in known.news(seen(known, pod))}
    assert found["unschedulable"].workload == "Job/llama"
    assert found["unschedulable"].node == "node-7"


def test_what_status_and_event_say_in_the_same_words_is_told_once() -> None:
    known, pod = KnownPods(), played()
    pod.unschedulable("no GPU")
    known.keep(event(pod, "no GPU"))
    assert tell(known, seen(known, pod)) == ["created", "unschedulable"]


def test_each_run_of_a_pod_is_told_everything() -> None:
    known, pod = KnownPods(), played()
    found = seen(known, pod)
    found.runs[RunId("other")] = ""
    assert [run for run, _ in known.news(found)] == ["run", "other"]


def test_who_begins_again_knows_what_was_told() -> None:
    before, known, pod = KnownPods(), KnownPods(), played()
    pod.scheduled()
    for run, told in before.news(seen(before, pod)):
        known.recall(run, told, 1)
    assert tell(known, seen(known, pod)) == []
    (recalled,) = known
    assert (recalled.about.what, recalled.about.uid) == ("", pod.uid)


def test_of_a_pod_that_says_the_same_in_ever_other_words_only_some_are_told() -> None:
    known, pod = KnownPods(), played()
    told = []
    for number in range(100):
        pod.unschedulable(f"0/{number} nodes are available")
        told += tell(known, seen(known, pod))
    assert told.count("unschedulable") == MOST_SENTENCES


def test_events_of_pods_that_nobody_watches_take_no_room() -> None:
    known, watched = KnownPods(), played("watched")
    for number in range(MOST_EARLY + 50):
        known.keep(event(played(f"p-{number}"), "no GPU"))
    for number in range(100):
        known.keep(event(watched, f"no GPU: {number}"))
    known.keep(event(watched, "low on memory", "Evicted"))
    found = seen(known, watched)
    assert len(found.more) == MOST_SENTENCES + 1
    assert found.more[("evicted",)].what.message == "low on memory"
    assert [*seen(known, played("p-0")).more] == []  # so long ago that it was forgotten
    stranger = played("p-4000")
    del stranger.thing["metadata"]["labels"]
    assert known.seen(stranger.thing, 1) is None


def test_a_pod_under_a_name_that_another_had_is_another() -> None:
    known, one = KnownPods(), played()
    first = seen(known, one)
    other = Played(pod_named("a"), TIME)
    other.thing["metadata"]["uid"] = "another"
    second = seen(known, other)
    assert (known.at(first.ref), len(list(known))) == (second, 2)
    known.forget(first)
    assert (known.at(first.ref), list(known)) == (second, [second])
    known.forget(second)
    assert known.at(first.ref) is None
