from __future__ import annotations

import math
import sys
from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import runwatch
from runwatch.sdk.guard import tally
from runwatch.sdk.values.numbers import (
    PerDevice,
    Text,
    Unrecordable,
    metric_name,
    read,
    step_number,
)
from runwatch.testing import Story


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1.5, 1.5),
        (3, 3.0),
        (True, 1.0),
        (2**70, float(2**70)),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        (Decimal("0.25"), 0.25),
        (Decimal("Infinity"), math.inf),
        (Fraction(1, 4), 0.25),
        (Fraction(10**400, 1), math.inf),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.int64(-7), -7.0),
        (np.uint8(7), 7.0),
        (np.bool_(True), 1.0),
        (np.array(2.5), 2.5),
        (np.array([2.5]), 2.5),
        (np.array([[2.5]], dtype=np.float32), 2.5),
    ],
)
def test_scalars_of_every_kind(value: Any, number: float) -> None:
    reading = read(value)
    assert type(reading) is float
    assert reading == number


def test_rows_are_values_per_device() -> None:
    for row in ([1, 2.5], (1, 2.5), np.array([1, 2.5]), [np.float32(1), Decimal("2.5")]):
        reading = read(row)
        assert isinstance(reading, PerDevice)
        assert reading.values == (1.0, 2.5)
        assert reading.mean == 1.75


@pytest.mark.parametrize(
    "value",
    [
        None, [], np.array([]), np.ones((2, 2)), 1j, np.complex64(1j), np.datetime64("2020", "ns"),
        np.timedelta64(3, "s"), b"1.0", object(), [None], [[1, 2]], Decimal("sNaN"), int, len,
    ],
)  # fmt: skip
def test_what_is_no_number(value: Any) -> None:
    assert isinstance(read(value), Unrecordable)


def test_text_is_text_even_if_it_looks_like_a_number() -> None:
    assert read("1.0") == Text("1.0")
    assert read({"a": 1}) == Text({"a": 1})


def test_a_very_long_list_is_cut_and_counted() -> None:
    reading = read([1.0] * 5000)
    assert isinstance(reading, PerDevice)
    assert len(reading.values) == 1024
    assert tally.counts == {"list too long": 1}


@pytest.mark.parametrize(
    ("step", "number"), [(3, 3), (3.0, 3), (np.int32(3), 3), (True, 1), (None, None), (-5, -5)]
)
def test_steps(step: Any, number: int | None) -> None:
    assert step_number(step) == number
    assert tally.counts == {}


class Metric(StrEnum):
    LOSS = "loss"


def test_names() -> None:
    assert metric_name(Metric.LOSS) == "loss"
    assert metric_name(7) is None
    assert metric_name(b"loss") is None
    assert tally.counts == {"name int": 1, "name bytes": 1}


def test_torch_scalars_on_the_cpu(story: Callable[[], Story]) -> None:
    torch = pytest.importorskip("torch")
    run = runwatch.init("torch")
    run.log(loss=torch.tensor(0.5, requires_grad=True) * 2)
    run.log(loss=torch.tensor([3], dtype=torch.int64))
    run.log(loss=torch.tensor(0.5, dtype=torch.bfloat16))
    run.log(loss=torch.nn.Parameter(torch.tensor(4.0)))
    run.log(row=torch.tensor([1.0, 2.0]), mixed=[torch.tensor(1.0), 2])
    run.log(table=torch.ones(2, 2), none=torch.ones(0), odd=torch.tensor(1j))
    run.log(meta=torch.ones((), device="meta"))
    run.log(loss=1.0, step=torch.tensor(9))
    told = story()
    assert told.values("loss") == [1.0, 3.0, 0.5, 4.0, 1.0]
    assert told.steps("loss")[-1] == 9
    assert told.values("row") == [1.5]
    assert told.values("mixed", "1") == [2.0]
    assert told.config("software")["versions"]["torch"] == torch.__version__
    assert len(told.warnings) == 4


def test_jax_scalars_on_the_cpu(story: Callable[[], Story]) -> None:
    jax = pytest.importorskip("jax")
    numpy = jax.numpy
    run = runwatch.init("jax")

    def double(x: Any) -> Any:
        run.log(inside=x)
        return x * 2

    # Not ready when it is logged: the value arrives by way of the collector.
    big = numpy.ones((1000, 1000))
    for i in range(3):
        busy = (big @ big)[0, 0]
        run.log({"busy": busy}, step=i)
    busy.block_until_ready()
    run.log(loss=jax.jit(double)(numpy.float32(1.5)))
    run.log(half=numpy.asarray(0.5, dtype=numpy.bfloat16), row=numpy.arange(3))
    told = story()
    assert told.values("busy") == [1000.0] * 3
    assert told.steps("busy") == [0, 1, 2]
    assert told.values("loss") == [3.0]
    assert told.values("half") == [0.5]
    assert told.values("row", "2") == [2.0]
    assert told.values("inside") == []
    assert told.warnings == {"value traced": 1}


def test_nothing_is_imported_to_look_at_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("numpy", "torch", "jax"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert read(np.float32(0.5)) == 0.5  # by its __float__
    assert not {"numpy", "torch", "jax"} & set(sys.modules)
