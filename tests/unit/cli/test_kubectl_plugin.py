"""`kubectl runwatch`: whose options are whose, which head is meant, and what kubectl refuses."""

from __future__ import annotations

import argparse
import base64
from collections.abc import Iterator, Mapping

import pytest

from runwatch.cli import kubectl as plugin
from runwatch.cli.__main__ import COMMANDS, parser
from runwatch.cli.cluster.kubectl import Forbidden, Listed, NoCluster, NoKind, refused
from runwatch.cli.cluster.release import Release, best, releases
from runwatch.errors import NotFound, RunwatchError, UsageError
from tests.unit.cli.cluster_things import thing

# ── words ─────────────────────────────────────────────────────────────────────────────────────

SPLIT = {
    "runs": ({}, "runs"),
    "-n team-a runs": ({"namespace": "team-a"}, "runs"),
    "runs -n team-a": ({"namespace": "team-a"}, "runs"),
    "runs -n=team-a": ({"namespace": "team-a"}, "runs"),
    "--namespace=team-a logs job/llama --context prod": (
        {"namespace": "team-a", "context": "prod"},
        "logs job/llama",
    ),
    # Both kubectl and `logs` have an option -n.
    "logs llama -n 50": ({}, "logs llama -n 50"),
    "logs llama -n 50 -n team-a": ({"namespace": "team-a"}, "logs llama -n 50"),
    "-n 7 logs llama": ({"namespace": "7"}, "logs llama"),
    "capture job/x --token t --release-namespace rw": (
        {"token": "t", "release_namespace": "rw"},
        "capture job/x",
    ),
}


@pytest.mark.parametrize(("words", "told"), SPLIT.items(), ids=SPLIT)
def test_our_options_may_stand_anywhere(words: str, told: tuple[Mapping[str, str], str]) -> None:
    own, rest = plugin.split(words.split())
    assert {name: value for name, value in vars(own).items() if value} == told[0]
    assert rest == told[1].split()


def test_an_option_without_its_value() -> None:
    with pytest.raises(UsageError, match="--context needs a value"):
        plugin.split(["runs", "--context"])


@pytest.mark.parametrize("name", plugin.ASKING)
def test_no_command_has_an_option_of_ours(name: str) -> None:
    assert not {f"--{own}" for own in plugin.OWN} & set(_options(parser(name)))


def _options(one: argparse.ArgumentParser) -> Iterator[str]:
    for action in one._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _options(inner)


def test_every_command_that_asks_a_head_is_offered() -> None:
    asked = {name for name in COMMANDS if "--head" in set(_options(parser(name)))}
    start = {"exec", "agent", "status"}  # they name a head to others
    assert set(plugin.ASKING) | {"host"} >= asked - start


def test_the_run_is_replaced_and_not_an_option_s_value() -> None:
    words = ["show", "--metric", "loss", "loss", "--json"]
    assert plugin.with_run(words, "loss", "1a2b") == ["show", "--metric", "loss", "1a2b", "--json"]
    words = ["capture", "--session", "night", "job/llama"]
    assert plugin.with_run(words, "job/llama", "1a2b")[-1] == "1a2b"


WRONG = {
    "": (2, ""),
    "lgos llama": (2, "'lgos' is no command: did you mean 'logs'? `kubectl runwatch --help`"),
    "head": (2, "'head' asks no head; `kubectl runwatch --help` lists all"),
    "--nodes runs": (2, "there is no option --nodes; `kubectl runwatch --help` lists all"),
    "runs --head http://h:1": (2, "--head: the cluster's head is asked"),
}


@pytest.mark.parametrize(("words", "told"), WRONG.items(), ids=WRONG)
def test_a_wrong_command_asks_nobody(
    words: str,
    told: tuple[int, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", "")  # no kubectl: it would say so
    assert plugin.main(words.split()) == told[0]
    said = capsys.readouterr()
    assert told[1] in said.err and "Traceback" not in said.err
    assert bool(said.out) == (not words)


def test_a_wrong_option_of_a_command_asks_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit) as ended:
        plugin.main(["logs", "llama", "--jsn"])
    assert ended.value.code == 2
    assert "there is no option --jsn: did you mean '--json'?" in capsys.readouterr().err


def test_no_kubectl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    assert plugin.main(["runs"]) == 2
    assert "there is no `kubectl` on the PATH" in (said := capsys.readouterr().err)
    assert "or set RUNWATCH_HEAD and RUNWATCH_TOKEN and use `runwatch` itself" in said


# ── which head ────────────────────────────────────────────────────────────────────────────────


def head(namespace: str = "runwatch", *, args: tuple[str, ...] = (), tls: bool = False) -> Listed:
    labels = {"app.kubernetes.io/instance": "rw"}
    words = ["runwatch", "head", *args, *(["--tls-certificate=/etc/x"] if tls else [])]
    volumes = [{"name": "tokens", "secret": {"secretName": "rw-tokens"}}]
    pod = {"spec": {"containers": [{"command": words}], "volumes": volumes}}
    ports = [{"name": "grpc", "port": 8091}, {"name": "http", "port": 80}]
    return Listed(
        (
            thing("Service", "rw-head", namespace, labels=labels, spec={"ports": ports}),
            thing("StatefulSet", "rw-head", namespace, labels=labels, spec={"template": pod}),
        ),
        (),
    )


def test_the_head_of_a_release() -> None:
    assert releases(head()) == [Release("runwatch", "rw-head", 80, "rw-tokens")]
    [found] = releases(head(args=("--base-path=/team/x/",), tls=True))
    assert (found.scheme, found.base_path) == ("https", "/team/x")
    [alone] = releases(Listed(head().items[:1], ()))
    assert alone == Release("runwatch", "rw-head", 80, "")


def coded(word: str) -> str:
    return base64.b64encode(word.encode()).decode()


TOKENS = {
    "the main token": ({"main": coded("m"), "operate-x": coded("o")}, "m"),
    "without it, the strongest": ({"view-a": coded("v"), "operate-x": coded("o\n")}, "o"),
    "those that send cannot look": ({"ingest-agents": coded("i"), "view-a": coded("v")}, "v"),
    "none that can look": ({"ingest-agents": coded("i")}, ""),
    "nothing that can be read": ({"main": "%%%", "view-a": coded("v")}, "v"),
}


@pytest.mark.parametrize(("data", "token"), TOKENS.values(), ids=TOKENS)
def test_the_token_with_which_one_looks(data: Mapping[str, str], token: str) -> None:
    assert best(data) == token


# ── what kubectl refuses ──────────────────────────────────────────────────────────────────────

REFUSED: dict[str, tuple[str, type[RunwatchError], str]] = {
    "no right": (
        'Error from server (Forbidden): secrets "runwatch-tokens" is forbidden: User "ada" cannot '
        'get resource "secrets" in API group "" in the namespace "runwatch"',
        Forbidden,
        "you may not do this in the cluster: Error from server .Forbidden.: secrets",
    ),
    "no login": (
        "error: You must be logged in to the server (Unauthorized)",
        NoCluster,
        "the cluster does not know you: .* log in as for kubectl itself",
    ),
    "a login program": (
        "Unable to connect to the server: getting credentials: exec: executable aws not found",
        NoCluster,
        "the cluster does not know you",
    ),
    "no such context": (
        'error: context "prd" does not exist',
        UsageError,
        'context "prd" does not exist; `kubectl config get-contexts` lists all',
    ),
    "no such context, as its settings say": (
        "Error in configuration: context was not found for specified context: prd",
        UsageError,
        "specified context: prd; `kubectl config get-contexts` lists all",
    ),
    "no cluster at all": (
        "The connection to the server localhost:8080 was refused - did you specify the right host "
        "or port?",
        NoCluster,
        "kubectl has no cluster .* name one with --context or --kubeconfig, or set KUBECONFIG",
    ),
    "it is away": (
        "E1119 memcache.go:265] couldn't get current server API group list\n"
        "Unable to connect to the server: dial tcp 10.0.0.1:443: i/o timeout",
        NoCluster,
        "the cluster does not answer: Unable to connect .* does `kubectl get ns` answer",
    ),
    "another certificate": (
        "Unable to connect to the server: tls: failed to verify certificate: x509: certificate "
        "signed by unknown authority",
        NoCluster,
        "kubectl does not trust who answers as the cluster: Unable to connect",
    ),
    "no such object": (
        'Error from server (NotFound): jobs.batch "llama" not found',
        NotFound,
        'kubectl get job/llama: Error from server .* "llama" not found',
    ),
    "no such kind": (
        'error: the server doesn\'t have a resource type "jobsets"',
        NoKind,
        "resource type",
    ),
    "anything else": ("error: what now", RunwatchError, "^kubectl get job/llama: error: what now$"),
    "nothing": ("", RunwatchError, "it says nothing"),
}


@pytest.mark.parametrize(("said", "kind", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals_have_a_way_out(said: str, kind: type[RunwatchError], words: str) -> None:
    error = refused(said, ("get", "job/llama"))
    assert type(error) is kind
    with pytest.raises(kind, match=words):
        raise error


def test_what_a_cluster_says_cannot_move_the_cursor() -> None:
    assert "\x1b" not in str(refused("error: \x1b[2J", ("get", "x")))
