"""pynvml as it answered on a real machine.

`RecordedNvml` takes the place of the module: its answers come from a recording that
`scripts/record_nvml.py` made, or that was typed in from figures measured there; everything else
(errors, structures, constants) is the real pynvml's, which needs no GPU for that.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

from runwatch.agent.collectors.base import NOBODY, Held, Owner

FOLDER = Path(__file__).parents[2] / "fixtures" / "nvml"
LOST, NOT_SUPPORTED, NO_PERMISSION, UNKNOWN = 15, 3, 4, 999
Answer = Any


class RecordedNvml:
    def __init__(self, name: str, *, gpus: int = 1) -> None:
        """`gpus`: so many, each the same as the one that was recorded."""
        recording = json.loads((FOLDER / f"{name}.json").read_text())
        self.answers: dict[str, Answer] = recording["calls"]
        self.microseconds: dict[str, float] = recording["microseconds"]
        if gpus > 1:
            self._multiply(gpus)
        self.asked: Counter[str] = Counter()
        """Calls by their whole words."""
        self.calls: Counter[str] = Counter()
        """Calls by function."""
        self.spent_seconds = 0.0
        """What the calls would have taken, by the recorded times."""
        self.events: list[SimpleNamespace] = []
        self.samples = 0
        """GPM buffers that are allocated now."""
        self.openings = 0
        self.gpm_asked: Counter[int] = Counter()
        self.hooks: dict[str, Callable[..., Any]] = {}
        """Function -> what happens before it answers."""
        self._sampled: dict[int, str] = {}
        self._lock = threading.Lock()

    def _multiply(self, count: int) -> None:
        first = dict(self.answers)
        for number in range(1, count):
            for words, answer in first.items():
                if "gpu0" in words:
                    copied = words.replace("gpu0", f"gpu{number}")
                    self.answers[copied] = deepcopy(answer)
            self.answers[f"nvmlDeviceGetHandleByIndex({number})"] = {"handle": f"gpu{number}"}
            uuid = f"nvmlDeviceGetUUID(gpu{number})"
            self.answers[uuid] = f"{self.answers[uuid][:-2]}{number:02d}"
        self.answers["nvmlDeviceGetCount()"] = count

    def fail(self, code: int, *words: str) -> None:
        """Every call that has one of these words fails."""
        for key in self.answers:
            if any(word in key for word in words):
                self.answers[key] = {"error": code}

    def __getattr__(self, name: str) -> Any:
        value = getattr(pynvml, name)
        is_call = name.startswith("nvml") and callable(value) and not isinstance(value, type)
        return (lambda *arguments: self._call(name, arguments)) if is_call else value

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        with self._lock:
            self.calls[name] += 1
            self.spent_seconds += self.microseconds.get(name, 0.0) / 1e6
        if name in self.hooks:
            self.hooks[name](*arguments)
        own = getattr(self, f"_{name}", None)
        if own is not None:
            return own(*arguments)
        words = f"{name}({', '.join(map(str, arguments))})"
        with self._lock:
            self.asked[words] += 1
        return self._answer(words)

    def _answer(self, words: str) -> Any:
        if words not in self.answers:
            raise AssertionError(f"did not expect a call {words}")
        answer = self.answers[words]
        if isinstance(answer, dict) and "error" in answer:
            raise pynvml.NVMLError(answer["error"])
        return _alive(answer)

    # ── calls whose arguments are buffers ─────────────────────────────────────────────────────

    def _nvmlInit(self) -> None:
        self.openings += 1

    def _nvmlShutdown(self) -> None:
        self.openings -= 1

    def _nvmlDeviceGetFieldValues(self, handle: str, ids: Iterable[tuple[int, int]]) -> list[Any]:
        found = []
        for number, _scope in ids:
            answer = self.answers.get(f"field {number} of {handle}", {"error": NOT_SUPPORTED})
            code = answer.get("error", 0)
            kind = answer.get("valueType", 0)
            members = dict.fromkeys(
                ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal"),
                answer.get("value"),
            )
            value = SimpleNamespace(**members)
            found.append(
                SimpleNamespace(fieldId=number, nvmlReturn=code, valueType=kind, value=value)
            )
        return found

    def _nvmlDeviceGetProcessUtilization(self, handle: str, since: int) -> list[Any]:
        """`since` is a moment of the recording's; what was recorded is always new."""
        words = f"nvmlDeviceGetProcessUtilization({handle}, 0)"
        found: list[Any] = self._answer(words) if words in self.answers else []
        return found

    def _nvmlGpmSampleAlloc(self) -> Any:
        self.samples += 1
        return pynvml.c_nvmlGpmSample_t()

    def _nvmlGpmSampleFree(self, sample: Any) -> None:
        self.samples -= 1

    def _nvmlGpmSampleGet(self, handle: str, sample: Any) -> Any:
        return self._sample(handle, sample)

    def _nvmlGpmMigSampleGet(self, handle: str, instance: int, sample: Any) -> Any:
        return self._sample(f"{handle}-{instance}", sample)

    def _sample(self, of: str, sample: Any) -> Any:
        error = self.answers.get(f"gpm of {of}", {})
        if "error" in error:
            raise pynvml.NVMLError(error["error"])
        self._sampled[threading.get_ident()] = of
        return sample

    def _nvmlGpmMetricsGet(self, request: Any) -> Any:
        of = self._sampled[threading.get_ident()]
        for metric in request.metrics[: request.numMetrics]:
            self.gpm_asked[metric.metricId] += 1
            answer = self.answers.get(f"gpm {metric.metricId} of {of}", {"error": NOT_SUPPORTED})
            failed = isinstance(answer, dict)
            place = next(
                n
                for n in range(request.numMetrics)
                if request.metrics[n].metricId == metric.metricId
            )
            request.metrics[place].nvmlReturn = answer["error"] if failed else 0
            request.metrics[place].value = 0.0 if failed else answer
        return request

    def _nvmlEventSetCreate(self) -> str:
        return "events"

    def _nvmlEventSetFree(self, events: str) -> None:
        assert events == "events"

    def _nvmlDeviceRegisterEvents(self, handle: str, kinds: int, events: str) -> None:
        self.asked[f"nvmlDeviceRegisterEvents({handle})"] += 1

    def _nvmlEventSetWait(self, events: str, milliseconds: int) -> Any:
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        return self.events.pop(0)


def _alive(answer: Any) -> Any:
    """Dictionaries were structures; handles are their names here."""
    if isinstance(answer, list):
        return [_alive(each) for each in answer]
    if isinstance(answer, dict):
        return answer["handle"] if "handle" in answer else SimpleNamespace(**answer)
    return answer


def xid_event(number: int, handle: str = "gpu0", instance: int = 0xFFFFFFFF) -> SimpleNamespace:
    kind = pynvml.nvmlEventTypeXidCriticalError
    return SimpleNamespace(device=handle, eventType=kind, eventData=number, gpuInstanceId=instance)


class FewOwners:
    """Owners as a test says they are."""

    def __init__(self) -> None:
        self.devices: dict[str, Owner] = {}
        self.processes: dict[int, Owner] = {}
        self.told: dict[str, list[Held]] = {}

    def tell(self, source: str, held: Iterable[Held]) -> None:
        self.told[source] = list(held)

    def of(self, device: str) -> Owner:
        return self.devices.get(device, NOBODY)

    def of_process(self, pid: int) -> Owner | None:
        return self.processes.get(pid)
