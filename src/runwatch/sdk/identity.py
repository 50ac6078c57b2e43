"""Who this process is: which run, which rank, which attempt.

A name that the program gives is the run, and an id replaces it.  What schedulers and launchers say
tells which processes were started together; it names the run only where the program gives no name
(decision 0022).  Everything is read from the environment, or from a framework that already knows.
Nothing is imported, no device is touched, no name is looked up on the network.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from types import ModuleType
from typing import Any, Final, NamedTuple

from runwatch.journal.liveness import this_host
from runwatch.record import RunId
from runwatch.record.names import slug as slug
from runwatch.sdk.guard import attempt, tally, text_of
from runwatch.sdk.workload import pod_facts, workload

MAX_DISPLAY: Final = 200

GKE_IDENTIFIER: Final = "GKE_DIAGON_IDENTIFIER"
GKE_METADATA: Final = "GKE_DIAGON_METADATA"

# The first that holds a number wins.  RANK comes before the node's number: torchrun sets both.
_RANK: Final = (
    "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "JAX_PROCESS_ID",
    "NODE_RANK", "GROUP_RANK", "TPU_WORKER_ID", "JOB_COMPLETION_INDEX", "LWS_WORKER_INDEX",
    "RUNWATCH_POD_INDEX",
)  # fmt: skip
_WORLD_SIZE: Final[tuple[str, ...]] = (
    "WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
    "JAX_NUM_PROCESSES", "NNODES", "LWS_GROUP_SIZE",
)  # fmt: skip
_LOCAL_RANK: Final = (
    "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
)  # fmt: skip
_TRAINS: Final = ("chief", "master", "worker")
"""The tasks of TensorFlow that train."""
_RAY_WORKER: Final = "ray.train.v2._internal.execution.context"


class Identity(NamedTuple):
    run: RunId
    name: str
    """For people: any text, cleaned."""
    rank: int
    local_rank: int
    world_size: int
    attempt_key: str
    orchestrator: str
    """Who started the process: GKE, SLURM or NONE.  CUSTOM: the id was given."""


def identify(
    name: object,
    *,
    run_id: str | None = None,
    environment: Mapping[str, str] = os.environ,
    modules: Mapping[str, ModuleType] = sys.modules,
) -> Identity:
    """Without a name (None), the run is called as $RUNWATCH_NAME, the job or the script is."""
    called = text_of(default_name(environment) if name is None else name)
    chosen = run_id or environment.get("RUNWATCH_RUN_ID")
    framework = attempt("ask the framework for the rank", None, lambda: _framework_rank(modules))
    rank, world_size = framework or _environment_rank(environment)
    local = _number(environment, _LOCAL_RANK)
    return Identity(
        slug(text_of(chosen) if chosen else called),
        display_name(called),
        rank,
        0 if local is None else local,
        world_size,
        attempt_key(environment),
        "CUSTOM" if chosen else _orchestrator(environment),
    )


def _orchestrator(environment: Mapping[str, str]) -> str:
    if environment.get(GKE_IDENTIFIER):
        return "GKE"
    return "SLURM" if environment.get("SLURM_JOB_ID") else "NONE"


def display_name(name: object) -> str:
    original = text_of(name)
    shown = "".join(c if c.isprintable() else " " for c in original[: 10 * MAX_DISPLAY]).strip()
    shown = shown.encode("utf-8", "replace").decode()[:MAX_DISPLAY] or "run"
    if shown != original:
        tally.count("run name", f"the run's name was cleaned for display: {shown!r}")
    return shown


# ── names ─────────────────────────────────────────────────────────────────────────────────────


def default_name(environment: Mapping[str, str] = os.environ) -> str:
    """The name of a run whose program gives none."""
    given = environment.get("RUNWATCH_NAME", "").strip()
    return given or scheduled_name(environment) or script_name()


def script_name() -> str:
    script = os.path.basename(sys.argv[0]) if sys.argv else ""
    return os.path.splitext(text_of(script))[0].lstrip("-") or "run"


def scheduled_name(environment: Mapping[str, str]) -> str:
    """What the scheduler or the launcher calls the job; "" if none says so.

    In a watched pod with the namespace before it: two teams may call their jobs the same.
    """
    found = next((found for name in _NAMES if (found := name(environment).strip())), "")
    namespace = pod_facts(environment).get("pod_namespace", "") if workload(environment).uid else ""
    return f"{namespace}/{found}" if found and namespace else found


def _slurm_name(environment: Mapping[str, str]) -> str:
    job = environment.get("SLURM_ARRAY_JOB_ID") or environment.get("SLURM_JOB_ID", "")
    name = environment.get("SLURM_JOB_NAME", "").strip() or f"slurm-{job}"
    if not job or name in _INTERACTIVE:
        return ""
    task = environment.get("SLURM_ARRAY_TASK_ID", "")  # each task is an experiment of its own
    return f"{name}-{task}" if task else name


def _jobset_name(environment: Mapping[str, str]) -> str:
    return environment.get("JOBSET_NAME", "")


def _lws_name(environment: Mapping[str, str]) -> str:
    """The group's leader, like `llama-0`: each group is a job of its own."""
    return environment.get("LWS_LEADER_ADDRESS", "").split(".")[0]


def _workload_name(environment: Mapping[str, str]) -> str:
    if not environment.get(GKE_IDENTIFIER):
        return ""
    name = _json(environment, GKE_IDENTIFIER).get("metadata.name")
    return name if isinstance(name, str) else ""


def _labelled_name(environment: Mapping[str, str]) -> str:
    return workload(environment).name


def _kubeflow_name(environment: Mapping[str, str]) -> str:
    master = environment.get("PET_MASTER_ADDR") or environment.get("MASTER_ADDR", "")
    found = re.fullmatch(r"(.+?)-(?:master-0|node-0-0)(?:\..*)?", master)
    return found[1] if found else ""


def _ray_name(environment: Mapping[str, str]) -> str:
    submitted = environment.get("RAY_JOB_SUBMISSION_ID", "")
    if submitted and not submitted.startswith("raysubmit_"):
        return submitted
    job = environment.get("RAY_JOB_ID", "")
    return environment.get("RAY_CLUSTER_NAME") or (f"ray-{job}" if job else "")


def _torchrun_name(environment: Mapping[str, str]) -> str:
    id = _torchrun_id(environment)
    if not id or _is_uuid(id):
        return ""
    return f"torchrun-{id}" if id.isdigit() else id


_NAMES: Final = (
    _slurm_name, _jobset_name, _lws_name, _workload_name, _kubeflow_name, _ray_name, _torchrun_name,
    _labelled_name,
)  # fmt: skip

# The names of interactive jobs: several programs may run in one, and the scripts have names.
_INTERACTIVE: Final = ("interactive", "bash", "sh", "zsh", "fish", "tcsh", "csh", "wrap", "python")


# ── attempts ──────────────────────────────────────────────────────────────────────────────────


def attempt_key(environment: Mapping[str, str]) -> str:
    """The same for processes that were started together; after a restart it may be the same.

    "" where nothing is said of it.
    """
    if key := environment.get("RUNWATCH_ATTEMPT"):
        return key[:MAX_DISPLAY]
    return next((found for key_of in _KEYS if (found := key_of(environment))), "")[:MAX_DISPLAY]


def _slurm_key(environment: Mapping[str, str]) -> str:
    job, step = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    if not job:
        return ""
    key = f"slurm-{job}.{environment.get('SLURM_RESTART_COUNT', '0')}"
    return f"{key}/{step}" if step else key  # each `srun` is a step


def _torchrun_key(environment: Mapping[str, str]) -> str:
    id = _torchrun_id(environment)
    return f"torchrun-{id}.{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}" if id else ""


def _jobset_key(environment: Mapping[str, str]) -> str:
    restart, name = environment.get("JOBSET_RESTART_ATTEMPT"), environment.get("JOBSET_NAME")
    if not restart:
        return ""
    return f"jobset-{name}.{restart}" if name else f"jobset-{restart}"


def _lws_key(environment: Mapping[str, str]) -> str:
    leader = environment.get("LWS_LEADER_ADDRESS")
    return f"lws-{leader}" if leader else ""


def _mpi_key(environment: Mapping[str, str]) -> str:
    job = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid")
    return f"mpi-{job}" if job else ""


def _ray_key(environment: Mapping[str, str]) -> str:
    job, cluster = environment.get("RAY_JOB_ID"), environment.get("RAY_CLUSTER_NAME")
    return f"ray-{cluster}/{job}" if cluster and job else f"ray-{job}" if job else ""


def _workload_key(environment: Mapping[str, str]) -> str:
    """A workload that is made again under its name is another; one whose pods are made again is
    not, and its ranks that come again tell the attempts apart."""
    whose = workload(environment)
    return f"workload-{whose.name}/{whose.uid}" if whose.uid else ""


def _address_key(environment: Mapping[str, str]) -> str:
    """Where the ranks of a torch job meet: two jobs at once cannot have the same place."""
    address, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if not address or not port or not environment.get("RANK"):
        return ""
    if address in ("localhost", "::1") or address.startswith("127."):
        address = this_host(environment)
    return f"master-{address}:{port}"


_KEYS: Final = (
    _slurm_key, _torchrun_key, _jobset_key, _lws_key, _mpi_key, _ray_key, _address_key,
    _workload_key,
)  # fmt: skip


def _torchrun_id(environment: Mapping[str, str]) -> str:
    """ "" for `none`, which is what torchrun says of a job that has no id."""
    id = environment.get("TORCHELASTIC_RUN_ID", "").strip()
    return "" if id == "none" else id


# ── the queue ─────────────────────────────────────────────────────────────────────────────────


def queued_at_ns(environment: Mapping[str, str] = os.environ) -> int | None:
    """When the job was submitted; None if nothing says so.

    `RUNWATCH_QUEUED_AT` is for scripts that submit jobs (seconds since the epoch, or RFC 3339).  On
    GKE it is when the workload was created.  Slurm tells a job when it started, not when it was
    submitted.
    """
    if moment := environment.get("RUNWATCH_QUEUED_AT", "").strip():
        return _moment_ns(moment)
    if not environment.get(GKE_IDENTIFIER):
        return None
    metadata = _json(environment, GKE_METADATA)
    created = metadata.get("creation-timestamp") or metadata.get("timestamp")
    return _moment_ns(created) if isinstance(created, str) else None


def _moment_ns(moment: str) -> int | None:
    try:
        if re.fullmatch(r"[0-9]{1,11}(\.[0-9]+)?", moment):
            return round(float(moment) * 1_000_000) * 1_000
        time = datetime.fromisoformat(moment)
        if time.tzinfo is None:
            raise ValueError("it has no offset, like Z or +02:00")
        return round(time.timestamp() * 1_000_000) * 1_000
    except (ValueError, OverflowError) as error:
        tally.count("queue time", f"cannot read the queue time {moment[:80]!r}: {error}")
        return None


# ── rank ──────────────────────────────────────────────────────────────────────────────────────


def _framework_rank(modules: Mapping[str, ModuleType]) -> tuple[int, int] | None:
    """The rank from an initialised torch.distributed, JAX or Ray Train, without waking a device."""
    distributed: Any = modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    state: Any = getattr(modules.get("jax._src.distributed"), "global_state", None)
    if state is not None and getattr(state, "client", None) is not None:
        return int(state.process_id), int(state.num_processes)
    worker: Any = getattr(modules.get(_RAY_WORKER), "_train_context", None)
    if worker is not None:
        return int(worker.get_world_rank()), int(worker.get_world_size())
    return None


def _environment_rank(environment: Mapping[str, str]) -> tuple[int, int]:
    given = _number(environment, _RANK)
    if given is None and (tensorflow := _tensorflow_rank(environment)) is not None:
        return tensorflow
    rank = given or 0
    sizes = _WORLD_SIZE
    if not environment.get("SLURM_PROCID"):  # an allocation for so many tasks, and not one of them
        sizes = tuple(name for name in sizes if name != "SLURM_NTASKS")
    return rank, max(_number(environment, sizes) or 1, rank + 1)


def _tensorflow_rank(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """TF_CONFIG lists the processes of a job by what they do.  The chief comes before the workers;
    parameter servers and evaluators are no ranks."""
    config = _json(environment, "TF_CONFIG")
    cluster, task = config.get("cluster"), config.get("task")
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        return None
    trains = {name: many for name, many in cluster.items() if name in _TRAINS}
    index, kind = task.get("index"), task.get("type")
    if not isinstance(kind, str) or kind not in trains or type(index) is not int or index < 0:
        return None
    sizes = {
        name: len(many) if isinstance(many, list | dict) else 0 for name, many in trains.items()
    }
    before = 0 if kind != "worker" else sum(n for name, n in sizes.items() if name != "worker")
    return before + index, max(sum(sizes.values()), before + index + 1)


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = environment.get(name, "").strip()
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None


# ── small readers ─────────────────────────────────────────────────────────────────────────────


def _is_uuid(value: str) -> bool:
    return re.fullmatch(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}", value) is not None


def _json(environment: Mapping[str, str], variable: str) -> Mapping[str, Any]:
    """Empty for what is no JSON object: only `compat.mldiagnostics` insists on one."""
    try:
        value = json.loads(environment.get(variable, ""))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
