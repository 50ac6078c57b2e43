"""The collector rests while somebody is inside, and works again when the last one is out."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from runwatch.head.features.devices.uncollected import uncollected


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.enable()


def test_one_inside_the_other() -> None:
    with uncollected():
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_lets_it_work_again() -> None:
    with pytest.raises(ValueError, match="x"), uncollected():
        raise ValueError("x")
    assert gc.isenabled()


def test_who_has_switched_it_off_keeps_it_off() -> None:
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()


def test_a_function_may_be_called_often() -> None:
    @uncollected()
    def work() -> bool:
        return gc.isenabled()

    assert [work(), work()] == [False, False]
    assert gc.isenabled()
