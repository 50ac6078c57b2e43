"""Serve a model with vLLM as a run; flags that are not listed below go to `vllm` unchanged.

The run ends as vLLM ends; its profiles go where the run's profiles are.

example:
  python -m runwatch.compat.mldiagnostics.commands.run_vllm \\
      --mlrun_name chat --mlrun_gcs_path /data/profiles serve MODEL
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, Final

from runwatch.compat.commands import exit_code
from runwatch.errors import UsageError

logger = logging.getLogger("google_cloud_mldiagnostics.commands.run_vllm")

GRACE_SECONDS: Final = 15.0
DIRECTORIES: Final = ("PHASED_PROFILING_DIR", "VLLM_TORCH_PROFILER_DIR")
CONFIG: Final = "--profiler-config"
CONFIG_DIRECTORY: Final = f"{CONFIG}.torch_profiler_dir"


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        "run_vllm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )  # fmt: skip
    flags.add_argument("--mlrun_name", required=True, help="the run's name")
    flags.add_argument("--mlrun_gcs_path", required=True, help="where its profiles go: any URL")
    flags.add_argument("--project")
    flags.add_argument("--region", default="us-central1", help="(default: %(default)s)")
    flags.add_argument("--jax_profiler_port", type=int, default=9999, help="(default: %(default)s)")
    flags.add_argument("--run_group", default="")
    flags.add_argument("--configs", default="", help="JSON: what the run was configured with")
    flags.add_argument(
        "--framework", choices=("pytorch", "jax"),
        help="(default: $MLRUN_FRAMEWORK or pytorch)",
    )  # fmt: skip
    flags.add_argument("--phased_profiling_dir", help="(default: $PHASED_PROFILING_DIR)")
    return flags


def main(args: Sequence[str] | None = None) -> int:
    arguments, rest = parser().parse_known_args(args)
    return exit_code("run_vllm", lambda: _serve(arguments, rest))


def _serve(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    run = _begin(arguments)
    words = ["vllm", *rewritten(rest, run.name)]
    # Before there is a child: a signal that comes between the two must not be lost.
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    try:
        child = subprocess.Popen(words, env=environment(arguments, run.name))
    except FileNotFoundError:
        run.finish(status="failed", reason="vllm is not installed")
        raise UsageError("vllm is not on the PATH: pip install vllm") from None
    code = _ended(child, asked)
    if code == 0 and not asked:
        run.finish()
    else:
        run.finish(status="failed", reason=f"vllm ended with {code}")
    return code


def _begin(arguments: argparse.Namespace) -> Any:
    from runwatch.compat.mldiagnostics.api.mlrun import machinelearning_run
    from runwatch.compat.mldiagnostics.custom_types.mlrun_types import Framework, ServingEngine

    framework = arguments.framework or os.environ.get("MLRUN_FRAMEWORK") or "pytorch"
    if framework.lower() not in ("pytorch", "jax"):
        raise UsageError(f"MLRUN_FRAMEWORK={framework!r}: pytorch or jax")
    configs = _configs(arguments.configs)
    try:
        return machinelearning_run(
            name=arguments.mlrun_name,
            run_group=arguments.run_group,
            configs=configs,
            gcs_path=arguments.mlrun_gcs_path,
            project=arguments.project,
            region=arguments.region,
            framework=Framework[framework.upper()],
            serving_engine=ServingEngine.VLLM,
        )
    except ValueError as error:  # what the run refuses: a region, a name
        raise UsageError(str(error)) from error


def _configs(text: str) -> dict[str, Any]:
    try:
        configs = json.loads(text or "{}")
    except ValueError as error:
        raise UsageError(f"--configs is not JSON: {error}") from None
    if not isinstance(configs, dict):
        raise UsageError('--configs is not a JSON object: {"name": value, …}')
    return configs


# ── what the child is told ─────────────────────────────────────────────────────────────────────


def environment(
    arguments: argparse.Namespace, run: str, ours: Mapping[str, str] = os.environ
) -> dict[str, str]:
    variables = dict(ours) | {
        "USE_JAX_PROFILER_SERVER": "True",
        "JAX_PROFILER_SERVER_PORT": str(arguments.jax_profiler_port),
    }
    if arguments.phased_profiling_dir:
        variables["PHASED_PROFILING_DIR"] = arguments.phased_profiling_dir
    for name in DIRECTORIES:
        if variables.get(name):
            variables[name] = profile_folder(variables[name], run)
    return variables


def profile_folder(base: str, run: str) -> str:
    return f"{base.rstrip('/')}/{run}/plugins/profile/"


def rewritten(words: Sequence[str], run: str) -> list[str]:
    """vLLM's own flags for where profiles go, pointed at the run's folder."""
    new_words: list[str] = []
    flag = ""
    for word in words:
        name, separator, value = word.partition("=")
        if flag:
            new_words.append(_pointed(flag, word, run))
            flag = ""
        elif name in (CONFIG, CONFIG_DIRECTORY) and separator:
            new_words.append(f"{name}={_pointed(name, value, run)}")
        else:
            new_words.append(word)
            flag = word if word in (CONFIG, CONFIG_DIRECTORY) else ""
    return new_words


def _pointed(flag: str, value: str, run: str) -> str:
    if flag == CONFIG_DIRECTORY:
        return profile_folder(value, run)
    try:
        config = json.loads(value)
    except ValueError:
        return value  # vLLM's to complain about
    if isinstance(config, dict) and config.get("torch_profiler_dir"):
        config["torch_profiler_dir"] = profile_folder(str(config["torch_profiler_dir"]), run)
        return json.dumps(config)
    return value


# ── its end ────────────────────────────────────────────────────────────────────────────────────


def _ended(child: subprocess.Popen[bytes], asked: list[int]) -> int:
    """As a shell gives it: 128 + the signal that ended it."""

    def end(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        child.terminate()
        if signal.getitimer(signal.ITIMER_REAL)[0] == 0:
            signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)

    signal.signal(signal.SIGALRM, lambda *_: child.kill())
    signal.signal(signal.SIGTERM, end)
    if asked:
        end(signal.SIGTERM, None)
    while True:
        try:
            code = child.wait()
            break
        except KeyboardInterrupt:
            continue  # the terminal told the child as well
    signal.setitimer(signal.ITIMER_REAL, 0)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
