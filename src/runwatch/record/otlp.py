"""What a head records about programs that send OTLP, or speak as google-cloud-mldiagnostics does.

Their numbers, log lines and spans are ordinary records.  Here is the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from runwatch.record.base import JournalId
from runwatch.record.checks import COUNT, MOST_ITEMS, NAME, TEXT, anything
from runwatch.record.message import Message, checked, mapping

OTLP: Final = "otlp.."
ML_RUN: Final = "mlrun.."
"""How the ids of journals begin that a head writes for programs that do not know us: of what sends
OTLP, and of a run that was made by PATCH.  Others begin with a host's name: it has no two dots."""


def is_foreign(journal: JournalId) -> bool:
    return journal.startswith((OTLP, ML_RUN))


@dataclass(frozen=True, slots=True)
class OtlpReceived(Message):
    """A part of a request was stored, in the same transaction as this.  So the same part is not
    stored again when its sender repeats the request, after a restart of the head either."""

    KIND: ClassVar[str] = "otlp_received"

    digest: str = checked(NAME, "")
    signal: str = checked(NAME, "")
    """metrics, logs or traces."""
    refused: int = checked(COUNT, 0)
    """How many of its points, lines or spans were set aside."""
    why: str = checked(TEXT, "")


@dataclass(frozen=True, slots=True)
class SpanTold(Message):
    """What a span of a trace says besides its name and times, which are an ordinary span."""

    KIND: ClassVar[str] = "span_told"

    name: str = checked(TEXT, "")
    trace_id: str = checked(NAME, "")
    span_id: str = checked(NAME, "")
    parent_span_id: str = checked(NAME, "")
    kind: str = checked(NAME, "")
    status: str = checked(NAME, "")
    status_message: str = checked(TEXT, "")
    attributes: Mapping[str, Any] = mapping(anything, MOST_ITEMS)


@dataclass(frozen=True, slots=True)
class MlRun(Message):
    """A run as `google-cloud-mldiagnostics` describes it to its control plane, whole."""

    KIND: ClassVar[str] = "ml_run"

    resource: Mapping[str, Any] = mapping(anything, MOST_ITEMS)
