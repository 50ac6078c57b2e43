"""Families of jobs in a cluster: preempted and waiting for nodes, and what only looks like it."""

from __future__ import annotations

from random import Random

from tests.truth.cluster import Cluster, Come, Way
from tests.truth.families import family
from tests.truth.judging import History, history
from tests.truth.loops import Loop
from tests.truth.machine import Job, Process
from tests.truth.passing import Killed, Moves
from tests.truth.pieces import about, seed


def preempted(process: Process) -> Moves:
    yield from process.sleep(0.2)
    raise Killed("SIGKILL")


def minutes(rng: Random, least: float, most: float) -> float:
    return 60 * rng.uniform(least, most)


def first(ranks: int = 1) -> Come:
    """It is sent away in its hundred and thirtieth step, by the node of its last rank."""

    def goes(process: Process, step: int) -> Moves:
        if process.rank == ranks - 1 and step == 130:
            yield from preempted(process)

    return Come(Loop(work=about(1.0), save_every=50, inside=goes, gathers=True), [Way()] * ranks)


def second() -> Loop:
    return Loop(first=100, steps=200, work=about(1.0), restore=6.0, gathers=True)


@family("pods")
def preempted_and_waits_for_a_node(rng: Random) -> History:
    way = Way(minutes(rng, 3, 20), minutes(rng, 0.5, 4), rng.uniform(2, 8))
    return history(Cluster(Job(seed(rng))).run(first(), Come(second(), [way], 100)))


@family("pods")
def a_gang_waits_for_its_last_node(rng: Random) -> History:
    ways = [Way(minutes(rng, 0, 12), minutes(rng, 0.2, 3), rng.uniform(2, 8)) for _ in range(4)]
    return history(Cluster(Job(seed(rng))).run(first(4), Come(second(), ways, 100)))


@family("pods")
def the_first_launch_waits_for_a_rank(rng: Random) -> History:
    """The run has begun with its first process; one pod has to wait for minutes."""
    ways = [Way() for _ in range(3)] + [Way(minutes(rng, 2, 8), minutes(rng, 0.5, 2))]
    return history(Cluster(Job(seed(rng))).run(Come(Loop(work=about(1.0), gathers=True), ways)))


@family("pods")
def pods_are_given_up_and_made_again(rng: Random) -> History:
    given_up = [minutes(rng, 1, 4) for _ in range(3)]
    come = Come(second(), [Way(minutes(rng, 1, 5), 30.0)], 100, given_up_s=given_up)
    return history(Cluster(Job(seed(rng))).run(first(), come))


@family("pods")
def the_clock_of_the_cluster_is_off(rng: Random) -> History:
    way = Way(minutes(rng, 10, 25), minutes(rng, 1, 4))
    cluster = Cluster(Job(seed(rng)), rng.choice((-1, 1)) * rng.uniform(0.5, 2.5))
    return history(cluster.run(first(), Come(second(), [way], 100)))


@family("pods")
def a_quick_restart_beside_a_clock_that_is_off(rng: Random) -> History:
    """Its node is there at once: nothing was waited for but the start."""
    cluster = Cluster(Job(seed(rng)), rng.choice((-1, 1)) * rng.uniform(0.5, 4.0))
    return history(cluster.run(first(), Come(second(), [Way()], 100)))


@family("pods")
def a_spare_pod_waits_beside_the_job(rng: Random) -> History:
    cluster = Cluster(Job(seed(rng)))
    for _ in range(3):
        cluster.spare(rng.uniform(0, 400))
    way = Way(minutes(rng, 1, 3), 20.0)
    return history(cluster.run(first(), Come(second(), [way], 100)))


@family("pods")
def a_slow_restart_in_the_same_pod(rng: Random) -> History:
    """The kubelet takes its time to start a container again; its pod has a node all along."""
    come = Come(second(), [Way()], 100, noticed_s=minutes(rng, 1, 5), in_place=True)
    return history(Cluster(Job(seed(rng))).run(first(), come))
