"""Whatever comes in over the wire, the head answers everybody, and a run that is well stays so."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError

from runwatch.errors import WireError
from runwatch.record import Batch
from runwatch.wire import spine_pb2 as pb
from runwatch.wire.convert import batch_from_message
from tests.fuzz import asking, hostile
from tests.fuzz.children import MEMORY, MOST_SECONDS, in_a_child, most_bytes
from tests.fuzz.world import World, a_world


def taken(seed: int) -> Batch | None:
    """A message as it is taken off the wire; now and then its bytes were not what was sent."""
    draw = random.Random(seed)
    sent = hostile.message(draw, seed).SerializeToString()
    if draw.random() < 0.2:
        spoilt = bytearray(sent)
        for _ in range(draw.choice((1, 3, 10))):
            spoilt[draw.randrange(len(spoilt))] = draw.randrange(256)
        sent = bytes(spoilt)
    try:
        return batch_from_message(pb.Batch.FromString(sent), host="node-1", now_ns=hostile.NOW)
    except (WireError, DecodeError):
        return None  # the stream ends: that agent does not speak our language


def store_all(world: World, seeds: range, *, ask_every: int) -> None:
    for seed in seeds:
        if (batch := taken(seed)) is not None and batch.origin.journal != "healthy-1":
            world.send([batch])
        if seed % ask_every == 0:
            world.answers("hostile")
            world.is_well()
    world.answers("hostile")
    world.answers("healthy")
    world.is_well()


def take_all(seeds: range) -> None:
    before = most_bytes()
    for seed in seeds:
        begun = time.process_time()
        taken(seed)
        assert time.process_time() - begun < MOST_SECONDS, f"seed {seed} took too long"
        assert most_bytes() - before < MEMORY, f"seed {seed} took too much"


def ask_all(world: World, seeds: range) -> None:
    _, described = world.ask("/api/v1/openapi.json")
    operations = asking.operations(json.loads(described))
    for seed in seeds:
        request = asking.request(random.Random(seed), operations)
        begun = time.process_time()
        status, body = world.ask(*request)
        assert status < 500, (seed, request.target[:300], body[:300])
        assert time.process_time() - begun < MOST_SECONDS, (seed, request.target[:300])
    world.is_well()


def test_messages_that_mean_no_good(tmp_path: Path) -> None:
    take_all(range(1_000))
    with a_world(tmp_path) as world:
        store_all(world, range(60), ask_every=30)


def test_requests_that_mean_no_good(tmp_path: Path) -> None:
    with a_world(tmp_path) as world:
        store_all(world, range(20), ask_every=100)
        ask_all(world, range(400))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(10))
def test_a_million_messages(part: int, tmp_path: Path) -> None:
    in_a_child(__name__, "take", tmp_path, part * 100_000, (part + 1) * 100_000)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_of_them_stored(part: int, tmp_path: Path) -> None:
    in_a_child(__name__, "store", tmp_path, part * 500, (part + 1) * 500)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(10))
def test_a_hundred_thousand_requests(part: int, tmp_path: Path) -> None:
    in_a_child(__name__, "ask", tmp_path, part * 10_000, (part + 1) * 10_000)


def main(what: str, root: str, first: str, end: str) -> None:
    seeds = range(int(first), int(end))
    if what == "take":
        take_all(seeds)
        return
    with a_world(Path(root)) as world:
        if what == "store":
            store_all(world, seeds, ask_every=25)
        else:
            store_all(world, range(60), ask_every=100)
            ask_all(world, seeds)


if __name__ == "__main__":
    main(*sys.argv[1:])
