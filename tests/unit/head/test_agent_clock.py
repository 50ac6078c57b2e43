from __future__ import annotations

from runwatch.head.stream import CLOCK_WORDS, AgentState

SECOND = 10**9


def test_a_word_that_waited_on_its_way_does_not_make_a_clock_slow() -> None:
    agent = AgentState("node", "1", 0, 0)
    agent.hear_clock(100 * SECOND, 100 * SECOND + 2_000_000)
    assert agent.clock_offset_seconds == -0.002
    for number in range(1, CLOCK_WORDS):
        now = (100 + 3 * number) * SECOND
        agent.hear_clock(now - 4 * SECOND, now)
        assert agent.clock_offset_seconds == -0.002


def test_a_clock_that_is_set_anew_is_heard_of() -> None:
    agent = AgentState("node", "1", 0, 0)
    agent.hear_clock(0, 0)
    agent.hear_clock(60 * SECOND, 0)
    assert agent.clock_offset_seconds == 60
    for _ in range(CLOCK_WORDS):
        agent.hear_clock(-60 * SECOND, 0)
    assert agent.clock_offset_seconds == -60
