"""Where a head is, from what people have at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runwatch.address import (
    Listening,
    http_address,
    leave_note,
    page_of,
    place_of,
    split_token,
    token_for,
)
from runwatch.errors import UsageError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("head-1:8090", "http://head-1:8090"),
        ("head-1", "http://head-1:8090"),
        ("head-1:9000", "http://head-1:9000"),
        ("head-1/team/x/", "http://head-1:8090/team/x"),
        ("grpc://head-1", "http://head-1:8090"),
        ("grpcs://head-1:90", "https://head-1:89"),
        ("grpc://head-1:8090", "http://head-1:8091"),
        ("http://head-1:5/", "http://head-1:5"),
        ("http://head-1:8090/?token=secret#/runs", "http://head-1:8090"),
        ("https://host/team/x", "https://host/team/x"),
        ("[::1]:8090", "http://[::1]:8090"),
        ("[::1]", "http://[::1]:8090"),
    ],
)
def test_a_heads_page_from_what_people_type(text: str, address: str) -> None:
    assert http_address(text) == address


def test_what_is_no_address_is_named() -> None:
    with pytest.raises(UsageError, match="not an address"):
        http_address("ftp://head")
    with pytest.raises(UsageError, match="use a number from 1 to 65535"):
        http_address("head:port")
    with pytest.raises(UsageError, match="use a number from 1 to 65535"):
        http_address("http://head:70000")


def test_a_link_has_its_token_with_it(tmp_path: Path) -> None:
    link = "http://head-1:8090/?token=secret"
    assert split_token(link) == ("http://head-1:8090", "secret")
    assert split_token("head-1") == ("head-1", "")
    assert token_for(link, tmp_path) == "secret"
    assert token_for(link, tmp_path, "another") == "another"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("head-1", "http://head-1:8090", True),
        ("head-1:8090", "http://head-1:8090/", True),
        ("localhost:7", "http://127.0.0.1:7", True),
        ("https://host/team/x", "https://host/team/y", False),
        ("https://host/team/x/", "https://host/team/x", True),
        ("grpc://head-1", "grpc://head-1:8091", True),
        ("grpc://head-1:8090", "head-1:8090", False),
    ],
)
def test_heads_are_told_apart_by_their_places(one: str, other: str, is_same: bool) -> None:
    assert (place_of(one) == place_of(other)) == is_same


def test_a_note_knows_the_page_of_a_port_of_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path))
    at = Listening("http://127.0.0.1:4711", "127.0.0.1:90", "t", os.getpid())
    leave_note(tmp_path, at)
    assert page_of("grpc://localhost:90", tmp_path) == "http://127.0.0.1:4711"
    assert page_of("grpc://localhost:91", tmp_path) == "http://localhost:90"
