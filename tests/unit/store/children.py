"""Processes that end in the middle of their work, forked from one that has imported the store."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing import forkserver, util
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [f"tests.unit.store.{name}" for name in ("test_deletion", "test_duck", "test_space")]
)


def stop_server() -> None:
    """Before the temporary directory goes in which it has its socket."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    util._run_finalizers()  # type: ignore[attr-defined]


def exit_code_of(work: Callable[..., None], *arguments: Any) -> int | None:
    process = CONTEXT.Process(target=work, args=arguments)
    process.start()
    process.join(60)
    return process.exitcode
