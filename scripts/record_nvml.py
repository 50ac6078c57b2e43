"""Record what NVML answers on this machine, for tests on machines that have no GPU.

    PYTHONPATH=src python3 scripts/record_nvml.py tests/fixtures/nvml/h200.json [--load] [--about …]

Runs the agent's own NVML collectors for some seconds with every call they make listened to, so
that the recording holds exactly what they ask.  `--load` keeps the GPU busy with matrix products
(PyTorch) meanwhile.  Serial numbers in UUIDs are replaced.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import re
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runwatch.agent.attribution import Attribution
from runwatch.agent.collectors import nvml
from runwatch.agent.collectors.gpus import Gpus
from runwatch.agent.collectors.xid import XidCollector
from runwatch.clock import system_clock

# Their arguments are buffers of ours; what they answer is recorded in another way, or nothing.
SILENT = frozenset(
    (
        "nvmlInit", "nvmlShutdown", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet",
        "nvmlGpmMigSampleGet", "nvmlEventSetCreate", "nvmlEventSetFree", "nvmlEventSetWait",
        "nvmlDeviceRegisterEvents",
    )
)  # fmt: skip


class Listening:
    """Stands in for the pynvml module: passes every call on, and remembers the answers."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._handles: dict[object, str] = {}
        self._sampled = "gpu0"
        self.calls: dict[str, Any] = {}
        self.seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """Function -> by the clock, and of this thread's processor time, for each call."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._library, name)
        is_call = name.startswith("nvml") and callable(value) and not isinstance(value, type)
        return self._listener(name, value) if is_call else value

    def _listener(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begun, worked = time.perf_counter(), time.thread_time()
            try:
                answer = function(*arguments)
            except self._library.NVMLError as error:
                self._note(name, arguments, {"error": error.value})
                raise
            took = (time.perf_counter() - begun, time.thread_time() - worked)
            self.seconds[name].append(took)
            self._remember(name, arguments, answer)
            return answer

        return call

    def _remember(self, name: str, arguments: tuple[Any, ...], answer: Any) -> None:
        if name == "nvmlDeviceGetHandleByIndex":
            self._handles[_address(answer)] = f"gpu{arguments[0]}"
        elif name == "nvmlDeviceGetMigDeviceHandleByIndex":
            mig = f"{self._word(arguments[0])}-mig{arguments[1]}"
            self._handles[_address(answer)] = mig
        if name in ("nvmlGpmSampleGet", "nvmlGpmMigSampleGet"):
            self._sampled = "-".join(self._word(word) for word in arguments[:-1])
        elif name == "nvmlDeviceGetFieldValues":
            for field in answer:
                key = f"field {field.fieldId} of {self._word(arguments[0])}"
                self.calls[key] = _error(field) or _union(field)
        elif name == "nvmlGpmMetricsGet":
            for metric in answer.metrics[: answer.numMetrics]:
                key = f"gpm {metric.metricId} of {self._sampled}"
                self.calls[key] = _error(metric) or metric.value
        else:
            self._note(name, arguments, self._plain(answer))

    def _note(self, name: str, arguments: tuple[Any, ...], answer: Any) -> None:
        if name == "nvmlDeviceGetProcessUtilization":
            arguments = (arguments[0], 0)  # the second is a moment that will not come again
        if name not in SILENT:
            words = ", ".join(self._word(argument) for argument in arguments)
            self.calls[f"{name}({words})"] = answer

    def _word(self, argument: Any) -> str:
        return self._handles.get(_address(argument), str(argument))

    def _plain(self, answer: Any) -> Any:
        if (known := self._handles.get(_address(answer))) is not None:
            return {"handle": known}
        if isinstance(answer, bytes):
            return answer.decode()
        if isinstance(answer, (list, tuple)):
            return [self._plain(each) for each in answer]
        if isinstance(answer, ctypes.Structure):
            fields = [field[0] for field in answer._fields_]
            return {name: self._plain(getattr(answer, name)) for name in fields}
        if hasattr(answer, "__dict__"):
            return {name: self._plain(value) for name, value in vars(answer).items()}
        return answer


def _address(handle: Any) -> object:
    """What two handles of the same device have in common."""
    if isinstance(handle, ctypes._Pointer):
        return ctypes.cast(handle, ctypes.c_void_p).value
    return ("word", handle) if isinstance(handle, str) else None


def _error(answer: Any) -> dict[str, int] | None:
    return {"error": answer.nvmlReturn} if answer.nvmlReturn else None


def _union(field: Any) -> dict[str, Any]:
    return {"valueType": field.valueType, "value": nvml._number(field)}


def record(
    library: Any, *, rounds: int = 10, pause: Callable[[], None] = lambda: time.sleep(1.0)
) -> Listening:
    """Let the collectors run for `rounds`, and listen."""
    listening = Listening(library)
    owners = Attribution(lambda: ())
    gpus = Gpus(listening)
    collectors = (
        nvml.NvmlCollector(gpus, owners),
        nvml.NvmlSlowCollector(gpus, owners, pcie=True),
        XidCollector(gpus, wait_seconds=0.01),
    )
    for _ in range(rounds):
        for collector in collectors:
            for _reading in collector.collect():
                pass
        pause()
    for collector in collectors:
        collector.close()
    return listening


def document(listening: Listening, about: str) -> dict[str, Any]:
    text = json.dumps(listening.calls, sort_keys=True)
    ids = dict.fromkeys(
        re.findall(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", text)
    )
    for number, uuid in enumerate(ids):
        text = text.replace(uuid, f"{uuid[:3]}-00000000-0000-0000-0000-{number:012d}")
    return {
        "about": about,
        "calls": json.loads(text),
        "microseconds": _medians(listening, 0),
        "cpu_microseconds": _medians(listening, 1),
    }


def _medians(listening: Listening, which: int) -> dict[str, float]:
    return {
        name: round(statistics.median(took[which] for took in times) * 1e6, 1)
        for name, times in sorted(listening.seconds.items())
        if name != "nvmlEventSetWait"
    }


@contextmanager
def load(is_wanted: bool) -> Iterator[None]:
    if not is_wanted:
        yield
        return
    import torch

    ended = threading.Event()

    def work() -> None:
        left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        while not ended.is_set():
            for _ in range(20):
                left @ left
            torch.cuda.synchronize()

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(5.0)  # until the clocks and the power have settled
    try:
        yield
    finally:
        ended.set()
        thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("output", type=Path)
    parser.add_argument("--load", action="store_true", help="keep the GPU busy meanwhile")
    parser.add_argument("--about", default="", help="what machine this is")
    arguments = parser.parse_args()
    import pynvml

    with load(arguments.load):
        begun = system_clock.wall_ns()
        listening = record(pynvml)
    pynvml.nvmlInit()
    driver = pynvml.nvmlSystemGetDriverVersion()
    pynvml.nvmlShutdown()
    day = time.strftime("%Y-%m-%d", time.gmtime(begun / 1e9))
    about = f"{arguments.about or platform.machine()}, driver {driver}, recorded {day}"
    found = document(listening, about + (", under load" if arguments.load else ""))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"Wrote {len(found['calls'])} answers to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
