"""Runs `kubectl`, and says what to do about what it refuses.

It alone reads kubeconfig and logs in.  Its errors go through as it words them, with a way out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from runwatch.errors import NotFound, RunwatchError, UsageError
from runwatch.kube import Thing, parts
from runwatch.terminal import shown

ANSWER_SECONDS: Final = 60.0
_AWAY: Final = (
    "was refused - did you specify",
    "no such host",
    "i/o timeout",
    "context deadline exceeded",
    "TLS handshake timeout",
    "no route to host",
    "network is unreachable",
    "connection refused",
)
_NO_CONTEXT: Final = re.compile(r"context was not found|context .* does not exist")
_NO_CONFIGURATION: Final = (
    "localhost:8080",
    "invalid configuration: no configuration",
    "error: stat ",  # a file that --kubeconfig names
)


class NoCluster(RunwatchError):
    """The API server does not answer, or kubectl does not know which one is meant."""


class Forbidden(RunwatchError):
    pass


class NoKind(NotFound):
    """The cluster does not have such objects."""


class Listed(NamedTuple):
    items: Sequence[Thing]
    why: Sequence[str]
    """The lines in which kubectl refuses some of it."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    binary: str
    options: tuple[str, ...] = ()
    """Which cluster: `--context`, `--kubeconfig`."""
    namespace: str = ""
    """As the user gave it; "": what kubectl has as its own."""

    def get(self, *words: str) -> Mapping[str, Any]:
        """The one object that this names."""
        said = self.text("get", *words, "-o", "json")
        return loaded(said, words)

    def all(self, kinds: Sequence[str], *words: str) -> Listed:
        """Objects of several kinds in one call.  What may not be seen is missing, and `why` says
        so; it raises if nothing at all was answered."""
        asked = ("get", ",".join(kinds), *words)
        done = self.run(*asked, "-o", "json")
        error = refused(done.stderr, asked) if done.returncode else None
        if isinstance(error, NoCluster | UsageError) or (error and not done.stdout.strip()):
            raise error
        items = tuple(parts(loaded(done.stdout, asked).get("items")))
        why = [shown(line) for line in done.stderr.splitlines() if "rror" in line] if error else []
        return Listed(items, tuple(why))

    def text(self, *words: str) -> str:
        done = self.run(*words)
        if done.returncode:
            raise refused(done.stderr, words)
        return done.stdout

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                self.command(*words),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ANSWER_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise NoCluster(
                f"kubectl {' '.join(words)} has no answer within {ANSWER_SECONDS:g} s; "
                "does `kubectl get namespaces` answer?"
            ) from error
        except OSError as error:
            raise UsageError(f"{self.binary} does not run: {error.strerror}") from error

    def command(self, *words: str) -> list[str]:
        return [self.binary, *self.options, *words]


def inside(namespace: str) -> tuple[str, ...]:
    """The words for a namespace; none for kubectl's own."""
    return ("--namespace", namespace) if namespace else ()


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--context", help="the cluster, as kubectl knows it (default: its current)")
    parser.add_argument("--kubeconfig", help="kubectl's settings (default $KUBECONFIG)")
    parser.add_argument("--namespace", metavar="NS", help="your workloads' namespace")


def of(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Kubectl:
    binary = shutil.which("kubectl", path=environment.get("PATH"))
    if binary is None:
        raise UsageError(
            "there is no `kubectl` on the PATH, by which a cluster is asked; install it, or set "
            "RUNWATCH_HEAD and RUNWATCH_TOKEN and use `runwatch` itself"
        )
    options = [
        f"--{name}={value}"
        for name in ("context", "kubeconfig")
        if (value := getattr(arguments, name))
    ]
    return Kubectl(binary, tuple(options), arguments.namespace or "")


def loaded(said: str, words: Sequence[str]) -> Mapping[str, Any]:
    try:
        answer = json.loads(said)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RunwatchError(f"kubectl {' '.join(words)} printed no object: {shown(said[:200])!r}")
    return answer


def refused(said: str, words: Sequence[str]) -> RunwatchError:
    """kubectl's last line says what is the matter; those before it are its tries."""
    lines = [line for line in shown(said).splitlines() if line.strip()]
    last = lines[-1] if lines else "it says nothing"
    asked = f"kubectl {' '.join(words)}"
    if any(mark in last for mark in _NO_CONFIGURATION):
        return NoCluster(
            f"kubectl has no cluster ({last}); name one with --context or --kubeconfig, or set "
            "KUBECONFIG"
        )
    if "Forbidden" in said or "forbidden" in last:
        return Forbidden(f"you may not do this in the cluster: {last}")
    if "Unauthorized" in last or "must be logged in" in last or "getting credentials" in last:
        return NoCluster(f"the cluster does not know you: {last}; log in as for kubectl itself")
    if "doesn't have a resource type" in last or "no matches for kind" in last:
        return NoKind(f"{asked}: {last}")
    if _NO_CONTEXT.search(last):
        return UsageError(f"{last}; `kubectl config get-contexts` lists all")
    if "x509:" in last:
        return NoCluster(f"kubectl does not trust who answers as the cluster: {last}")
    if "NotFound" in last or "not found" in last:
        return NotFound(f"{asked}: {last}")
    if any(mark in last for mark in _AWAY):
        return NoCluster(f"the cluster does not answer: {last}; does `kubectl get ns` answer?")
    return RunwatchError(f"{asked}: {last}")
