"""To which heads an agent sends, by what the journals beside it say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runwatch import identity
from runwatch.address import Address
from runwatch.agent.sender import Orders, Sender
from runwatch.agent.senders import Senders
from runwatch.agent.settings import AgentSettings
from runwatch.errors import UsageError
from runwatch.journal.heads import Destination, NamedHead, note, read_note
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin, Position, RunId, RunScope
from runwatch.ship.finding import Found
from runwatch.testing import FakeClock
from tests.integration.strangers import ALICE, needs_users

ONE, TWO = NamedHead("http://one:8090", token="1"), NamedHead("two", token="2")
OWN = JournalId("own")


def journal(root: Path, name: str, *heads: NamedHead) -> JournalId:
    origin = Origin(JournalId(name), "node", 1, 1)
    JournalWriter(root, origin, heads=note(Destination(heads)) if heads else b"").close()
    return JournalId(name)


def senders(root: Path, head: str = "", token: str = "") -> Senders:
    made = Senders(AgentSettings(dir=root, head=head, token=token), "node", FakeClock())
    made.begin(Orders(["stacks"]))
    writer = JournalWriter(root, Origin(OWN, "node", 2, 1, role="agent"), heads=made.note())
    made.opened(OWN)
    writer.close()
    return made


def scope(run: str) -> RunScope:
    return RunScope(1, RunId(run), f"name of {run}")


def by_address(made: Senders) -> dict[str, Sender]:
    return {sender.address: sender for sender in made.all()}


def test_each_head_that_a_journal_names_gets_a_sender(tmp_path: Path) -> None:
    made = senders(tmp_path)
    journal(tmp_path, "nobodys")
    made.look()
    assert made.all() == []
    for name, head in (("a", ONE), ("b", TWO), ("c", NamedHead("one:8090", token="3"))):
        journal(tmp_path, name, head)
    (tmp_path / "journals" / "unfinished").mkdir()
    made.look()
    found = by_address(made)
    assert found.keys() == {"http://one:8090", "two"}
    one, two = found["http://one:8090"], found["two"]
    assert [made.is_for(one, JournalId(name)) for name in ("a", "b", "c")] == [True, False, True]
    assert not made.is_for(one, JournalId("nobodys"))
    assert (one._words(), two._words()) == (["3", "1"], ["2"])


def test_a_token_that_is_refused_makes_room_for_the_next(tmp_path: Path) -> None:
    made = senders(tmp_path)
    journal(tmp_path, "a", ONE)
    journal(tmp_path, "b", NamedHead(ONE.address, token="new"))
    made.look()
    [sender] = made.all()
    assert [sender._token(), sender._token()] == ["new", "new"]
    sender.shipper.problem = "unauthenticated: who are you?"
    assert [sender._token(), sender._token()] == ["1", "new"]


def test_what_names_no_head_goes_to_the_agent_s_own(tmp_path: Path) -> None:
    made = senders(tmp_path, "http://one:8090", "own")
    names = [journal(tmp_path, "a"), journal(tmp_path, "b", ONE), journal(tmp_path, "c", TWO)]
    made.look()
    own, other = made.all()
    assert own.is_own and other.address == "two"
    assert [made.is_for(own, name) for name in names] == [True, True, False]
    assert [made.is_for(other, name) for name in names] == [False, False, True]
    assert own._words() == ["own", "1"]


def test_its_own_journal_is_for_every_head_with_runs_here(tmp_path: Path) -> None:
    made = senders(tmp_path)
    first, second = journal(tmp_path, "a", ONE), journal(tmp_path, "b", TWO)
    made.look()
    one, two = made.all()
    assert not made.is_for(one, OWN)
    made.learn(first, scope("r1"), OWN)
    assert (made.is_for(one, OWN), made.is_for(two, OWN)) == (True, False)
    made.learn(second, scope("r2"), OWN)
    assert made.is_for(two, OWN)
    assert (made.owns(one, OWN, scope("r1")), made.owns(one, OWN, scope("r2"))) == (True, False)
    assert not made.owns(one, OWN, scope("nobodys"))
    assert made.owns_folder(two, "r2") and made.owns_folder(two, "name of r2")
    assert not made.owns_folder(two, "r1")
    kept = read_note(tmp_path / "journals" / OWN)
    assert [head.address for head in kept.heads] == ["http://one:8090", "two"]

    later = Senders(AgentSettings(dir=tmp_path), "node", FakeClock())  # the next agent
    later.begin(Orders())
    later.look()
    again = by_address(later)["two"]
    assert later.is_for(again, OWN) and later.owns(again, OWN, scope("r2"))
    assert not later.owns(again, OWN, scope("r1"))


def test_what_one_of_two_heads_has_is_not_acknowledged(tmp_path: Path) -> None:
    made = senders(tmp_path)
    for name, head, run in (("a", ONE, "r1"), ("b", TWO, "r2")):
        made.learn(journal(tmp_path, name, head), scope(run), OWN)
    one, two = made.all()
    one.shipper.acknowledged |= {JournalId("a"): Position(7), OWN: Position(9)}
    assert made.acknowledged() == {"a": 7}
    two.shipper.acknowledged[OWN] = Position(5)
    assert made.acknowledged() == {"a": 7, OWN: 5}
    assert made.acknowledged_at()["two"] == {OWN: 5}


def test_two_addresses_of_one_head_are_one_head(tmp_path: Path) -> None:
    """Else the head would get the agent's records by either way without the runs of the other."""
    made = senders(tmp_path)
    other = NamedHead("http://also-one:8090")
    for name, head, run in (("a", ONE, "r1"), ("b", other, "r2")):
        made.learn(journal(tmp_path, name, head), scope(run), OWN)
    one, also = made.all()
    assert not made.owns(one, OWN, scope("r2"))
    for sender in (one, also):
        made.remember(sender, Found(Address(sender.address), "the same"))
    assert made.owns(one, OWN, scope("r2")) and made.owns(also, OWN, scope("r1"))


def test_a_head_is_found_again_at_another_address(tmp_path: Path) -> None:
    made = senders(tmp_path)
    journal(tmp_path, "a", ONE)
    made.look()
    [one] = made.all()
    made.remember(one, Found(Address("one:8091"), "id of one"))
    assert made.moved(one) is None

    later = senders_again(tmp_path)
    journal(tmp_path, "b", TWO)
    later.look()
    one, two = later.all()
    two.found = Found(Address("two:8091"), "id of one")
    assert later.moved(one) == Address("two:8091"), "what was learned before is kept"
    two.found = Found(Address("two:8091"), "another")
    assert later.moved(one) is None


def senders_again(root: Path) -> Senders:
    (root / "agent").mkdir(exist_ok=True)
    first = Senders(AgentSettings(dir=root), "node", FakeClock())
    first.begin(Orders())
    first.look()
    first.remember(first.all()[0], Found(Address("one:8091"), "id of one"))
    made = Senders(AgentSettings(dir=root), "node", FakeClock())
    made.begin(Orders())
    made.look()
    return made


def test_an_own_address_that_is_none_is_an_error_and_a_journal_s_is_not(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not an address"):
        senders(tmp_path / "one", "ftp://head")
    made = senders(tmp_path / "two")
    journal(tmp_path / "two", "a", NamedHead("ftp://head"))
    made.look()
    assert made.all() == []


@needs_users
def test_a_user_s_head_gets_that_user_s_journals_and_no_secret_of_ours(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    made = senders(tmp_path, "http://own:8090", "own")
    journal(tmp_path, "ours", ONE)
    theirs = NamedHead(ONE.address, token_file=str(secret))
    directory = tmp_path / "journals" / journal(tmp_path, "alices", theirs)
    for path in (directory, *directory.iterdir()):
        os.chown(path, ALICE, ALICE)
    made.look()
    _, alices, ours = made.all()
    assert (ours.key[1], alices.key[1]) == (os.geteuid(), ALICE)
    assert made.is_for(alices, JournalId("alices")) and not made.is_for(ours, JournalId("alices"))
    assert not made.is_for(alices, JournalId("ours"))
    assert (ours._words(), alices._words()) == (["1"], [])
    assert ours.shipper._commands == ("stacks",) and alices.shipper._commands == ()
    assert not identity.is_on()
