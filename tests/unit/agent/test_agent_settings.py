"""What an agent can be told, and what it refuses."""

from __future__ import annotations

import pytest

from runwatch.agent.settings import AgentSettings
from runwatch.errors import UsageError


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_head_that_is_away_is_tried_again(seconds: float) -> None:
    with pytest.raises(UsageError, match="RUNWATCH_RETRY_SECONDS"):
        AgentSettings(retry_seconds=seconds)
