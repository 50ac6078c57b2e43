"""A head with its tokens in a mounted Secret: who comes in, and what a renewed one ends."""

from __future__ import annotations

import json
import queue
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from runwatch.address import Listening, read_address
from runwatch.testing import until
from runwatch.wire import spine_pb2 as pb
from tests.integration.processes import Cluster
from tests.integration.test_cli import runwatch
from tests.integration.test_trust_tokens import hello, http, stream, told
from tests.mounted import MountedSecret

MAIN, AGENTS, LOOKING = "main-" * 6, "agents-" * 5, "looking-" * 5
DATA = {"main": MAIN, "ingest-agents": AGENTS, "view-prometheus": LOOKING}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


@pytest.fixture
def secret(tmp_path: Path) -> MountedSecret:
    return MountedSecret(tmp_path / "secret", DATA)


def start(cluster: Cluster, secret: MountedSecret) -> Listening:
    return cluster.start_head("--tokens-directory", str(secret.place))


def command(cluster: Cluster, *words: str, check: bool = True) -> Any:
    """As the head's own user types it, who names no token: the head's note has it."""
    return runwatch(cluster.node_root, *words, "--dir", str(cluster.head_root), check=check)


def health(at: Listening, token: str) -> tuple[int, str]:
    asked = urllib.request.Request(
        f"{at.http}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=100) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_each_file_lets_in_as_its_name_says(cluster: Cluster, secret: MountedSecret) -> None:
    at = start(cluster, secret)
    assert at.token == MAIN and not (cluster.head_root / "token").exists()
    assert health(at, LOOKING)[0] == 200 and health(at, AGENTS)[0] == 403
    assert (told(at, AGENTS), told(at, LOOKING)) == ("welcome", "PERMISSION_DENIED")
    assert told(at, MAIN) == "welcome" and health(at, "guess-" * 6)[0] == 401
    listed = json.loads(command(cluster, "token", "list", "--json").stdout)["tokens"]
    assert {token["id"]: (token["role"], token["name"], token["file"]) for token in listed} == {
        "ingest-agents": ("ingest", "agents", str(secret.place / "ingest-agents")),
        "view-prometheus": ("view", "prometheus", str(secret.place / "view-prometheus")),
    }
    shown = command(cluster, "token", "list").stdout
    assert shown.count("its file goes") == 2
    assert AGENTS not in shown + json.dumps(listed) + cluster.words()
    refused = command(cluster, "token", "revoke", "ingest-agents", check=False)
    assert refused.returncode != 0
    assert f"the file {secret.place}/ingest-agents: take the file away" in refused.stderr
    refused = command(cluster, "token", "renew", "--yes", check=False)
    assert f"{secret.place}/main: change that file" in refused.stderr


def test_a_renewed_secret_ends_what_was_open_and_lets_its_own_user_in(
    cluster: Cluster, secret: MountedSecret
) -> None:
    at = start(cluster, secret)
    saying: queue.Queue[pb.Up | None] = queue.Queue()
    saying.put(hello())
    answers = stream(at, AGENTS, iter(saying.get, None))
    assert next(answers).WhichOneof("message") == "welcome"
    secret.write({"main": "second-" * 5, "view-prometheus": LOOKING})
    with pytest.raises(grpc.RpcError) as ended:  # a silent stream, too
        for _ in answers:
            pass
    saying.put(None)
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    until(lambda: health(at, MAIN)[0] == 401, what="the old token to end")
    assert http(at, "/runs", "second-" * 5)[0] == 200 == health(at, LOOKING)[0]
    assert told(at, AGENTS) == "UNAUTHENTICATED"

    def noted() -> bool:
        note = read_address(cluster.head_root)
        return note is not None and note.token == "second-" * 5

    until(noted, what="the new token in the head's note")
    assert json.loads(command(cluster, "runs", "--json").stdout)["runs"] == []
    secret.write({"view-prometheus": LOOKING})
    until(lambda: health(at, "second-" * 5)[0] == 401, what="nobody to have the head's own token")
    assert health(at, LOOKING)[0] == 200 and health(at, "")[0] == 401


@pytest.mark.parametrize(
    ("data", "mode", "said"),
    [
        (DATA | {"ingest-agents": "short"}, 0o440, "has 5 characters: use at least 24"),
        (DATA | {"tls.crt": "x" * 30}, 0o440, "'tls.crt' is no name for a file with a token"),
        (DATA, 0o444, "defaultMode: 0440, and an fsGroup"),
    ],
)
def test_a_head_does_not_start_with_what_it_cannot_take(
    tmp_path: Path, data: dict[str, str], mode: int, said: str
) -> None:
    secret = MountedSecret(tmp_path / "secret", data, mode=mode)
    words = ("head", "--dir", str(tmp_path / "head"), "--http-port=0", "--grpc-port=0")
    done = runwatch(tmp_path, *words, f"--tokens-directory={secret.place}", check=False)
    assert done.returncode == 2 and said in done.stderr
    assert AGENTS not in done.stderr


def test_two_main_tokens_are_refused(tmp_path: Path) -> None:
    secret = MountedSecret(tmp_path / "secret", DATA)
    words = ("head", "--dir", str(tmp_path / "head"), "--http-port=0", "--grpc-port=0")
    done = runwatch(
        tmp_path, *words, f"--tokens-directory={secret.place}", "--token=other", check=False
    )
    assert done.returncode == 2 and "two main tokens" in done.stderr
