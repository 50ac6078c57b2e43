"""`xprof`: profiles as programs for google-cloud-mldiagnostics take them, and the port on which
others may ask such a program for one.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import ClassVar, Final, Self

from runwatch.compat.mldiagnostics.custom_types.exceptions import ProfilingError
from runwatch.compat.mldiagnostics.custom_types.mlrun_types import Framework
from runwatch.sdk.front import current_run
from runwatch.sdk.guard import guarded, tally
from runwatch.sdk.profiling.profiling import ProgramProfile, raised, timestamp
from runwatch.sdk.run import Run
from runwatch.sdk.step import Decorating

logger = logging.getLogger("google_cloud_mldiagnostics.core.xprof")

PORT: Final = 9999
ADDRESS: Final = "127.0.0.1"


class xprof(Decorating):
    """`with xprof():`, `@xprof()`, or `start()` and `stop()`.

    Without `run`, of the run that is current when it is first used.  Ranks that are not in
    `process_index_list` take no profile.  Only a missing run raises (`ProfilingError`).
    """

    def __init__(
        self, run: Run | None = None, process_index_list: Sequence[int] | None = None
    ) -> None:
        self._run = run
        self._process_index_list = process_index_list
        self._profile: ProgramProfile | None = None

    def _ensure_initialized(self) -> None:
        """Find the run.  Programs call it to learn early whether there is one."""
        run = self._run if self._run is not None else current_run()
        if run is None:
            raise ProfilingError("there is no run: call machinelearning_run() or init() first")
        self._check(run)
        self._run = run

    def _check(self, run: Run) -> None:
        """Whether the run can be profiled; raises ProfilingError."""

    def start(self, session_id: str | None = None) -> None:
        """Record from now on.  Without effect, and warned about, while a session is on."""
        self._ensure_initialized()
        run = self._run
        if run is None or not self._takes_part(run):
            return
        if self._profile is not None and self._profile.active:
            tally.count("profile again", f"session {self._profile.session} is on already")
            return
        name = timestamp(run._clock.wall_ns()) if session_id is None else session_id
        self._profile = run.profile(session=name).start()

    def _takes_part(self, run: Run) -> bool:
        if getattr(run, "metric_only_run", False):
            return False
        return self._process_index_list is None or run.rank in self._process_index_list

    def stop(self) -> None:
        """End the recording; the files are written beside the program."""
        self._stop("")

    @guarded("stop a profile")
    def _stop(self, failure: str) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.stop(failure)
        elif self._run is None or self._takes_part(self._run):
            tally.count("profile idle", "no profile is being taken: there is nothing to stop")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._profile is not None:
            self._stop(raised(error))

    def again(self) -> Self:
        """A session for each call; calls that overlap share the first one's."""
        return type(self)(self._run, self._process_index_list)


class Xprof(xprof):
    """As in the original, a run needs a `gcs_path` for profiles."""

    def _check(self, run: Run) -> None:
        if not getattr(run, "gcs_path", None):
            raise ProfilingError(
                f"run {run.id} has no gcs_path: machinelearning_run(gcs_path=…) says where "
                "profiles go (a directory will do)"
            )


def start_on_demand_xprof(port: int = PORT, address: str | None = None) -> None:
    """Answer `ProfilerService/Profile` on this port of the loopback interface until the current
    run ends.  `address` (or $RUNWATCH_XPROF_ADDRESS) names another interface: whoever reaches it
    can slow the program down and see what it does.
    """
    run = current_run()
    if run is None:
        raise ProfilingError("there is no run: call machinelearning_run() or init() first")
    serve(run, port, address)


@guarded("serve on-demand profiles")
def serve(run: Run, port: int = PORT, address: str | None = None) -> None:
    """Each process of a host has a port of its own: `port` plus its local rank."""
    interface = address or os.environ.get("RUNWATCH_XPROF_ADDRESS") or ADDRESS
    where = f"{interface}:{port + run.local_rank}"
    try:
        run._profiles.serve(where)
    except (OSError, ImportError) as error:
        tally.count("profile port", f"on-demand profiles are not served on {where}: {error}")


@guarded("stop serving on-demand profiles")
def stop_on_demand_xprof() -> None:
    """Close the port; without effect if none is open."""
    run = current_run()
    if run is not None and run._profiler is not None:
        run._profiler.close_port()


# ── the original's engines, one for each framework ────────────────────────────────────────────


class BaseProfilerEngine(ABC):
    @abstractmethod
    def start_trace(self, gcs_dir: str, session_id: str) -> ProgramProfile: ...

    @abstractmethod
    def stop_trace(self, handle: ProgramProfile | None, gcs_dir: str = "") -> None: ...

    @abstractmethod
    def get_trace_context(
        self, gcs_dir: str, session_id: str
    ) -> AbstractContextManager[object]: ...

    @abstractmethod
    def exit_trace_context(
        self,
        trace_context_manager: AbstractContextManager[object],
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None: ...

    @abstractmethod
    def should_report_session(self) -> bool: ...

    @abstractmethod
    def start_server(self, port: int) -> None: ...

    @abstractmethod
    def stop_server(self) -> None: ...


class _Engine(BaseProfilerEngine):
    """Of the current run: a run's profile is one of every framework that the program has."""

    frameworks: ClassVar[tuple[str, ...]]

    def start_trace(self, gcs_dir: str, session_id: str) -> ProgramProfile:
        return self.get_trace_context(gcs_dir, session_id).start()

    def stop_trace(self, handle: ProgramProfile | None, gcs_dir: str = "") -> None:
        if handle is None:
            tally.count("profile idle", "no profile is being taken: there is nothing to stop")
        else:
            handle.stop()

    def get_trace_context(self, gcs_dir: str, session_id: str) -> ProgramProfile:
        run = current_run()
        if run is None:
            raise ProfilingError("there is no run: call machinelearning_run() or init() first")
        return run.profile(session=session_id, path=gcs_dir, frameworks=self.frameworks)

    def exit_trace_context(
        self,
        trace_context_manager: AbstractContextManager[object],
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        trace_context_manager.__exit__(exc_type, exc_val, exc_tb)

    def should_report_session(self) -> bool:
        """Every session is in the run's records."""
        return True

    def start_server(self, port: int) -> None:
        start_on_demand_xprof(port)

    def stop_server(self) -> None:
        stop_on_demand_xprof()


class JaxProfilerEngine(_Engine):
    frameworks = ("jax",)


class PyTorchProfilerEngine(_Engine):
    frameworks = ("torch",)


def get_profiler_engine(framework: Framework) -> BaseProfilerEngine:
    return PyTorchProfilerEngine() if framework is Framework.PYTORCH else JaxProfilerEngine()
