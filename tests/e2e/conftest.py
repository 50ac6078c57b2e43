"""One browser, and one head for all tests of the page that change nothing for the others."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e import crowd, page_world
from tests.e2e.browsing import Visitor, head, log_in, operating
from tests.integration.chromium import Chromium

TOKEN = "known to the owner"


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    with Chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, browser: Chromium) -> Iterator[str]:
    """The address of a head over `page_world`, under a path as behind a proxy."""
    root = tmp_path_factory.mktemp("world")
    page_world.build(root, time.time_ns() + page_world.AHEAD)
    with head(root, "--base-path", "/team/x") as at:
        log_in(browser, at.http)
        yield f"{at.http.removesuffix('/team/x')}/team/x"


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same behind a token."""
    root = tmp_path_factory.mktemp("guarded")
    page_world.build(root, time.time_ns() + page_world.AHEAD)
    with head(root, "--token", TOKEN) as at:
        yield at.http


@pytest.fixture(scope="session")
def crowded(tmp_path_factory: pytest.TempPathFactory, browser: Chromium) -> Iterator[str]:
    """Where lists are long."""
    root = tmp_path_factory.mktemp("crowd")
    crowd.build(root, time.time_ns(), page_world.AHEAD)
    with head(root) as at:
        log_in(browser, at.http)
        crowd.start_sessions(at.http)
        yield at.http


@pytest.fixture
def page(browser: Chromium, world: str, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    with operating(browser, world, request) as opened:
        yield opened
