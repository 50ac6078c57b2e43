"""The way in by form: where it leads, and how often one may guess."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.head.access.guesses import BURST, EVERY_SECONDS, MOST_ADDRESSES, Guesses
from runwatch.head.http.login import LARGEST_FORM, LoginPage, checked, form_of, onward
from runwatch.head.http.parameters import BadRequest
from runwatch.testing import FakeClock

HERE = "https://head.example:8091/team/runwatch/login"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("/", "/team/runwatch/"),
        ("/viewers/trace?run=a&file=b", "/team/runwatch/viewers/trace?run=a&file=b"),
        ("", "/team/runwatch/"),
        ("relative", "/team/runwatch/"),
        ("https://evil.example/", "/team/runwatch/"),
        ("/a b", "/team/runwatch/"),
        ("/\r\nSet-Cookie: x=1", "/team/runwatch/"),
    ],
)
def test_after_the_login_one_comes_to_where_one_wanted(where: str, expected: str) -> None:
    location = onward(where).headers["location"]
    assert urljoin(HERE, location) == f"https://head.example:8091{expected}"


@pytest.mark.parametrize(
    "where", ["//evil.example", "/\\evil.example", "/https://evil.example", "///evil.example/x"]
)
def test_no_address_leads_elsewhere(where: str) -> None:
    landed = urljoin(HERE, onward(where).headers["location"].replace("\\", "/"))
    assert urlsplit(landed).netloc == "head.example:8091"


@given(st.text())
def test_no_text_leads_elsewhere(where: str) -> None:
    location = onward(where).headers["location"]
    assert location.startswith("./") and "\n" not in location
    assert urlsplit(urljoin(HERE, location.replace("\\", "/"))).netloc == "head.example:8091"


@pytest.mark.parametrize(
    ("at", "action"), [("/", "./login"), ("/x", "./login"), ("/viewers/trace", "../login")]
)
def test_the_form_goes_to_the_same_head_under_any_prefix(at: str, action: str) -> None:
    text = bytes(LoginPage().reply(at, at, status=401).body).decode()
    assert f'action="{action}"' in text and f'value="{at}"' in text
    assert "{{" not in text


def test_the_page_shows_what_was_said_as_text() -> None:
    reply = LoginPage().reply("/", '/?a="><script>', status=401, said="<b>")
    text = bytes(reply.body).decode()
    assert "&lt;b&gt;" in text and "<script>\n" in text and '"><script>' not in text
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "form-action 'self'" in policy
    assert "unsafe" not in policy


def test_the_page_names_no_other_host() -> None:
    text = bytes(LoginPage().reply("/", "/", status=200).body).decode()
    assert "http://" not in text and "https://" not in text and "//" not in checked("/x")


def read(*pieces: bytes) -> dict[str, str]:
    left = list(pieces)

    async def receive() -> Any:
        body = left.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(left)}

    return asyncio.run(form_of(receive))


def test_forms() -> None:
    assert read(b"token=a%20b&", b"next=%2Fx") == {"token": "a b", "next": "/x"}
    assert read(b"") == {}


@pytest.mark.parametrize("pieces", [[b"\xff"], [b"a=1&" * 30], [b"x" * (LARGEST_FORM + 1), b"x"]])
def test_what_is_no_form(pieces: list[bytes]) -> None:
    with pytest.raises(BadRequest):
        read(*pieces)


# ── guessing ───────────────────────────────────────────────────────────────────────────────────


def test_an_address_has_a_few_guesses_and_then_one_now_and_then() -> None:
    clock = FakeClock()
    guesses = Guesses(clock=clock)
    for _ in range(BURST):
        assert guesses.wait_seconds("10.0.0.1") == 0
        guesses.wrong("10.0.0.1")
    wait = guesses.wait_seconds("10.0.0.1")
    assert 0 < wait <= EVERY_SECONDS + 1
    assert guesses.wait_seconds("10.0.0.2") == 0
    clock.now_ns += wait * 10**9
    assert guesses.wait_seconds("10.0.0.1") == 0
    guesses.wrong("10.0.0.1")
    assert guesses.wait_seconds("10.0.0.1") > 0


def test_a_scraper_with_an_old_token_locks_nobody_out() -> None:
    clock = FakeClock()
    guesses = Guesses(clock=clock)
    for _ in range(500):
        guesses.wrong("10.0.0.1")
        clock.now_ns += 15 * 10**9
        assert guesses.wait_seconds("10.0.0.1") == 0


def test_addresses_of_one_network_are_one() -> None:
    guesses = Guesses(clock=FakeClock())
    for i in range(BURST):
        guesses.wrong(f"2001:db8::{i:x}")
    assert guesses.wait_seconds("2001:db8::ffff") > 0
    assert guesses.wait_seconds("2001:db8:0:1::1") == 0


def test_its_memory_is_bounded() -> None:
    guesses = Guesses(clock=FakeClock())
    for i in range(MOST_ADDRESSES + 100):
        guesses.wrong(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}")
    assert len(guesses._spent) == MOST_ADDRESSES
