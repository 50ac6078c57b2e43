"""What an agent recorded about runs of another head stays away from this one."""

from __future__ import annotations

from pathlib import Path

from runwatch.journal.reader import JournalReader
from runwatch.journal.writer import JournalWriter
from runwatch.record import Batch, JournalId, Origin, RunId, RunScope, Series
from runwatch.ship.sieve import Sieve


def journal(root: Path, role: str = "agent") -> JournalWriter:
    origin = Origin(JournalId("one"), "node", 1, 1, role=role)  # type: ignore[arg-type]
    writer = JournalWriter(root, origin)
    for run in ("mine", "theirs"):
        scope = writer.scope(RunScope(0, RunId(run), run))
        writer.point(writer.series("used", scope=scope, unit="bytes"), 1.0)
        writer.event("told", {"run": run}, scope=scope)
    writer.event("told", {"run": ""})
    return writer


def sieve(root: Path) -> Sieve:
    return Sieve(root, lambda _, scope: scope.run == "mine")


def read(root: Path, most: int = 1 << 20) -> list[Batch]:
    reader = JournalReader(root / "journals" / "one")
    batches = []
    while (batch := reader.read(max_bytes=most)) is not None:
        batches.append(batch)
    reader.close()
    return batches


def told(batch: Batch) -> list[str]:
    return [event.body["run"] for event in batch.events]


def test_measurements_lose_their_run_and_events_are_left_out(tmp_path: Path) -> None:
    journal(tmp_path).close()
    batch, *_ = read(tmp_path)
    sifted = sieve(tmp_path)(batch)
    scopes = [d.run for d in sifted.definitions if isinstance(d, RunScope)]
    assert sorted(scopes) == ["", "mine"]
    assert len([d for d in sifted.definitions if isinstance(d, Series)]) == 2
    assert (len(sifted.points), told(sifted)) == (2, ["mine", ""])
    assert (sifted.start, sifted.end) == (batch.start, batch.end)
    assert told(batch) == ["mine", "theirs", ""], "another head gets it whole"


def test_a_program_s_journal_is_nobody_else_s_business(tmp_path: Path) -> None:
    journal(tmp_path, "process").close()
    batch, *_ = read(tmp_path)
    assert sieve(tmp_path)(batch) is batch


def test_in_the_middle_of_a_segment_it_looks_at_what_was_defined_before(tmp_path: Path) -> None:
    """So it is after an agent was killed: the head says where to go on."""
    journal(tmp_path).close()
    batches = read(tmp_path, most=200)
    assert len(batches) > 2
    for first in range(len(batches)):
        sift = sieve(tmp_path)  # a new one, which has not seen the batches before
        assert "theirs" not in [run for batch in batches[first:] for run in told(sift(batch))]
