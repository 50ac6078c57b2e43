"""`machinelearning_run`: a run as programs for google-cloud-mldiagnostics begin one.

Same names, same checks, same attributes; underneath it is a `Run` like any other, so `log`,
`steps` and `finish` work on it, and nothing waits for a network.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from runwatch.clock import system_clock
from runwatch.compat.mldiagnostics.core.run_ids import identify_workload
from runwatch.compat.mldiagnostics.custom_types.exceptions import MLRunConfigurationError
from runwatch.compat.mldiagnostics.custom_types.metric_types import SYSTEM_METRICS
from runwatch.compat.mldiagnostics.custom_types.mlrun_types import (
    AcceleratorOrchestrator,
    ApplicationFramework,
    Framework,
    MLRun,
    Orchestrator,
    RlOrchestrator,
    RunPhase,
    ServingEngine,
)
from runwatch.compat.mldiagnostics.custom_types.regions import is_region, validate_region
from runwatch.journal.liveness import this_host
from runwatch.sdk import collect
from runwatch.sdk.front import begin, taken_over, told_again
from runwatch.sdk.guard import attempt, guarded, tally, text_of
from runwatch.sdk.identity import Identity
from runwatch.sdk.run import Run
from runwatch.sdk.values.config import ConfigDict
from runwatch.sdk.values.plain import config_values

logger = logging.getLogger("google_cloud_mldiagnostics.api.mlrun")
_manager_logger = logging.getLogger("google_cloud_mldiagnostics.core.global_manager")
"""The original tells there what it knows of a run."""

E = TypeVar("E", bound=Enum)
P = ParamSpec("P")
R = TypeVar("R")

ENVIRONMENTS: Final = ("autopush", "staging", "prod")
DEFAULT_REGION: Final = "us-central1"
OLDER_ORDER: Final = (
    "name", "run_group", "configs", "gcs_path", "project", "region", "metrics_record_interval_sec",
    "on_demand_xprof", "environment",
)  # fmt: skip
"""The places of the arguments in 1.0.0."""
_GROUPS: Final = ("softwareConfigs", "hardwareConfigs", "userConfigs")
_PHASES: Final = {"running": RunPhase.PHASE_ACTIVE, "completed": RunPhase.PHASE_COMPLETED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `machinelearning_run` was given, checked."""

    run_group: str
    gcs_path: str | None
    base_url: str | None
    cluster_id: str | None
    project: str | None
    region: str
    metrics_record_interval_sec: float
    on_demand_xprof: bool
    log_system_metrics: bool
    environment: str
    framework: Framework
    serving_engine: ServingEngine
    run_workload_id: str | None
    metric_only_run: bool
    metrics_exporter_config: Mapping[str, Any] | None
    accelerator_orchestrator: AcceleratorOrchestrator
    application_framework: ApplicationFramework
    rl_orchestrator: RlOrchestrator


class LiveRun(Run, MLRun):
    """`name` is the run's id here, `display_name` what the user called it."""

    configs: ConfigDict
    name: str
    __eq__ = object.__eq__
    __hash__ = object.__hash__
    __repr__ = Run.__repr__

    def __init__(self, identity: Identity, options: Options) -> None:
        Run.__init__(self, identity, group=options.run_group)
        self._become(identity, options)

    @classmethod
    def of(cls, run: Run, options: Options, config: Mapping[str, Any]) -> LiveRun:
        """The run that something else began under this name, as the object that is expected."""
        mine = taken_over(run, cls)
        mine._become(mine._identity, options)
        mine._begin_again(config)
        return mine

    def _become(self, identity: Identity, options: Options) -> None:
        environment = os.environ
        self.name = identity.run
        self.display_name = identity.name
        self.ml_run_id = identity.run
        self.run_group = options.run_group
        self.configs = ConfigDict()
        self.gcs_path = options.gcs_path
        self.location = options.region
        self.project = options.project or environment.get("GOOGLE_CLOUD_PROJECT", "")
        created = datetime.fromtimestamp(system_clock.wall_ns() / 1e9, UTC)
        self.created_at = created.isoformat()
        self.orchestrator = Orchestrator(identity.orchestrator)
        self.on_demand_xprof = options.on_demand_xprof
        self.log_system_metrics = options.log_system_metrics
        self.metric_only_run = options.metric_only_run
        self.environment = options.environment
        self.framework = options.framework
        self.serving_engine = options.serving_engine
        self.metrics_exporter_config = options.metrics_exporter_config
        self.accelerator_orchestrator = options.accelerator_orchestrator
        self.application_framework = options.application_framework
        self.rl_orchestrator = options.rl_orchestrator
        self.control_plane_url = options.base_url or environment.get("DIAGON_BASE_URL")
        self.cluster_id = options.cluster_id or environment.get("DIAGON_CLUSTER_ID")
        self.workload_id = (
            options.run_workload_id
            or environment.get("RUN_WORKLOAD_ID")
            or environment.get("DIAGON_WORKLOAD_ID")
            or environment.get("WORKLOAD_ID")
            or identity.name
        )
        self.namespace = environment.get("POD_NAMESPACE", "default")
        self.workload_details = self._workload(environment)
        self.workload_targets = [
            {"display_name": this_host(), "hostname": this_host(), "state": "RUNNING"}
        ]

    @property
    def run_phase(self) -> RunPhase:  # type: ignore[override]
        return _PHASES.get(self.status, RunPhase.PHASE_FAILED)

    @property
    def _profile_path(self) -> str | None:
        return self.gcs_path

    def _why_no_profile(self) -> str:
        return "the run was begun with metric_only_run=True" if self.metric_only_run else ""

    def _records(self, name: str, *, quiet: bool = False) -> bool:
        if self.log_system_metrics or name not in SYSTEM_METRICS:
            return True
        if not quiet:
            tally.count(
                "system metric",
                f"{name} is a system metric: recorded only with log_system_metrics=True",
            )
        return False

    @guarded("start a run")
    def _start(self, config: Mapping[str, Any]) -> None:
        self._group_configs(config)
        super()._start(config)
        self._serve()

    @guarded("take a run over")
    def _begin_again(self, config: Mapping[str, Any]) -> None:
        self._group_configs({**self.config, **config})
        told_again(self, self.run_group)
        self._serve()

    def _group_configs(self, config: Mapping[str, Any]) -> None:
        users = {text_of(key): text_of(value) for key, value in config.items()}
        groups = (self._software(), self._hardware(), users)
        dict.update(self.configs, zip(_GROUPS, groups, strict=True))
        self.configs._listen(self._take_configs)

    def _serve(self) -> None:
        if self.on_demand_xprof and not self.metric_only_run:
            from runwatch.compat.mldiagnostics.core.xprof import serve

            serve(self)

    def _details(self) -> dict[str, Any]:
        return {
            "gcs_path": self.gcs_path,
            "project": self.project,
            "region": self.location,
            "environment": self.environment,
            "cluster_id": self.cluster_id,
            "workload_id": self.workload_id,
            "namespace": self.namespace,
            "workload_details": self.workload_details,
            "software": self.configs.get("softwareConfigs"),
            "hardware": self.configs.get("hardwareConfigs"),
            "metric_only_run": self.metric_only_run,
            "application_framework": self.application_framework.value,
            "rl_orchestrator": self.rl_orchestrator.value,
            "serving_engine": self.serving_engine.value,
        }

    @guarded("record the config")
    def _take_configs(self) -> None:
        """Whatever is put beside the three groups is the user's."""
        dict.update(self.config, {k: v for k, v in self.configs.items() if k not in _GROUPS})
        self._record_config()

    def _software(self) -> dict[str, str]:
        module = "torch" if self.framework is Framework.PYTORCH else "jax"
        software = {
            "framework": self.framework.value,
            "framework_version": _version(module),
            "xla_flags": os.environ.get("XLA_FLAGS") or "default",
            "libtpu_version": _version("libtpu"),
        }
        if self.accelerator_orchestrator is not AcceleratorOrchestrator.NONE:
            software["accelerator_orchestrator"] = self.accelerator_orchestrator.value
        return software

    @staticmethod
    def _hardware() -> dict[str, str]:
        """What can be known without waking a device."""
        names = [*collect.gpus()]
        tpu = os.environ.get("TPU_ACCELERATOR_TYPE") or os.environ.get("TPU_TYPE")
        kind = tpu or (names[0] if names else "unknown")
        slices = next(
            (v for n in ("TPU_NUM_SLICES", "NUM_SLICES", "SLICE_COUNT") if (v := os.getenv(n))), "1"
        )
        return {
            "device_type": kind,
            "num_slices": slices,
            "devices_per_slice": str(len(names)) if names else "unknown",
            "accelerator_type": "tpu" if tpu else "gpu" if names else "unknown",
        }

    def _workload(self, environment: Mapping[str, str]) -> dict[str, Any]:
        if self.orchestrator is Orchestrator.SLURM:
            return {
                "slurm": {
                    "jobId": environment.get("SLURM_JOB_ID", ""),
                    "cluster": environment.get("SLURM_CLUSTER_NAME", "slurm"),
                    "displayName": environment.get("SLURM_JOB_NAME", ""),
                }
            }
        if self.orchestrator is Orchestrator.GKE:
            return {"gke": {"identifier": environment.get("GKE_DIAGON_IDENTIFIER", "")}}
        return {"custom": {"id": self.workload_id, "display_name": self.display_name}}


def in_either_order(function: Callable[P, R]) -> Callable[P, R]:
    """Calls with the places of 1.0.0 mean what they meant there."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if is_older_order(args, kwargs):
            kwargs.update(zip(OLDER_ORDER, args, strict=False))
            args = ()  # type: ignore[assignment]
        return function(*args, **kwargs)

    return call


def is_older_order(args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    """1.0.10 put `base_url` and `cluster_id` before `project` and `region`.

    The seventh is a number only in 1.0.0 (the interval; since then the project).  With fewer, the
    fifth is a project if it is no URL, and the sixth a region if it reads like one.
    """
    if not 5 <= len(args) <= len(OLDER_ORDER) or {*OLDER_ORDER[4 : len(args)]} & {*kwargs}:
        return False
    if len(args) >= 7:
        return isinstance(args[6], (int, float))
    if args[4] is None:
        return is_region(args[-1])
    return isinstance(args[4], str) and "://" not in args[4]


@in_either_order
def machinelearning_run(
    name: str,
    run_group: str = "",
    configs: Mapping[str, Any] | None = None,
    gcs_path: str | None = None,
    base_url: str | None = None,
    cluster_id: str | None = None,
    project: str | None = None,
    region: str | None = DEFAULT_REGION,
    metrics_record_interval_sec: float = 10.0,
    on_demand_xprof: bool = False,
    log_system_metrics: bool = False,
    environment: str = "prod",
    framework: Framework = Framework.JAX,
    serving_engine: ServingEngine = ServingEngine.NONE,
    run_workload_id: str | None = None,
    metric_only_run: bool = False,
    metrics_exporter_config: Mapping[str, Any] | None = None,
    accelerator_orchestrator: AcceleratorOrchestrator = AcceleratorOrchestrator.NONE,
    application_framework: ApplicationFramework | str = ApplicationFramework.NONE,
    rl_orchestrator: RlOrchestrator | str = RlOrchestrator.NONE,
) -> LiveRun:
    """Begin a run.  Wrong arguments raise (`MLRunConfigurationError` is a ValueError); nothing
    else does, and nothing is asked of a network.
    """
    if not isinstance(name, str) or not name:
        raise MLRunConfigurationError(f"a run needs a name, not {name!r}")
    if environment not in ENVIRONMENTS:
        raise MLRunConfigurationError(
            f"environment is one of {', '.join(ENVIRONMENTS)}, not {environment!r}"
        )
    options = Options(
        run_group=run_group or "",
        gcs_path=normal_path(gcs_path),
        base_url=base_url,
        cluster_id=cluster_id,
        project=project,
        region=checked_region(region),
        metrics_record_interval_sec=metrics_record_interval_sec,
        on_demand_xprof=bool(on_demand_xprof),
        log_system_metrics=bool(log_system_metrics),
        environment=environment,
        framework=_member(Framework, framework),
        serving_engine=_member(ServingEngine, serving_engine),
        run_workload_id=run_workload_id,
        metric_only_run=bool(metric_only_run),
        metrics_exporter_config=metrics_exporter_config,
        accelerator_orchestrator=_member(AcceleratorOrchestrator, accelerator_orchestrator),
        application_framework=_member(ApplicationFramework, application_framework),
        rl_orchestrator=_member(RlOrchestrator, rl_orchestrator),
    )
    given = text_of(run_workload_id) if run_workload_id else None
    identity = identify_workload(name, given)
    nothing: dict[str, Any] = {}
    values = attempt("read the configs", nothing, lambda: config_values(configs))
    run = begin(
        identity,
        lambda known: LiveRun(known, options),
        values,
        LiveRun,
        lambda run: LiveRun.of(run, options, values),
    )
    if waiting := sys.modules.get("runwatch.compat.cloud_logging.lines"):
        waiting.deliver(run)  # what was logged before there was a run
    _manager_logger.debug("current run details: %s", run._details())
    return run


def normalize_gcs_path(gcs_path: Any) -> Any:
    """Runs of slashes become one, the last goes; a scheme's own two stay."""
    return normal_path(gcs_path) if gcs_path else gcs_path


def normal_path(path: str | os.PathLike[str] | None) -> str | None:
    """As `normalize_gcs_path`; nothing is None."""
    if path is None or path == "":
        return None
    if not isinstance(path, (str, os.PathLike)):
        raise MLRunConfigurationError(
            f"gcs_path is a path such as 'gs://bucket/folder' or '/data/profiles', not {path!r}"
        )
    path = os.fspath(path)
    scheme, separator, rest = path.rpartition("://")
    clean = re.sub(r"/+", "/", rest).rstrip("/")
    return f"{scheme}{separator}{clean.lstrip('/')}" if separator else clean or "/"


def checked_region(region: str | None) -> str:
    if region is None:
        return DEFAULT_REGION
    validate_region(region)
    return region


def _member(kind: type[E], value: E | str) -> E:
    if isinstance(value, kind):
        return value
    try:
        return kind[str(value).upper()]
    except KeyError:
        names = ", ".join(kind.__members__)
        raise MLRunConfigurationError(f"{kind.__name__} is one of {names}, not {value!r}") from None


def _version(module: str) -> str:
    version = getattr(sys.modules.get(module), "__version__", None)
    return version if isinstance(version, str) else "n/a"
