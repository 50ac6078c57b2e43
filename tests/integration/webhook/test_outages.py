"""A webhook that is away, slow or killed, and an API server that is: pods start all the same."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from runwatch.testing import until
from tests.cluster import objects
from tests.cluster.chart import NAMESPACE
from tests.cluster.controllers import played
from tests.integration.webhook.site import SERVICE, Replica, Site, is_watched

Thing = dict[str, Any]


def warnings(site: Site) -> list[str]:
    """Of the last answer."""
    answer = site.cluster.reviews[-1].answer
    assert answer is not None
    found: list[str] = answer["response"].get("warnings", [])
    return found


def made(site: Site, name: str) -> bool:
    """Whether the pod of a job is watched.  Each job is asked for anew."""
    (pod,) = played(site.cluster, objects.job(name, count=1), "team")
    return is_watched(pod)


def test_without_a_webhook_pods_start(site: Site) -> None:
    assert made(site, "before-it-was-there") is False
    replica = site.start().ready()
    assert made(site, "with-it") is True
    replica.kill()
    assert made(site, "after-its-death") is False
    assert [bool(each.failure) for each in site.cluster.reviews] == [True, False, True]


def test_one_that_stands_still_is_waited_for_no_longer_than_the_chart_says(site: Site) -> None:
    replica = site.start().ready()
    replica.process.send_signal(signal.SIGSTOP)
    assert made(site, "while-it-stands-still") is False
    assert "deadline exceeded" in site.cluster.reviews[-1].failure
    replica.process.send_signal(signal.SIGCONT)
    until(lambda: made(site, f"goes-on-{time.monotonic_ns()}"), what="it to answer again")


def test_killed_in_the_middle_of_a_review(site: Site) -> None:
    """It has read the owner, and the answer never leaves."""
    replica = site.start().ready()
    site.cluster.faults.done.append(
        lambda asked: (
            os.kill(replica.process.pid, signal.SIGKILL)
            if "/jobs/" in asked.path and asked.method == "GET"
            else None
        )
    )
    assert made(site, "killed") is False
    assert site.cluster.reviews[-1].failure
    assert replica.process.wait(100) == -signal.SIGKILL


def test_started_again_it_serves_the_same_certificate(site: Site) -> None:
    """Nothing of the configuration changes: no API server has to learn anything."""
    first = site.start().ready()
    assert made(site, "first") is True
    before = site.cluster.get("MutatingWebhookConfiguration", site.configuration)
    first.kill()
    site.start(port=first.port).ready()
    assert made(site, "second") is True
    assert site.cluster.get("MutatingWebhookConfiguration", site.configuration) == before


def test_told_to_end_it_answers_for_a_while(site: Site) -> None:
    replica = site.start(RUNWATCH_WEBHOOK_LEAVE_SECONDS="20").ready()
    replica.process.send_signal(signal.SIGTERM)
    until(lambda: not replica.asked("/readyz"), what="the webhook to say that it leaves")
    assert made(site, "late") is True
    assert replica.asked("/healthz") == "ok\n"
    replica.process.send_signal(signal.SIGTERM)  # nobody asks any more
    assert replica.process.wait(100) == 0
    assert "told to end" in replica.words() and "Traceback" not in replica.words()


def test_an_api_server_that_answers_late(steady: Site) -> None:
    """The pod starts unwatched before the API server gives the webhook up, and is told why."""
    steady.cluster.faults.slow("GET", "/jobs/", 30)
    assert made(steady, "late") is False
    assert steady.cluster.reviews[-1].failure == ""
    (warning,) = warnings(steady)
    assert "not watched" in warning and "1.2 s" in warning
    steady.cluster.faults.clear()
    assert made(steady, "in-time") is True


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_api_server_that_fails(steady: Site, status: int) -> None:
    steady.cluster.faults.fail("GET", "/jobs/", status)
    assert made(steady, f"failed-{status}") is False
    assert [str(status) in each for each in warnings(steady)] == [True]
    assert made(steady, f"again-{status}") is True


def test_an_api_server_that_was_restarted(steady: Site) -> None:
    """Connections that were kept are dead then."""
    assert made(steady, "before-the-restart") is True
    steady.cluster.faults.restart()
    assert made(steady, "after-the-restart") is True


def test_a_token_that_is_good_no_longer(steady: Site) -> None:
    """The kubelet has laid a new one: it is read when the old one is refused."""
    assert made(steady, "before") is True
    steady.cluster.withdraw(NAMESPACE, SERVICE)
    steady.cluster.account(NAMESPACE, SERVICE)
    since = len(steady.cluster.asked)
    assert made(steady, "after") is True
    assert 401 in {each.status for each in steady.cluster.asked[since:]}


def test_without_a_token_pods_start_and_are_told(steady: Site) -> None:
    steady.cluster.withdraw(NAMESPACE, SERVICE)
    assert made(steady, "refused") is False
    assert ["401" in each for each in warnings(steady)] == [True]
    steady.cluster.account(NAMESPACE, SERVICE)
    assert made(steady, "taken") is True


def test_metrics_count_what_became_of_pods(site: Site) -> None:
    replica = site.start().ready()
    played(site.cluster, objects.job("watched", count=3), "team")
    played(site.cluster, objects.job("not", labels={"runwatch.dev/watch": "false"}), "team")
    site.cluster.faults.fail("GET", "/jobs/failing", 500, times=9)
    made(site, "failing")
    lines = replica.asked("/metrics").splitlines()
    name = "runwatch_webhook_reviews_total"
    assert [line for line in lines if line.startswith(name)] == [
        f'{name}{{outcome="failed"}} 1',
        f'{name}{{outcome="injected"}} 3',
        f'{name}{{outcome="unwatched"}} 2',
    ]
    assert "runwatch_webhook_review_seconds_count 6" in lines


def test_two_replicas_serve_one_certificate(site: Site) -> None:
    """They start at the same moment, and the Secret is empty."""
    both: list[Replica] = [site.start(), site.start()]
    for each in both:
        each.ready()
    for number, each in enumerate(both):
        site.ask(each)
        assert made(site, f"job-{number}") is True
    writes = [
        each.status
        for each in site.cluster.asked
        if each.method == "PATCH" and "/secrets/" in each.path
    ]
    assert writes.count(200) == 1


def test_no_certificate_is_served_before_the_api_server_is_told_whom_to_trust(site: Site) -> None:
    site.cluster.faults.fail("PATCH", "/mutatingwebhookconfigurations/", 500, times=1)
    replica = site.start()
    until(lambda: "there is no certificate yet" in replica.words(), what="the first try to fail")
    replica.ready()
    webhooks = site.cluster.get("MutatingWebhookConfiguration", site.configuration)["webhooks"]
    assert len({each["clientConfig"]["caBundle"] for each in webhooks}) == 1
    deeds = [f"{each.method} {each.path.rpartition('/')[2]}" for each in site.cluster.asked]
    assert deeds[:2] == [
        "GET runwatch-webhook-certificate",
        "PATCH runwatch-webhook-certificate",
    ]
    assert made(site, "trusted") is True


def test_without_rights_to_its_secret_it_is_not_ready_and_says_why(site: Site) -> None:
    site.cluster.delete("RoleBinding", SERVICE, NAMESPACE)
    replica = site.start(RUNWATCH_WEBHOOK_LEAVE_SECONDS="0")
    until(lambda: "403" in replica.words(), what="the webhook to say why")
    assert replica.asked("/readyz") == ""
    assert made(site, "unwatched") is False
    assert replica.stop() == 0
