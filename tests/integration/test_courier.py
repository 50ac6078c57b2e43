"""Profiles on their way from a node's disk to the head's."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from runwatch.ship.courier import METHOD, NOTES, Courier
from runwatch.testing import until
from runwatch.wire import spine_pb2 as pb
from tests import tokens
from tests.integration.processes import Cluster, end

SESSION = "run-1/plugins/profile/session-1"
LARGE = os.urandom(5 << 20)  # several pieces, and not compressible


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One head for all that it is to refuse: nothing stays there."""
    made = Cluster(tmp_path_factory.mktemp("refusing"))
    try:
        made.start_head()
        yield made
    finally:
        made.close()


def leave(cluster: Cluster, name: str, data: bytes) -> Path:
    """A file that a run left on the node, some time ago."""
    folder = cluster.node_root / "profiles" / SESSION
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f".{name}").write_bytes(data)
    os.utime(folder / f".{name}", (1, 1))
    return (folder / f".{name}").rename(folder / name)


def at_head(cluster: Cluster, name: str) -> Path:
    return cluster.head_root / "profiles" / SESSION / name


def channel(cluster: Cluster) -> grpc.Channel:
    return grpc.insecure_channel(f"127.0.0.1:{cluster.grpc_port}")


def courier(cluster: Cluster) -> Courier:
    return Courier(
        cluster.node_root,
        lambda: channel(cluster),
        host="node",
        token=lambda: tokens.known(cluster.grpc_port),
        keep_days=1e6,
        look_seconds=0.05,
    )


def test_an_agent_brings_whole_files_and_nothing_else(cluster: Cluster) -> None:
    cluster.start_head()
    leave(cluster, "host.xplane.pb", LARGE)
    beside = cluster.node_root / "profiles" / SESSION / ".being-written"
    beside.write_bytes(b"half")
    cluster.start_agent()
    until(lambda: at_head(cluster, "host.xplane.pb").exists(), 30, cluster.words())
    assert at_head(cluster, "host.xplane.pb").read_bytes() == LARGE
    names = {path.name for path in at_head(cluster, "").iterdir()}
    # The head may have begun to summarise it, and keeps that beside it.
    assert {n for n in names if not n.startswith(".runwatch-summary")} == {"host.xplane.pb"}


def test_a_head_that_comes_later_gets_them_once(cluster: Cluster) -> None:
    leave(cluster, "a.json.gz", b"a" * 1000)
    bringing = courier(cluster)
    assert not bringing.round()
    assert bringing.problem
    cluster.start_head()
    until(bringing.round)
    assert bringing.round() and bringing.settled
    assert bringing.brought == 1
    again = courier(cluster)  # a new agent knows what the last one brought
    assert again.round() and again.brought == 0
    leave(cluster, "a.json.gz", b"other")  # another file of that name
    assert again.round() and again.brought == 1
    assert at_head(cluster, "a.json.gz").read_bytes() == b"other"


def test_a_head_killed_in_the_middle_never_has_half_a_file(cluster: Cluster) -> None:
    cluster.start_head()
    leave(cluster, "a.pb", LARGE)
    with channel(cluster) as line:
        call = line.stream_unary(
            METHOD,
            request_serializer=pb.Piece.SerializeToString,
            response_deserializer=pb.Kept.FromString,
        )
        folder = at_head(cluster, "")

        def pieces() -> Iterator[pb.Piece]:
            path = f"{SESSION}/a.pb"
            yield pb.Piece(header=pb.FileHeader(path=path, bytes=len(LARGE), host="n"))
            yield pb.Piece(data=LARGE[: 1 << 20])
            until(lambda: folder.exists() and any(folder.iterdir()), what="the first piece")
            assert cluster.head is not None
            end(cluster.head, signal.SIGKILL)
            yield pb.Piece(data=LARGE[1 << 20 :])

        with pytest.raises(grpc.RpcError):
            call(pieces(), metadata=tokens.metadata(cluster.grpc_port), timeout=100)
    assert not at_head(cluster, "a.pb").exists()
    cluster.start_head()
    assert courier(cluster).round()
    assert at_head(cluster, "a.pb").read_bytes() == LARGE


@pytest.mark.xdist_group("courier")
@pytest.mark.parametrize(
    ("path", "said", "data", "word"),
    [
        ("../../x/plugins/profile/s/a", 1, b"a", "not a profile's place"),
        ("run/plugins/profile/../a", 1, b"a", "not a profile's place"),
        ("run/other/profile/s/a", 1, b"a", "not a profile's place"),
        ("run/plugins/profile/s/.hidden", 1, b"a", "not a profile's place"),
        ("/etc/plugins/profile/a", 1, b"a", "not a profile's place"),
        (f"{SESSION}/a\0b", 1, b"a", "not a profile's place"),
        (f"{SESSION}/short", 9, b"a", "1 bytes, but its header says 9"),
        (f"{SESSION}/long", 1, b"abc", "longer than its header says"),
        (f"{SESSION}/huge", 1 << 60, b"", "a profile may have at most"),
    ],
)
def test_what_is_no_profile_is_refused(
    refusing: Cluster, path: str, said: int, data: bytes, word: str
) -> None:
    with channel(refusing) as line:
        call = line.stream_unary(
            METHOD,
            request_serializer=pb.Piece.SerializeToString,
            response_deserializer=pb.Kept.FromString,
        )
        header = pb.FileHeader(path=path, bytes=said, host="n")
        shown = tokens.metadata(refusing.grpc_port)
        pieces = [pb.Piece(header=header), pb.Piece(data=data)]
        kept = call(iter(pieces), metadata=shown, timeout=100)
        assert word in kept.problem
        assert "header" in call(iter(pieces[1:]), metadata=shown, timeout=100).problem
    found = [p for p in refusing.head_root.rglob("*") if p.is_file() and "profiles" in p.parts]
    assert found == []


def test_old_files_leave_the_node_once_the_head_has_them(cluster: Cluster) -> None:
    cluster.start_head()
    left = leave(cluster, "a.pb", b"data")  # its time is 1970
    token = tokens.known(cluster.grpc_port)
    bringing = Courier(cluster.node_root, lambda: channel(cluster), host="node", token=token)
    assert bringing.round()
    assert left.exists()
    assert bringing.round()
    assert not left.exists()
    assert at_head(cluster, "a.pb").read_bytes() == b"data"
    assert (cluster.node_root / "profiles" / NOTES).read_text() == "{}"
