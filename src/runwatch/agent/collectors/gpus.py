"""NVIDIA's library as the NVML collectors see it: which GPUs there are, and asking them.

`Gpus` is the inventory.  A GPU keeps its name as long as the agent runs: after one has fallen off
the bus the driver numbers the others anew, and "gpu3" must not become another board.  Only
`Asking` knows what NVML's errors mean; each collector has its own, since each runs in its own
thread.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from runwatch.agent.collectors.base import Held, Labels, Notice
from runwatch.journal.liveness import PROC
from runwatch.record.node import DeviceAdded, DeviceLost, DeviceNotice, DeviceUnreadable

T = TypeVar("T")

NODES: Final = ("/dev/nvidia0", *(f"/dev/nvidia{n}" for n in range(1, 10)), "/dev/dxg")
VARIABLES: Final = ("CUDA_VISIBLE_DEVICES",)
_PATIENCE_SECONDS: Final = 2.0


@dataclass(slots=True, eq=False)
class Gpu:
    """One GPU, or one MIG device of it."""

    device: str
    index: int
    uuid: str
    name: str
    handle: Any
    labels: Labels
    parent: Gpu | None = None
    instance: int | None = None
    """The MIG GPU instance."""
    lost: bool = False
    measures_pcie: bool | None = None
    """Whether it counts PCIe traffic, so that no slow call is needed; None until known."""

    @property
    def about(self) -> dict[str, str]:
        return {"device": self.device, "uuid": self.uuid, "name": self.name}


@dataclass(slots=True)
class Asking:
    """Puts one question to one GPU; the answer is None if the GPU cannot answer."""

    library: Any
    notices: list[Notice] = field(default_factory=list)
    _absent: set[tuple[str, str]] = field(default_factory=set)
    _reported: set[tuple[str, str]] = field(default_factory=set)

    def ask(self, gpu: Gpu, metric: str, question: Callable[..., T], *arguments: Any) -> T | None:
        if gpu.lost or (gpu.uuid, metric) in self._absent:
            return None
        try:
            return question(*arguments)
        except self.library.NVMLError as error:
            self._failed(gpu, metric, error)
            return None

    def leave_out(self, gpu: Gpu, metric: str) -> None:
        self._absent.add((gpu.uuid, metric))

    def tell_once(self, gpu: Gpu, metric: str, message: DeviceNotice) -> None:
        if (gpu.uuid, metric) not in self._reported:
            self._reported.add((gpu.uuid, metric))
            self.notices.append(Notice(gpu.device, message))

    def take_notices(self) -> list[Notice]:
        taken, self.notices = self.notices, []
        return taken

    def _failed(self, gpu: Gpu, metric: str, error: Any) -> None:
        library, code = self.library, error.value
        if code == library.NVML_ERROR_GPU_IS_LOST:
            self.notices += lose(gpu, str(error))
        elif code in never(library):
            self.leave_out(gpu, metric)
        elif code != library.NVML_ERROR_UNINITIALIZED:  # that one: the inventory is being made anew
            if code == library.NVML_ERROR_NO_PERMISSION:
                self.leave_out(gpu, metric)
            unreadable = DeviceUnreadable(**gpu.about, metric=metric, why=str(error))
            self.tell_once(gpu, metric, unreadable)


def never(library: Any) -> tuple[int, int, int]:
    """Errors that will stay: the GPU or the driver does not have the number."""
    return (
        library.NVML_ERROR_NOT_SUPPORTED,
        library.NVML_ERROR_FUNCTION_NOT_FOUND,
        library.NVML_ERROR_INVALID_ARGUMENT,
    )


_counting = threading.Lock()


def lose(gpu: Gpu, why: str) -> list[Notice]:
    """Mark a GPU as lost.  Only the first thread that notices gets the notice."""
    with _counting:
        was_lost, gpu.lost = gpu.lost, True
    return [] if was_lost else [Notice(gpu.device, DeviceLost(**gpu.about, why=why))]


class Gpus:
    """The inventory.  `all` is replaced as a whole, never changed."""

    def __init__(self, library: Any, *, proc: Path = PROC) -> None:
        """Raises NVMLError when there is no working driver."""
        self.library = library
        self.all: tuple[Gpu, ...] = ()
        self.generation = 0
        """Grows when the library is opened anew: then its old handles are void."""
        self.in_a_wait = threading.Lock()
        """Held by a thread that waits inside the library, which must not be closed meanwhile."""
        self._proc = proc
        self._users = 0
        self._names: dict[str, str] = {}
        self._unreadable: dict[int, str] = {}
        """The driver's number of a GPU -> why it cannot be opened."""
        self._news: list[Notice] = []
        library.nvmlInit()
        self._boards = self._count()
        self.look()

    def use(self) -> Gpus:
        with _counting:
            self._users += 1
        return self

    def release(self) -> None:
        with _counting:
            self._users -= 1
            is_last = not self._users
        if is_last:
            self.library.nvmlShutdown()

    def take_news(self) -> list[Notice]:
        taken, self._news = self._news, []
        return taken

    def look(self) -> None:
        """Learn which GPUs have come and gone since the last look."""
        before = self.generation
        self._open_anew_if_changed()
        known = {gpu.uuid: gpu for gpu in self.all}
        present = {gpu.uuid: gpu for gpu in self._enumerate()}
        if self.generation or known:
            self._news += self._added(known, present)
        for uuid, gpu in known.items():
            if uuid not in present:
                self._news += lose(gpu, self._unreadable.get(gpu.index, "no longer there"))
            elif not gpu.lost and before == self.generation:
                present[uuid] = gpu
        self.all = tuple(present.values())

    def _open_anew_if_changed(self) -> None:
        """The library lists only the GPUs that it saw when it was opened."""
        boards = self._count()
        if boards == self._boards or not self.in_a_wait.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            self.library.nvmlShutdown()
            self.library.nvmlInit()
        finally:
            self.in_a_wait.release()
        self.generation += 1
        self._boards = boards

    def _added(self, known: dict[str, Gpu], present: dict[str, Gpu]) -> Iterator[Notice]:
        for uuid, gpu in present.items():
            before = known.get(uuid)
            if before is None:
                yield Notice(gpu.device, DeviceAdded(**gpu.about))
            elif before.lost:
                if self._answers(gpu):
                    yield Notice(gpu.device, DeviceAdded(**gpu.about))
                else:
                    gpu.lost = True

    def _answers(self, gpu: Gpu) -> bool:
        try:
            self.library.nvmlDeviceGetMemoryInfo(gpu.handle)
        except self.library.NVMLError:
            return False
        return True

    def _count(self) -> object:
        """The boards in the driver's folder, which is cheap; without one, the library's count."""
        try:
            return sorted(os.listdir(self._proc / "driver/nvidia/gpus"))
        except OSError:
            return self.library.nvmlDeviceGetCount()

    def _enumerate(self) -> Iterator[Gpu]:
        for index in range(self.library.nvmlDeviceGetCount()):
            try:
                gpu = self._gpu(index)
            except self.library.NVMLError as error:
                self._cannot_open(index, error)
                continue
            self._unreadable.pop(index, None)
            yield gpu
            yield from self._mig_devices(gpu)

    def _cannot_open(self, index: int, error: Any) -> None:
        is_reported = index in self._unreadable
        self._unreadable[index] = str(error)
        is_lost = error.value == self.library.NVML_ERROR_GPU_IS_LOST
        if is_reported or (is_lost and any(gpu.index == index for gpu in self.all)):
            return  # a GPU that we knew is reported lost by its name
        kind = DeviceLost if is_lost else DeviceUnreadable
        message = kind(f"gpu{index}", metric="device", why=str(error))
        self._news.append(Notice(message.device, message))

    def _gpu(self, index: int) -> Gpu:
        library = self.library
        handle = library.nvmlDeviceGetHandleByIndex(index)
        uuid = text(library.nvmlDeviceGetUUID(handle))
        name = text(library.nvmlDeviceGetName(handle))
        labels = {"uuid": uuid, "name": name, "index": str(index)}
        return Gpu(self._name(uuid, f"gpu{index}"), index, uuid, name, handle, Labels(labels))

    def _name(self, uuid: str, wanted: str) -> str:
        known = self._names.get(uuid)
        if known is None:
            taken, number = set(self._names.values()), 0
            known = wanted
            while known in taken:
                known, number = f"gpu{number}", number + 1
            self._names[uuid] = known
        return known

    def _mig_devices(self, gpu: Gpu) -> Iterator[Gpu]:
        library = self.library
        try:
            if not library.nvmlDeviceGetMigMode(gpu.handle)[0]:
                return
            count = library.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)
        except library.NVMLError:
            return
        for place in range(count):
            try:
                handle = library.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, place)
            except library.NVMLError:
                continue  # MIG devices may leave places empty
            yield self._mig_device(gpu, handle)

    def _mig_device(self, gpu: Gpu, handle: Any) -> Gpu:
        library = self.library
        instance = library.nvmlDeviceGetGpuInstanceId(handle)
        compute = library.nvmlDeviceGetComputeInstanceId(handle)
        uuid = text(library.nvmlDeviceGetUUID(handle))
        labels = {
            "uuid": uuid,
            "name": gpu.name,
            "index": str(gpu.index),
            "mig": f"{instance}.{compute}",
            "parent": gpu.uuid,
        }
        device = f"{gpu.device}.mig{instance}.{compute}"
        return Gpu(device, gpu.index, uuid, gpu.name, handle, Labels(labels), gpu, instance)


def held(gpu: Gpu, pids: frozenset[int] | None) -> Held:
    return Held(gpu.device, gpu.index, gpu.uuid, pids, NODES, VARIABLES)


def address(handle: Any) -> object:
    """A key that is the same for two handles of one GPU."""
    is_pointer = isinstance(handle, ctypes._Pointer)
    return ctypes.cast(handle, ctypes.c_void_p).value if is_pointer else handle


def text(value: Any) -> str:
    """The value as text; older bindings give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
