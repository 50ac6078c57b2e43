from __future__ import annotations

import pytest

from runwatch.errors import UsageError
from runwatch.ship.client import Address, Backoff


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("head", Address("head:8091")),
        ("head:1", Address("head:1")),
        ("grpc://head:1/", Address("head:1")),
        ("grpcs://head", Address("head:8091", tls=True)),
        ("[::1]:5", Address("[::1]:5")),
        ("[::1]", Address("[::1]:8091")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["", "ftp://x", "head:port", "head:0", "head:70000", "grpc://"])
def test_wrong_addresses_are_named(text: str) -> None:
    with pytest.raises(UsageError, match="address"):
        Address.parse(text)


def test_e2_14_backoff_doubles_with_jitter_up_to_a_minute() -> None:
    draws = iter([0.5] * 8 + [0.0, 0.999])
    backoff = Backoff(1.0, 60.0, lambda: next(draws))
    assert [backoff.delay() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff.delay() == 30.0
    assert backoff.delay() == 60.0
    backoff.reset()
    draws = iter([0.0])
    assert backoff.delay() == 0.5


def test_who_is_to_wait_less_than_the_first_delay_waits_less_from_the_start() -> None:
    backoff = Backoff(1.0, 0.3, lambda: 0.5)
    assert [backoff.delay() for _ in range(3)] == [0.3, 0.3, 0.3]
