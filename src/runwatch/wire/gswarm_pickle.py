"""Reads files that clients of gswarm left on disk: pickles, read as data and never executed.

A pickle is a program.  Here its instructions are interpreted one by one.  Those that make lists,
texts and numbers are followed.  The few names that such a file needs are mere labels.  Any other
name or instruction raises an error.  Nothing is imported or called, and nothing grows beyond the
size of the file.

There are two kinds of files, both of gswarm 0.4.x: `buffered_metrics_HOST_TIME.pkl`, the messages
that could not be sent, and `metrics_history_HOST_TIME.pkl`, the last 1,000 samples as plain values.
"""

from __future__ import annotations

import pickletools
import re
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from runwatch.errors import UsageError
from runwatch.wire import gswarm_pb2 as pb

MOST_BYTES: Final = 256 << 20
"""Five times what the original can leave: 10,000 messages of 64 GPUs with all metrics on."""
MOST_UPDATES: Final = 100_000
BUFFERS: Final = "buffered_metrics_*.pkl"
HISTORIES: Final = "metrics_history_*.pkl"
_HISTORY: Final = re.compile(r"metrics_history_(?P<host>.+)_\d+\.pkl")


class NotABuffer(UsageError):
    """The file is not one that a gswarm client leaves, or it is incomplete."""


def find(path: Path) -> list[Path]:
    """The file itself, or all such files of a folder."""
    if not path.is_dir():
        return [path]
    files = sorted([*path.glob(BUFFERS), *path.glob(HISTORIES)])
    if not files:
        raise NotABuffer(f"{path} holds neither {BUFFERS} nor {HISTORIES}")
    return files


def read(path: Path) -> list[Any]:
    """The file's samples as messages; [] for an empty buffer."""
    data = _bytes(path)
    if not data:
        return []
    try:
        samples = _Reading().run(data)
    except NotABuffer as error:
        raise NotABuffer(f"{path}: {error}; nothing of it was executed or stored") from None
    if not isinstance(samples, list) or len(samples) > MOST_UPDATES:
        raise NotABuffer(f"{path} is not a list of at most {MOST_UPDATES:,} samples")
    if all(isinstance(sample, _Message) for sample in samples):
        return [_update(path, sample) for sample in samples]
    if all(
        isinstance(sample, dict) and {"timestamp", "metrics"} <= sample.keys() for sample in samples
    ):
        return _history(path, samples)
    raise NotABuffer(f"{path} holds something other than samples of gswarm")


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise NotABuffer(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise NotABuffer(f"{path} is larger than {MOST_BYTES >> 20} MiB: no client leaves so much")
    return data


def _update(path: Path, message: _Message) -> Any:
    try:
        return pb.MetricsUpdate.FromString(message.serialized)
    except DecodeError as error:
        raise NotABuffer(f"{path} holds a message that is not of gswarm: {error}") from None


# ── histories ──────────────────────────────────────────────────────────────────────────────────

_GPU_NUMBERS: Final = (
    "gpu_util", "mem_util", "dram_bw_gbps_rx", "dram_bw_gbps_tx", "nvlink_bw_gbps_rx",
    "nvlink_bw_gbps_tx",
)  # fmt: skip


def _history(path: Path, samples: Sequence[Any]) -> list[Any]:
    """The samples of a history, without those that a buffer beside it holds too."""
    named = _HISTORY.fullmatch(path.name)
    if named is None:
        raise NotABuffer(
            f"the name of history {path} has no host: rename it to what gswarm called it, "
            "metrics_history_HOST_TIME.pkl"
        )
    host, elsewhere = named["host"], set[float]()
    for beside in path.parent.glob(f"buffered_metrics_{escape(host)}_*.pkl"):
        with suppress(NotABuffer):
            elsewhere.update(update.timestamp for update in read(beside))
    try:
        updates = [_from_values(host, sample) for sample in samples]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise NotABuffer(f"{path} is not a history of samples: {error!r}") from None
    return [update for update in updates if update.timestamp not in elsewhere]


def _from_values(host: str, values: dict[str, Any]) -> Any:
    metrics = values["metrics"]
    update = pb.MetricsUpdate(hostname=host, timestamp=values["timestamp"])
    for gpu in metrics["gpus_metrics"]:
        metric = update.gpus_metrics.add(physical_idx=gpu["physical_idx"], name=gpu["name"])
        for name in _GPU_NUMBERS:
            setattr(metric, name, gpu.get(name, 0.0))
        for key, value in gpu.get("extra_metrics", {}).items():
            if isinstance(value, int | float):
                metric.extra_metrics[key] = value
    if system := metrics.get("system_metrics"):
        update.system_metrics.dram_util = system.get("dram_util", 0.0)
        update.system_metrics.disk_util = system.get("disk_util", 0.0)
    return update


# ── the instructions ───────────────────────────────────────────────────────────────────────────


class _Name:
    """One of the names that such a file needs.  It is never looked up."""

    def __init__(self, what: str) -> None:
        self.what = what


class _Message:
    serialized: bytes = b""


_MESSAGE: Final = _Name("message")
_DEQUE: Final = _Name("deque")
_NAMES: Final = {
    "collections.deque": _DEQUE,
    "profiler_pb2.MetricsUpdate": _MESSAGE,
    "gswarm.profiler.profiler_pb2.MetricsUpdate": _MESSAGE,
    "gswarm_profiler.profiler_pb2.MetricsUpdate": _MESSAGE,
}
_PLAIN: Final = frozenset((
    "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "SHORT_BINBYTES", "BINBYTES",
    "BINBYTES8", "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT", "FLOAT",
))  # fmt: skip
_FIXED: Final[dict[str, Callable[[], Any]]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple,
}  # fmt: skip
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK: Final = _Name("mark")


class _Reading:
    """The stack and memory of one pickle."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memory: dict[int, Any] = {}
        self._rules: dict[str, Callable[[Any], None]] = {
            "PROTO": self._nothing, "FRAME": self._nothing, "MARK": lambda _: self._push(_MARK),
            "MEMOIZE": lambda _: self._keep(len(self._memory)), "PUT": self._keep,
            "BINPUT": self._keep, "LONG_BINPUT": self._keep, "GET": self._recall,
            "BINGET": self._recall, "LONG_BINGET": self._recall,
            "GLOBAL": lambda name: self._push(_known(name.replace(" ", ".", 1))),
            "STACK_GLOBAL": self._stack_global, "REDUCE": self._reduce, "BUILD": self._build,
            "APPEND": lambda _: self._append([self._pop()]),
            "APPENDS": lambda _: self._append(self._marked()),
            "SETITEM": lambda _: self._set([self._pop(), self._pop()][::-1]),
            "SETITEMS": lambda _: self._set(self._marked()),
            "TUPLE": lambda _: self._push(tuple(self._marked())),
            "LIST": lambda _: self._push(self._marked()), "DICT": self._dict,
        }  # fmt: skip

    def run(self, data: bytes) -> Any:
        try:
            for opcode, argument, _ in pickletools.genops(data):
                if opcode.name == "STOP":
                    return self._pop()
                self._follow(opcode.name, argument)
        except (ValueError, TypeError, KeyError, struct.error) as error:
            raise NotABuffer(f"damaged, incomplete, or not a pickle ({error})") from None
        raise NotABuffer("incomplete: it has no end")

    def _follow(self, name: str, argument: Any) -> None:
        if name in _PLAIN:
            self._push(argument)
        elif name in _FIXED:
            self._push(_FIXED[name]())
        elif name in _TUPLES:
            items = [self._pop() for _ in range(_TUPLES[name])]
            self._push(tuple(reversed(items)))
        elif name in self._rules:
            self._rules[name](argument)
        else:
            raise NotABuffer(f"its instruction {name} does not belong in a list of samples")

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack:
            raise NotABuffer("damaged: it takes a value from an empty stack")
        return self._stack.pop()

    def _marked(self) -> list[Any]:
        """Pop everything above the last mark."""
        items: list[Any] = []
        while (item := self._pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _nothing(self, _: Any) -> None:
        pass

    def _keep(self, place: int) -> None:
        self._memory[int(place)] = self._top(object)

    def _recall(self, place: int) -> None:
        self._push(self._memory[int(place)])

    def _top(self, kind: type) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise NotABuffer(f"damaged: no {kind.__name__} where one should be")
        return self._stack[-1]

    def _append(self, items: list[Any]) -> None:
        self._top(list).extend(items)

    def _set(self, items: list[Any]) -> None:
        self._top(dict).update(zip(items[::2], items[1::2], strict=True))

    def _dict(self, _: Any) -> None:
        items = self._marked()
        self._push(dict(zip(items[::2], items[1::2], strict=True)))

    # ── the few names ─────────────────────────────────────────────────────────────────────────

    def _stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise NotABuffer("damaged: a name that is not a text")
        self._push(_known(f"{module}.{name}"))

    def _reduce(self, _: Any) -> None:
        arguments, function = self._pop(), self._pop()
        if function is _DEQUE and isinstance(arguments, tuple) and arguments[:1] in ((), ((),)):
            self._push([])  # its items follow
        elif function is _MESSAGE and arguments == ():
            self._push(_Message())
        else:
            raise NotABuffer("damaged: it calls something other than a deque or a message")

    def _build(self, _: Any) -> None:
        state = self._pop()
        serialized = state.get("serialized") if isinstance(state, dict) else None
        if not isinstance(serialized, bytes) or len(state) != 1:
            raise NotABuffer("damaged: a message whose state is not its bytes")
        self._top(_Message).serialized = serialized


def _known(name: str) -> _Name:
    if name not in _NAMES:
        raise NotABuffer(f"it refers to {name[:200]}, which does not belong in a list of samples")
    return _NAMES[name]
