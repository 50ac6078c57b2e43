"""XID errors: the driver reports them when something goes wrong on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from runwatch.agent.collectors.base import Notice
from runwatch.agent.collectors.gpus import Gpu, Gpus, address, text
from runwatch.clock import Clock, system_clock
from runwatch.record.node import GpuXid

MEANINGS: Final = {
    13: "a kernel did something illegal (out of bounds, say); mostly the program's fault",
    31: "a program touched GPU memory that is not mapped; mostly the program's fault",
    43: "the GPU stopped working for one program, which was reset; mostly the program's fault",
    45: "a program's work was removed, after an earlier error or because it was ended",
    48: "two bits of GPU memory were wrong at once: data was lost",
    63: "a damaged row of GPU memory was noted for replacement; takes effect at the next reset",
    64: "a damaged row of GPU memory could not be noted for replacement: the board wants service",
    74: "an NVLink connection failed",
    79: "the GPU has fallen off the bus: power, heat or hardware; it is gone until a reset",
    92: "single-bit errors of GPU memory come unusually often",
    94: "a memory error hit one program only, which ends; the others go on",
    95: "a memory error may have hit every program on the GPU, which must be reset",
    119: "the GPU's own processor (GSP) did not answer; the GPU may need a reset",
}
WAIT_SECONDS: Final = 0.9
QUIET_SECONDS: Final = 60.0
"""The same error of the same GPU is recorded again after this time, with its count."""
MOST_AT_ONCE: Final = 100
_ALL_INSTANCES: Final = 0xFFFFFFFF


def meaning(xid: int) -> str:
    return MEANINGS.get(xid, "not one we have words for; see NVIDIA's list of XID errors")


class XidCollector:
    """Waits most of each second for the driver to report an error."""

    name = "nvml_events"
    period_seconds = 1.0

    def __init__(
        self, gpus: Gpus, *, wait_seconds: float = WAIT_SECONDS, clock: Clock = system_clock
    ) -> None:
        self._gpus = gpus.use()
        self._wait_ms = int(wait_seconds * 1000)
        self._clock = clock
        self._set: Any = None
        self._registered: tuple[int, frozenset[str]] | None = None
        self._by_handle: dict[object, Gpu] = {}
        self._recorded: dict[tuple[str, int], tuple[int | None, int]] = {}
        """(device, xid) -> when it was last recorded, and how often it came since."""

    def collect(self) -> Iterator[Notice]:
        with self._gpus.in_a_wait:
            if self._registered is None:
                self._register()
            came = list(self._came()) if self._set is not None else []
            notices = [notice for data in came for notice in self._notices(data)]
            # Only now: the last error of a GPU may be that it is lost.
            self._register()
        yield from notices

    def _came(self) -> Iterator[Any]:
        library, wait_ms = self._gpus.library, self._wait_ms
        for _ in range(MOST_AT_ONCE):
            try:
                data = library.nvmlEventSetWait(self._set, wait_ms)
            except library.NVMLError:
                return  # mostly the end of the wait
            wait_ms = 1  # events that came together are there already
            if data.eventType & library.nvmlEventTypeXidCriticalError:
                yield data

    def close(self) -> None:
        self._free()
        self._gpus.release()

    def _register(self) -> None:
        """Make a new set when GPUs came or went: a GPU cannot be taken out of a set."""
        gpus = [gpu for gpu in self._gpus.all if gpu.parent is None and not gpu.lost]
        wanted = (self._gpus.generation, frozenset(gpu.uuid for gpu in gpus))
        if wanted == self._registered:
            return
        self._free()
        self._registered = wanted
        events = self._set = self._gpus.library.nvmlEventSetCreate()
        able = [gpu for gpu in gpus if self._is_registered(gpu, events)]
        self._by_handle = {address(gpu.handle): gpu for gpu in able}
        if not able:
            self._free()  # a wait on an empty set would return at once

    def _is_registered(self, gpu: Gpu, events: Any) -> bool:
        library = self._gpus.library
        kind = library.nvmlEventTypeXidCriticalError
        try:
            if not library.nvmlDeviceGetSupportedEventTypes(gpu.handle) & kind:
                return False
            library.nvmlDeviceRegisterEvents(gpu.handle, kind, events)
        except library.NVMLError:
            return False
        return True

    def _free(self) -> None:
        events, self._set = self._set, None
        if events is not None:
            try:
                self._gpus.library.nvmlEventSetFree(events)
            except self._gpus.library.NVMLError:
                return  # the library was closed, and the set with it

    def _notices(self, data: Any) -> Iterator[Notice]:
        gpu, xid = self._of(data.device), int(data.eventData)
        device = "" if gpu is None else gpu.device
        now = self._clock.mono_ns()
        last, since = self._recorded.get((device, xid), (None, 0))
        if last is not None and now - last < QUIET_SECONDS * 1e9:
            self._recorded[device, xid] = last, since + 1
            return
        self._recorded[device, xid] = now, 0
        instance = getattr(data, "gpuInstanceId", _ALL_INSTANCES)
        error = GpuXid(
            **({"device": ""} if gpu is None else gpu.about),
            xid=xid,
            meaning=meaning(xid),
            since_the_last=since or None,
            gpu_instance=None if instance == _ALL_INSTANCES else instance,
        )
        yield Notice(device, error)

    def _of(self, handle: Any) -> Gpu | None:
        known = self._by_handle.get(address(handle))
        if known is not None:
            return known  # a lost GPU no longer tells its uuid
        try:
            uuid = text(self._gpus.library.nvmlDeviceGetUUID(handle))
        except self._gpus.library.NVMLError:
            return None
        return next((gpu for gpu in self._gpus.all if gpu.uuid == uuid), None)
