"""Runwatch of a cluster: its head is asked through `kubectl port-forward`.

  kubectl runwatch runs                     any command that asks a head: show, logs, goodput …
  kubectl runwatch logs llama-70b -n team-a
  kubectl runwatch stacks job/llama         a workload or a pod in place of the run
  kubectl runwatch capture job/llama --steps 3
  kubectl runwatch open                     the page, until Ctrl-C
  kubectl runwatch status                   what is installed, what is not watched, and why

options, before or after the command:
  -n, --namespace NS          where your workloads are (default: kubectl's own)
  --context, --kubeconfig     the cluster, as for kubectl
  --release-namespace NS      where Runwatch is, if there are several
  --token TOKEN               in place of the one in the release's Secret (or RUNWATCH_TOKEN)

example:
  kubectl runwatch runs
  kubectl runwatch --context prod capture jobset/llama --duration 500
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from runwatch.cli import __main__ as cli
from runwatch.cli.cluster import kubectl as kubectl_of
from runwatch.cli.cluster import release as release_of
from runwatch.cli.cluster.forward import forwarded
from runwatch.cli.cluster.kubectl import Kubectl
from runwatch.cli.cluster.named import TAKES_RUN, run_words
from runwatch.cli.cluster.release import Release
from runwatch.cli.guesses import meant
from runwatch.cli.source import RemoteSource
from runwatch.errors import RunwatchError, UsageError
from runwatch.terminal import shown

OWN: Final = ("context", "kubeconfig", "namespace", "release-namespace", "token")
"""Our options.  No command has one of the same name."""
ASKING: Final = (
    "runs", "show", "logs", "goodput", "stacks", "devices", "capture", "profiles", "session",
    "export", "import", "token", "share", "delete", "restore",
)  # fmt: skip
MORE: Final = ("open", "status")
ELSEWHERE: Final = ("--head", "--dir")


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        return _run(words)
    except RunwatchError as error:
        print(f"kubectl runwatch: {shown(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _run(words: Sequence[str]) -> int:
    own, rest = split(words)
    if not rest or rest[0] in ("-h", "--help"):
        print(__doc__, end="")
        return 0 if rest else UsageError.exit_code
    command = rest[0]
    if command.startswith("-"):
        raise UsageError(f"there is no option {command}; `kubectl runwatch --help` lists all")
    if command not in (*ASKING, *MORE):
        what = "asks no head" if command in cli.COMMANDS else "is no command"
        guess = meant(command, [*ASKING, *MORE]) or ";"
        raise UsageError(f"{command!r} {what}{guess} `kubectl runwatch --help` lists all")
    for word in rest:
        if word.partition("=")[0] in ELSEWHERE:
            raise UsageError(f"{word}: the cluster's head is asked; `runwatch` itself takes it")
    if "--help" in rest or "-h" in rest:
        return cli.main(rest)
    kubectl = kubectl_of.of(own)
    if command == "status":
        return cli.main(["status", "--cluster", *_as_options(own), *rest[1:]])
    release = release_of.find(kubectl, own.release_namespace)
    token = own.token or os.environ.get("RUNWATCH_TOKEN", "") or release_of.token(kubectl, release)
    if command == "open":
        return _open(kubectl, release, token, rest[1:])
    with asked(kubectl, release, token) as address:
        if command in TAKES_RUN:
            rest = run_words(rest, RemoteSource(address, token), kubectl)
        return cli.main(rest)


def split(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our options, and the command with its own.  `-n` is ours, but for `logs -n 50`."""
    own = dict.fromkeys((name.replace("-", "_") for name in OWN), "")
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return argparse.Namespace(**own), [*rest, word, *left]
        name, equals, value = word.partition("=")
        if name == "-n" and not (rest and (value or " ".join(left[:1])).isdigit()):
            name = "--namespace"
        if not name.startswith("--") or name[2:] not in OWN:
            rest.append(word)
            continue
        if not equals and not left:
            raise UsageError(f"{word} needs a value")
        own[name[2:].replace("-", "_")] = value if equals else left.pop(0)
    return argparse.Namespace(**own), rest


def _as_options(own: argparse.Namespace) -> list[str]:
    names = ("context", "kubeconfig", "namespace")
    return [f"--{name}={value}" for name in names if (value := getattr(own, name))]


@contextmanager
def asked(kubectl: Kubectl, release: Release, token: str, port: int = 0) -> Iterator[str]:
    """The head's address here, while the forward is up.  The environment names it to commands."""
    with tempfile.TemporaryDirectory(prefix="runwatch-kubectl-") as folder:
        if release.scheme == "https" and (ca := release_of.authority(kubectl, release)):
            path = os.path.join(folder, "ca.crt")
            with open(path, "w") as file:
                file.write(ca)
            os.environ["RUNWATCH_CA"] = path
        with forwarded(kubectl, release, port) as forward:
            # A certificate has names; `localhost` may be one of them.
            host = "localhost" if release.scheme == "https" else "127.0.0.1"
            address = f"{release.scheme}://{host}:{forward.port}{release.base_path}"
            os.environ["RUNWATCH_HEAD"] = address
            os.environ["RUNWATCH_TOKEN"] = token
            os.environ.pop("RUNWATCH_TOKEN_FILE", None)
            yield address


def _open(kubectl: Kubectl, release: Release, token: str, words: Sequence[str]) -> int:
    if words:
        raise UsageError(f"`open` takes no {words[0]!r}")
    with (
        tempfile.TemporaryDirectory(prefix="runwatch-kubectl-") as _,
        forwarded(kubectl, release) as forward,
    ):
        link = f"{release.scheme}://127.0.0.1:{forward.port}{release.base_path}/?token={token}"
        print(f"Runwatch of {release.namespace}/{release.service}: {link}", flush=True)
        print("Stop it with Ctrl-C.", flush=True)
        webbrowser.open(link)
        forward.wait()
        raise RunwatchError(f"the forward has ended: {forward.last_words}; run it again")


if __name__ == "__main__":
    sys.exit(main())
