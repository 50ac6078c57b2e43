"""Every feature of a head.  A new one is a folder in features/, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from runwatch._version import __version__
from runwatch.head.context import Context, Feature
from runwatch.head.features.audit.api import AuditApi
from runwatch.head.features.captures.api import CapturesApi
from runwatch.head.features.devices.api import DevicesApi
from runwatch.head.features.goodput.api import GoodputApi
from runwatch.head.features.gswarm.api import GswarmApi
from runwatch.head.features.logs.api import LogsApi
from runwatch.head.features.otlp.api import OtlpApi
from runwatch.head.features.profiles.api import ProfilesApi
from runwatch.head.features.runs.api import RunsApi
from runwatch.head.features.series.api import SeriesApi
from runwatch.head.features.sessions.api import SessionsApi
from runwatch.head.features.shares.api import SharesApi
from runwatch.head.features.stacks.api import StacksApi
from runwatch.head.features.timeline.api import TimelineApi
from runwatch.head.features.tokens.api import TokensApi
from runwatch.head.http.app import operations_of
from runwatch.head.http.openapi import document
from runwatch.head.reading import Reading
from runwatch.store.engines import USUAL, open_store

FEATURES: Final[tuple[Callable[[Context], Feature], ...]] = (
    RunsApi,
    SeriesApi,
    TimelineApi,
    LogsApi,
    GoodputApi,
    DevicesApi,
    StacksApi,
    CapturesApi,
    ProfilesApi,
    SessionsApi,
    SharesApi,
    TokensApi,
    AuditApi,
    GswarmApi,
    OtlpApi,
)


def features_of(context: Context) -> list[Feature]:
    return [make(context) for make in FEATURES]


def api_document() -> dict[str, Any]:
    """The OpenAPI document, as every head answers with it."""
    store = open_store(USUAL, None)
    try:
        context = Context.of(Reading(store))
        operations = operations_of(context, features_of(context))
        return document(operations, version=__version__)
    finally:
        store.close()
