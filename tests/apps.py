"""The HTTP app over a store, as tests want it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette

from runwatch.clock import Clock, system_clock
from runwatch.head.access.main_token import MainToken
from runwatch.head.context import Context
from runwatch.head.feature_table import features_of
from runwatch.head.http.access import AccessSettings
from runwatch.head.http.app import create_app
from runwatch.head.reading import Reading
from runwatch.head.settings import ServingSettings
from runwatch.record import JournalId
from runwatch.store.store import Store


def app_of(
    store: Store,
    *,
    clock: Clock = system_clock,
    alive: Callable[[], Collection[JournalId]] = tuple,
    clock_offsets: Callable[[], Mapping[str, int]] = dict,
    access: AccessSettings | None = None,
    serving: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Starlette:
    """`changes` take the place of parts of the context."""
    reading = Reading(store, clock=clock, alive=alive, clock_offsets=clock_offsets)
    context = replace(Context.of(reading), serving=ServingSettings(**(serving or {})))
    gate = context.gate
    if access is not None:
        gate = replace(gate, settings=access, main=MainToken(access.token))
    if "shares" in changes:
        gate = replace(gate, shares=changes.pop("shares"))
    context = replace(context, gate=gate, **changes)
    return create_app(context, features_of(context))
