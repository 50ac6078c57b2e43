from __future__ import annotations

import pytest

from runwatch.cli.commands.capture import ranks_of
from runwatch.errors import UsageError


def test_ranks() -> None:
    assert ranks_of("3") == [3]
    assert ranks_of("8, 0-3,2") == [0, 1, 2, 3, 8]


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1-2-3", "0-999999999", "1,,2", "9" * 30])
def test_what_are_no_ranks(text: str) -> None:
    with pytest.raises(UsageError, match="--ranks"):
        ranks_of(text)
