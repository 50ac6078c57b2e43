"""What a pod's review costs the injection webhook, on one core.

python benchmarks/webhook.py [--quick]

A pod of a JobSet, as an API server asks about it (`tests/fixtures/admission`): CPU time from the
bytes of the question to those of the answer, with owners that are known, as for all of a job's pods
but the first.  Then a JobSet's pods at once over TLS: CPU time of the webhook's process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from typing import Any, Final

import psutil
import yaml
from report import NO_BAR, Outcome, Table, at_most
from trial import HERE, Options, TrialFailed, directory

from runwatch.k8s.api import Access, Api
from runwatch.k8s.judge import Judge
from runwatch.k8s.reviews import question_in
from runwatch.k8s.settings import WebhookSettings
from runwatch.k8s.workloads import Workloads

sys.path.insert(0, str(HERE.parent))

from tests.cluster import objects
from tests.cluster.server import Cluster
from tests.integration.webhook.site import Site, is_watched
from tests.integration.webhook.test_crowds import at_once

REVIEW: Final = HERE.parent / "tests" / "fixtures" / "admission" / "job-set.yaml"
BAR_MS: Final = 5.0
"""A thousand pods in the five seconds that an API server waits."""
NOTHING: Final = "nothing: it is not watched"
CASES: Final = {
    NOTHING: {},
    "the node's folder": {},
    "a sidecar": {"runwatch.dev/mode": "sidecar"},
    "a sidecar, and our files": {"runwatch.dev/mode": "sidecar", "runwatch.dev/exec": "true"},
}


def measure(options: Options) -> Outcome:
    with directory() as place, Cluster(place / "cluster") as cluster:
        site = Site(place, cluster)
        cluster.namespace("team", {"runwatch.dev/watch": "true"})
        numbers: dict[str, Any] = {
            case: reviewed(cluster, case, 200 if options.quick else 5_000) for case in CASES
        }
        numbers["over TLS"] = over_tls(site, 200 if options.quick else 1_000)
        site.close()
    return Outcome([_table(numbers)], numbers)


def reviewed(cluster: Cluster, case: str, rounds: int) -> dict[str, float]:
    found = yaml.safe_load(REVIEW.read_text())
    about = found["review"]["request"]["object"]["metadata"]
    about["annotations"] |= CASES[case]
    about["labels"]["runwatch.dev/watch"] = str(case != NOTHING).lower()
    job = cluster.find("Job", "gpt-workers-1", "team") or cluster.create(
        objects.job("gpt-workers-1"), "team"
    )
    about["ownerReferences"][0]["uid"] = job["metadata"]["uid"]
    body = json.dumps(found["review"]).encode()
    took = sorted(asyncio.run(_asked(cluster, body, rounds)))
    return {"p50_ms": statistics.median(took) * 1e3, "p99_ms": took[len(took) * 99 // 100] * 1e3}


async def _asked(cluster: Cluster, body: bytes, rounds: int) -> list[float]:
    settings = WebhookSettings(head="http://runwatch-head:8090", image="runwatch:1")
    access = Access(cluster.server, cluster.account("runwatch", "runwatch-webhook"))
    took = []
    async with Api(access) as api:
        judge = Judge(Workloads(api, keep_seconds=3_600), settings, "runwatch")
        for number in range(rounds + 1):
            began = time.thread_time()
            until = asyncio.get_running_loop().time() + 5
            verdict = await judge.judge(question_in(body), until)
            json.dumps(verdict.review).encode()
            if number:  # the first one asks for the owners
                took.append(time.thread_time() - began)
    if verdict.outcome not in ("injected", "unwatched"):
        raise TrialFailed(f"the pod was {verdict.outcome}: {verdict.review}")
    return took


def over_tls(site: Site, count: int) -> dict[str, float]:
    replica = site.start().ready()
    process = psutil.Process(replica.process.pid)
    before = sum(process.cpu_times()[:2])
    pods = at_once(site, count, "crowd")
    cpu = sum(process.cpu_times()[:2]) - before
    if not all(map(is_watched, pods)):
        raise TrialFailed(f"not all of {count} pods were watched: {replica.words()[-1000:]}")
    return {"pods": count, "cpu_ms_per_pod": cpu / count * 1e3}


def _table(numbers: dict[str, Any]) -> Table:
    table = Table("A pod's review", ("what the pod gets", "CPU ms, p50 (p99)", "bar", ""))
    for case in CASES:
        found = numbers[case]
        shown = f"{found['p50_ms']:.2f} ({found['p99_ms']:.2f})"
        table.rows.append((case, shown, *NO_BAR))
    crowd = numbers["over TLS"]
    shown, bar = f"{crowd['cpu_ms_per_pod']:.2f} each", crowd["cpu_ms_per_pod"]
    table.rows.append(
        (f"{crowd['pods']:,} pods at once, over TLS", shown, *at_most(bar, BAR_MS, "ms"))
    )
    return table


def main() -> None:
    from command import run_one

    parser = argparse.ArgumentParser(description=__doc__)
    run_one(parser, None, measure)


if __name__ == "__main__":
    main()
