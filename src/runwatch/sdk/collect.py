"""The software and the machine of a run, found without starting or initialising anything.

A framework counts only if the program has imported it; its version is its `__version__`.  The git
commit is read from .git's files, GPUs from the driver's /proc entries.  No process is started, no
device initialised, no network used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from runwatch._version import __version__
from runwatch.record.life import RunStart
from runwatch.sdk.guard import attempt
from runwatch.sdk.identity import Identity, queued_at_ns
from runwatch.sdk.values import masking
from runwatch.sdk.values.plain import Json, text
from runwatch.sdk.workload import pod_facts

FRAMEWORKS: Final = (
    "torch", "jax", "jaxlib", "flax", "tensorflow", "keras", "lightning", "pytorch_lightning",
    "transformers", "accelerate", "deepspeed", "vllm", "numpy", "libtpu", "torch_xla", "triton",
)  # fmt: skip

_VARIABLES: Final = (
    "XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES", "CUDA_VERSION",
    "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREADS", "TPU_ACCELERATOR_TYPE", "TPU_NAME",
)  # fmt: skip
_USERS: Final = ("RUNWATCH_USER", "SLURM_JOB_USER", "LOGNAME", "USER", "LNAME", "USERNAME")
_PREFIXES: Final = ("NCCL_", "TORCH_NCCL_", "FI_", "UCX_")


def run_start(identity: Identity, group: str) -> RunStart:
    """What a process says of itself when it begins its part in a run."""
    return RunStart(
        run=identity.run,
        name=identity.name,
        group=group,
        rank=identity.rank,
        local_rank=identity.local_rank,
        world_size=identity.world_size,
        attempt_key=identity.attempt_key,
        orchestrator=identity.orchestrator,
        argv=tuple(masking.command_line(text(word) for word in sys.argv)),
        cwd=text(working_directory()),
        python=sys.version.split()[0],
        executable=text(sys.executable or ""),
        **attempt("find out whose run it is", dict[str, Any](), circumstances),
    )


def imported(modules: Mapping[str, ModuleType] = sys.modules) -> tuple[str, ...]:
    return tuple(name for name in FRAMEWORKS if name in modules)


def software(
    *,
    environment: Mapping[str, str] = os.environ,
    modules: Mapping[str, ModuleType] = sys.modules,
    directory: Path | None = None,
) -> dict[str, Json]:
    versions: dict[str, Json] = {}
    for name in imported(modules):
        version = getattr(modules[name], "__version__", None)
        if isinstance(version, str):
            versions[name] = str.__str__(version)
    variables: dict[str, Json] = {
        key: value
        for key, value in sorted(environment.items())
        if key in _VARIABLES or key.startswith(_PREFIXES)
    }
    facts: dict[str, Json] = {
        "python": sys.version.split()[0],
        "runwatch": __version__,
        "argv": [*sys.argv],
        "versions": versions,
        "environment": variables,
    }
    if (commit := git_commit(directory or Path(working_directory()))) is not None:
        facts["git_commit"] = commit
    return facts


def framework(modules: Mapping[str, ModuleType] = sys.modules) -> tuple[str, str]:
    """The framework that the program trains with, and its version; ("", "") if there is none."""
    for name in ("jax", "torch", "tensorflow"):
        if name in modules:
            return name, str(getattr(modules[name], "__version__", ""))
    return "", ""


def system(*, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "host": os.uname().nodename,
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "cpu_count": os.cpu_count(),
        "cpu_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": _memory(proc),
        "cgroup_memory_limit_bytes": _limit(cgroup),
        "gpus": [*gpus(proc)],
    }
    return {key: value for key, value in facts.items() if value not in (None, [])}


def user(*, environment: Mapping[str, str] = os.environ, passwd: Path = Path("/etc/passwd")) -> str:
    """Whose run it is; "" if nothing says.  Not `getpass`: it would use the network."""
    for name in _USERS:
        if name_of_user := environment.get(name, "").strip():
            return name_of_user
    mine = str(os.getuid())
    for line in _read(passwd).splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == mine:
            return fields[0]
    return ""


def working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return "/"


def gpus(proc: Path = Path("/proc")) -> Iterator[str]:
    try:
        folders = sorted((proc / "driver/nvidia/gpus").iterdir())
    except OSError:
        return
    for folder in folders:
        text = _read(folder / "information")
        models = [x.partition(":")[2].strip() for x in text.splitlines() if x.startswith("Model:")]
        yield models[0] if models else folder.name


def git_commit(directory: Path) -> str | None:
    """The commit checked out around `directory`; None outside a checkout."""
    for folder in (directory, *directory.parents):
        git = folder / ".git"
        if git.is_file():  # a worktree or submodule: the file names the directory
            git = folder / _read(git).removeprefix("gitdir:").strip()
        if git.is_dir():
            return _head(git)
    return None


def _head(git: Path) -> str | None:
    head = _read(git / "HEAD").strip()
    if not head.startswith("ref:"):
        return head or None
    name = head.removeprefix("ref:").strip()
    shared = git / (_read(git / "commondir").strip() or ".")
    for place in (git, shared):
        if commit := _read(place / name).strip():
            return commit
    for line in _read(shared / "packed-refs").splitlines():
        commit, _, ref = line.partition(" ")
        if ref == name:
            return commit
    return None


def _memory(proc: Path) -> int | None:
    for line in _read(proc / "meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None


def _limit(cgroup: Path) -> int | None:
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        text = _read(cgroup / name).strip()
        if text.isdigit() and int(text) < 2**60:  # cgroup v1 writes a huge number for "no limit"
            return int(text)
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def circumstances() -> dict[str, Json]:
    """Whose run it is, where it runs and when it was queued; unknown values are left out."""
    facts: dict[str, Json] = {"user": text(user())[:200], "queued_at_ns": queued_at_ns()}
    facts.update(pod_facts())
    return {name: value for name, value in facts.items() if value}
