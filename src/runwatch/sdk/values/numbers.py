"""Turns values that are passed to `log` into numbers.

Frameworks are recognised without importing them: a value can only be a torch tensor if torch is in
`sys.modules`.  A value that is still on a device is a `Pending`; reading it never blocks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from runwatch.interruption import let_pass
from runwatch.sdk.guard import tally, text_of

MAX_DEVICES: Final = 1024
MAX_NAME: Final = 1024


# Tuples and not dataclasses: they are defined faster, and this is loaded inside the first init().
class PerDevice(NamedTuple):
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)


class Text(NamedTuple):
    """Goes to the log, not into a curve."""

    value: Any


class Unrecordable(NamedTuple):
    what: str
    message: str


class Pending(Protocol):
    """A value on its way from a device."""

    def ready(self) -> bool: ...
    def read(self) -> Reading:
        """The value; only after `ready` returned True."""
        ...


Reading = float | PerDevice | Text | Unrecordable | Pending


def read(value: Any) -> Reading:
    """Never waits for a device.  May raise what the value's own methods raise."""
    kind = type(value)
    if kind is float:
        return float(value)
    if isinstance(value, (bool, int)):
        return _from_int(int(value))
    if isinstance(value, (str, Mapping)):
        return Text(value)
    if isinstance(value, (list, tuple)):
        return _from_list(value)
    if value is None:
        return Unrecordable("value None", "None is not a number: nothing is recorded for it")
    if isinstance(value, (complex, bytes, bytearray)):
        return _unknown(value)
    for module, reader in _FRAMEWORKS:
        framework = sys.modules.get(module)
        if framework is not None and (reading := reader(framework, value)) is not None:
            return reading
    return _from_float(value)


def _unknown(value: object) -> Unrecordable:
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    return Unrecordable(f"value {name}", f"a value of type {name} cannot be recorded")


def _from_int(value: int) -> float:
    try:
        return float(value)
    except OverflowError as error:
        let_pass(error)
        tally.count("int beyond float", "an int too large for a float was recorded as infinity")
        return math.inf if value > 0 else -math.inf


def _from_float(value: Any) -> Reading:
    """Decimal, Fraction, and anything else that converts to float."""
    if not (hasattr(type(value), "__float__") or hasattr(type(value), "__index__")):
        return _unknown(value)
    try:
        return float(value)
    except OverflowError as error:
        let_pass(error)
        return _from_int(int(value))
    except (TypeError, ValueError) as error:
        let_pass(error)
        return _unknown(value)


def _from_list(items: Sequence[Any]) -> Reading:
    if not items:
        return Unrecordable("value empty", "an empty list holds no number: nothing is recorded")
    if len(items) > MAX_DEVICES:
        tally.count(
            "list too long", f"a list is longer than {MAX_DEVICES}: only its beginning is recorded"
        )
        items = items[:MAX_DEVICES]
    readings = [read(item) for item in items]
    if all(isinstance(r, float) for r in readings):
        return PerDevice(tuple(r for r in readings if isinstance(r, float)))
    if all(isinstance(r, float) or hasattr(r, "ready") for r in readings):
        return _PendingList(readings)
    return Unrecordable("value list", "a list can be recorded only if all its items are numbers")


class _PendingList:
    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts

    def ready(self) -> bool:
        return all(isinstance(part, float) or part.ready() for part in self._parts)

    def read(self) -> Reading:
        return _from_list([p if isinstance(p, float) else p.read() for p in self._parts])


def _from_array(value: Any, what: str) -> Reading:
    """An array in host memory: one element is a number, a row is one value per device."""
    if value.size == 0:
        return Unrecordable("value empty", "an empty array holds no number: nothing is recorded")
    if value.size == 1:
        return read(value.item())
    if value.ndim == 1:
        return _from_list(value[: MAX_DEVICES + 1].tolist())
    return Unrecordable(
        f"value {what} of {value.ndim} dimensions",
        f"a {what} of shape {tuple(value.shape)} cannot be recorded: log a number or a row",
    )


def _from_numpy(numpy: Any, value: Any) -> Reading | None:
    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        return None
    if value.dtype.kind in "cmM":  # complex numbers, dates and differences of dates
        return Unrecordable(f"value {value.dtype}", f"a value of {value.dtype} cannot be recorded")
    if isinstance(value, numpy.ndarray):
        return _from_array(value, "NumPy array")
    plain = value.item()
    return float(value) if isinstance(plain, numpy.generic) else read(plain)


# ── PyTorch ───────────────────────────────────────────────────────────────────────────────────


def _from_torch(torch: Any, value: Any) -> Reading | None:
    tensor_type = getattr(torch, "Tensor", None)
    if tensor_type is None or not isinstance(value, tensor_type):
        return None
    if type(value).__module__.startswith("torch.distributed"):
        # Its item() may wait for other ranks.
        return Unrecordable(
            "value DTensor", "a distributed tensor cannot be recorded: log a local number"
        )
    if (problem := _tensor_problem(value)) is not None:
        return problem
    if value.device.type == "cpu":
        return _from_tensor(value)
    if value.device.type != "cuda":
        return read(value.item())
    if torch.cuda.is_current_stream_capturing():
        return Unrecordable(
            "value in CUDA graph capture", "a tensor cannot be recorded while a graph is captured"
        )
    return _CudaCopy(torch, value)


def _tensor_problem(tensor: Any) -> Unrecordable | None:
    """By the tensor's description alone, so without waiting for its content."""
    if tensor.numel() == 0:
        return Unrecordable("value empty", "an empty tensor holds no number: nothing is recorded")
    if tensor.numel() > 1 and tensor.dim() > 1:
        return Unrecordable(
            f"value tensor of {tensor.dim()} dimensions",
            f"a tensor of shape {tuple(tensor.shape)} cannot be recorded: log a number or a row",
        )
    if tensor.is_complex() or tensor.device.type == "meta":
        what = "complex" if tensor.is_complex() else "meta"
        return Unrecordable(f"value {what} tensor", f"a {what} tensor cannot be recorded")
    return None


def _from_tensor(tensor: Any) -> Reading:
    """A tensor in host memory."""
    if tensor.numel() == 1:
        return read(tensor.item())
    return _from_list(tensor[: MAX_DEVICES + 1].tolist())


class _CudaCopy:
    """A copy to pinned memory, queued behind the work that computes the value."""

    __slots__ = ("_event", "_host")

    def __init__(self, torch: Any, value: Any) -> None:
        value = value.detach()
        if value.dim() == 1:
            value = value[: MAX_DEVICES + 1]
        self._host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        self._host.copy_(value, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(value.device))

    def ready(self) -> bool:
        return bool(self._event.query())

    def read(self) -> Reading:
        return _from_tensor(self._host)


# ── JAX ───────────────────────────────────────────────────────────────────────────────────────


def _from_jax(jax: Any, value: Any) -> Reading | None:
    array_type = getattr(jax, "Array", None)
    if array_type is None or not isinstance(value, array_type):
        return None
    if any(c.__name__ == "Tracer" for c in type(value).__mro__):
        return Unrecordable(
            "value traced", "a value inside jit is not a number yet: log what the function returns"
        )
    if not value.is_fully_addressable:
        if not value.is_fully_replicated:
            return Unrecordable(
                "value sharded", "an array spread over hosts cannot be recorded: reduce it first"
            )
        value = value.addressable_data(0)
    copy = _JaxArray(value)
    on_host = all(d.platform == "cpu" for d in value.devices())
    if on_host and copy.ready():
        return copy.read()
    value.copy_to_host_async()
    return copy


class _JaxArray:
    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def ready(self) -> bool:
        return bool(self._value.is_ready())

    def read(self) -> Reading:
        return _from_array(self._value, "JAX array")


_FRAMEWORKS: Final[tuple[tuple[str, Callable[[Any, Any], Reading | None]], ...]] = (
    ("numpy", _from_numpy),
    ("torch", _from_torch),
    ("jax", _from_jax),
)


# ── names and steps ───────────────────────────────────────────────────────────────────────────


def metric_name(name: object) -> str | None:
    """The name as it is stored; None (counted) for an invalid one."""
    if not isinstance(name, str):
        kind = type(name).__name__
        tally.count(f"name {kind}", f"a metric's name is a string or a MetricType, not a {kind}")
        return None
    plain = str.__str__(name)
    if not plain:
        tally.count("name empty", "a metric needs a name: values under an empty name are lost")
        return None
    try:
        encoded = plain.encode()
    except UnicodeEncodeError:
        encoded = plain.encode(errors="replace")
    if len(encoded) > MAX_NAME:
        tally.count("name too long", f"a metric's name was cut to {MAX_NAME} bytes")
        encoded = encoded[:MAX_NAME]
    return encoded.decode(errors="ignore")


def step_number(step: object) -> int | None:
    """The step as it is stored; None if there is none, or (counted) if it is not a whole number."""
    if step is None:
        return None
    number = _whole(step)
    if number is None or not -(2**63) < number < 2**63:
        kind = type(step).__name__
        tally.count(
            f"step {kind}", f"a step is a whole number of 64 bits, not {text_of(step)[:80]}"
        )
        return None
    return number


def _whole(step: Any) -> int | None:
    if isinstance(step, int):
        return int(step)
    if isinstance(step, float):
        return int(step) if step.is_integer() else None
    if getattr(step, "is_cuda", False) or not hasattr(type(step), "__index__"):
        return None  # reading it would wait for the device
    return step.__index__() if not hasattr(step, "item") else _whole(step.item())
