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
import json
import os
import re
import sys
import tempfile
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from runwatch.cli import __main__ as cli
from runwatch.cli.cluster import kubectl as kubectl_of
from runwatch.cli.cluster import release as release_of
from runwatch.cli.cluster.forward import Forward, forwarded
from runwatch.cli.cluster.kubectl import Kubectl
from runwatch.cli.cluster.named import run_called
from runwatch.cli.cluster.release import Release
from runwatch.cli.guesses import meant
from runwatch.cli.source import RemoteSource
from runwatch.errors import RunwatchError, UsageError
from runwatch.terminal import shown

OPEN: Final = "The page of the cluster's head, for as long as it runs."
OWN: Final = ("context", "kubeconfig", "namespace", "release-namespace", "token")
"""Our options.  No command has one of the same name."""
ASKING: Final = (
    "runs", "show", "logs", "goodput", "stacks", "devices", "capture", "profiles", "session",
    "export", "import", "token", "share", "delete", "restore",
)  # fmt: skip
MORE: Final = ("open", "status")
RUN: Final = ("run_name", "captured")
"""What parsers of commands call the run that somebody names."""
_NAMED: Final = re.compile(rf"`runwatch (?=(?:{'|'.join(ASKING)})\b)")
ELSEWHERE: Final = ("--head", "--dir")


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        return _run(words)
    except RunwatchError as error:
        print(worded(shown(str(error))), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def worded(said: str) -> str:
    """Commands that it names are ours, too, if they ask a head."""
    return f"kubectl runwatch: {_NAMED.sub(r'`kubectl runwatch ', said)}"


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
    if command == "status":
        return cli.main(["status", "--cluster", *_as_options(own), *rest[1:]])
    called = "" if command == "open" else _called(rest)  # a wrong command is wrong at once
    page = _page_options(rest[1:]) if command == "open" else None
    kubectl = kubectl_of.of(own)
    release = release_of.find(kubectl, own.release_namespace)
    token = own.token or os.environ.get("RUNWATCH_TOKEN", "") or release_of.token(kubectl, release)
    with asked(kubectl, release, token, page.port if page else 0) as (address, forward):
        if page:
            return _open(release, f"{address}/?token={token}", forward, page)
        if called:
            run = run_called(called, RemoteSource(address, token), kubectl)
            rest = with_run(rest, called, run)
        code = cli.main(rest, worded=lambda said: worded(said.replace(address, "the cluster")))
        if code and not forward.is_up:
            print(worded(shown(ended(forward))), file=sys.stderr)
        return code


def _called(words: Sequence[str]) -> str:
    """The word that names a run; "" without one.  Its parser ends us if the command is wrong."""
    arguments = cli.parser(words[0]).parse_args(cli.joined(words))
    return next((found for name in RUN if (found := getattr(arguments, name, None))), "")


def with_run(words: Sequence[str], called: str, run: str) -> list[str]:
    """The word may stand there twice: as an option's value, too."""
    for at, word in enumerate(words):
        if word == called and _called(found := [*words[:at], run, *words[at + 1 :]]) == run:
            return found
    return list(words)


def ended(forward: Forward) -> str:
    said = f": {forward.last_words}" if forward.last_words else ""
    return f"the way to the head has ended{said}; run it again"


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
def asked(
    kubectl: Kubectl, release: Release, token: str, port: int = 0
) -> Iterator[tuple[str, Forward]]:
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
            yield address, forward


# ── open ──────────────────────────────────────────────────────────────────────────────────────


def _page_options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("kubectl runwatch open", description=OPEN)
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1 (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="only say where the page is")
    parser.add_argument("--json", action="store_true", help="print the addresses as JSON")
    return parser.parse_args(words)


def _open(release: Release, link: str, forward: Forward, options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps({"url": link.partition("/?")[0], "link": link}), flush=True)
    else:
        print(f"Runwatch of {release.namespace}/{release.service}: {link}", flush=True)
        print("Stop it with Ctrl-C.", flush=True)
    try:
        if not options.no_browser and _has_screen():
            webbrowser.open(link)
        forward.wait()
    except KeyboardInterrupt:
        return 0
    raise RunwatchError(ended(forward))


def _has_screen() -> bool:
    """Without one, a browser would take the terminal."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    return not sys.platform.startswith("linux") or any(os.environ.get(each) for each in screens)


if __name__ == "__main__":
    sys.exit(main())
