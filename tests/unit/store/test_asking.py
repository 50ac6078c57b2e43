"""Work that several wait for goes on as long as one of them does."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from runwatch.errors import Abandoned
from runwatch.store.asking import Question, Shared, heeded, look
from runwatch.testing import until


class Worker:
    """Works on what is shared until it is told to end, or nobody waits."""

    def __init__(self, shared: Shared, mine: Question | None) -> None:
        self.at_work = threading.Event()
        self.finish = threading.Event()
        self.outcome = ""
        self.thread = threading.Thread(target=self._run, args=(shared, mine))
        self.thread.start()

    def _run(self, shared: Shared, mine: Question | None) -> None:
        try:
            if mine is None:
                self._work(shared)
            else:
                with mine.asked():
                    self._work(shared)
            self.outcome = "done"
        except Abandoned as error:
            self.outcome = str(error)

    def _work(self, shared: Shared) -> None:
        with shared.held() as together:
            with together.asked():
                self.at_work.set()
                while not self.finish.wait(0.001):
                    look()
            look()

    def ended(self) -> str:
        self.thread.join(100)
        assert not self.thread.is_alive()
        return self.outcome


def test_work_is_given_up_with_the_last_who_waits() -> None:
    shared, first, second = Shared(), Question(), Question()
    leader = Worker(shared, first)
    assert leader.at_work.wait(100)
    other = Worker(shared, second)
    until(lambda: len(shared._together.members) == 2, 30)
    first.give_up("the first has gone")
    assert leader.thread.is_alive() and not other.at_work.is_set()
    second.give_up("the second has gone")
    assert leader.ended() == "the second has gone"
    assert other.ended() == "the second has gone"
    assert not other.at_work.is_set(), "who waits for the lock leaves, too"


def test_who_leads_works_on_for_the_others() -> None:
    shared, first = Shared(), Question()
    leader = Worker(shared, first)
    assert leader.at_work.wait(100)
    other = Worker(shared, None)
    until(lambda: len(shared._together.members) == 2, 30)
    first.give_up("gone")
    leader.finish.set()
    assert leader.ended() == "gone", "for himself it is over"
    assert other.at_work.wait(100)
    other.finish.set()
    assert other.ended() == "done"


def test_what_was_given_up_can_be_asked_again() -> None:
    shared, first = Shared(), Question()
    leader = Worker(shared, first)
    assert leader.at_work.wait(100)
    first.give_up("gone")
    again = Worker(shared, Question())
    assert again.at_work.wait(100)
    again.finish.set()
    assert again.ended() == "done" and leader.ended() == "gone"


@pytest.mark.parametrize("rows", [lambda: range(10_000), lambda: iter(range(10_000))])
def test_rows_end_when_nobody_wants_more(rows: Callable[[], range]) -> None:
    asked = Question()
    assert list(heeded(rows())) == list(range(10_000))
    with asked.asked():
        found = heeded(rows())
        assert [next(found) for _ in range(5)] == [0, 1, 2, 3, 4]
        asked.give_up("enough")
        with pytest.raises(Abandoned, match="enough"):
            list(found)
