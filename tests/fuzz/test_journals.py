"""A journal that is damaged, or forged, costs what is wrong in it, and nobody else anything."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import segment_name
from runwatch.record import Batch
from runwatch.wire import spine_pb2 as pb
from runwatch.wire.convert import batch_from_message, batch_to_message
from tests.fuzz import journals
from tests.fuzz.children import MEMORY, MOST_SECONDS, in_a_child, most_bytes

MOST_BATCHES = 500


class Bench:
    """One folder in which a mutated segment is laid again and again."""

    def __init__(self, root: Path) -> None:
        self.data = journals.whole(root / "whole")
        self.directory = root / "journals" / journals.NAME
        self.directory.mkdir(parents=True)

    def read(self, seed: int) -> list[Batch]:
        (self.directory / segment_name(0)).write_bytes(journals.mutated(self.data, seed))
        reader, found = JournalReader(self.directory), []
        try:
            while (batch := reader.read(final=True)) is not None:
                found.append(batch)
                assert len(found) < MOST_BATCHES
        finally:
            reader.close()
        return found


def try_all(root: Path, seeds: range) -> None:
    """What one door lets pass the other does, too: a batch is the same behind the wire."""
    bench, before = Bench(root), most_bytes()
    for seed in seeds:
        begun = time.process_time()
        for batch in bench.read(seed):
            sent = batch_to_message(batch).SerializeToString()
            got = batch_from_message(pb.Batch.FromString(sent))
            assert got.skipped_records == batch.skipped_records, seed
            assert len(got.events) == len(batch.events), seed
            assert len(got.points) == len(batch.points), seed
            assert len(got.spans) == len(batch.spans), seed
        assert time.process_time() - begun < MOST_SECONDS, f"seed {seed} took too long"
        assert most_bytes() - before < MEMORY, f"seed {seed} took too much"


def test_no_mutation_raises_or_hangs(tmp_path: Path) -> None:
    try_all(tmp_path, range(600))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(10))
def test_a_million_mutations(part: int, tmp_path: Path) -> None:
    in_a_child(__name__, tmp_path, part * 100_000, (part + 1) * 100_000)


if __name__ == "__main__":
    try_all(Path(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])))
