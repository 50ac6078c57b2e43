"""The parameters of a request: one table, which the parser and the OpenAPI document both read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import unquote_to_bytes

from runwatch.errors import UsageError

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
LONGEST_TEXT: Final = 512
_PRINTABLE: Final = r"^[^\x00-\x1f\x7f]*$"
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?([eE][+-]?[0-9]{1,3})?", re.ASCII)

Given = dict[str, Any]


class BadRequest(Exception):
    """The head cannot understand the request; the message names the value and the way out."""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    kind: Literal["integer", "string", "boolean", "number"]
    description: str
    place: Literal["query", "path"] = "query"
    choices: tuple[str, ...] = ()
    minimum: int = INT64_MIN
    maximum: int = INT64_MAX
    shortest: int = 0
    longest: int = LONGEST_TEXT
    pattern: str = ""
    """A regular expression that the text must match; `description` says it in words."""
    default: Any = None
    repeated: bool = False
    required: bool = False

    def schema(self) -> dict[str, Any]:
        one: dict[str, Any] = {"type": self.kind}
        if self.kind == "integer":
            one |= {"minimum": self.minimum, "maximum": self.maximum, "format": "int64"}
        elif self.kind == "number":
            one |= {"minimum": self.minimum, "maximum": self.maximum}
        elif self.choices:
            one["enum"] = list(self.choices)
        elif self.kind == "string":
            one |= {"maxLength": self.longest, "pattern": self.pattern or _PRINTABLE}
            if self.shortest:
                one["minLength"] = self.shortest
        if self.default is not None and not self.repeated:
            one["default"] = self.default
        return {"type": "array", "items": one, "minItems": 1} if self.repeated else one

    def parse(self, text: str) -> int | str | bool | float:
        if self.kind == "integer":
            return self._integer(text)
        if self.kind == "number":
            return self._number(text)
        if self.kind == "boolean":
            return self._boolean(text)
        return self._text(text)

    def _integer(self, text: str) -> int:
        if _WHOLE.fullmatch(text) and self.minimum <= int(text) <= self.maximum:
            return int(text)
        raise BadRequest(
            f"{self.name}={shortened(text)} is not a whole number "
            f"from {self.minimum} to {self.maximum}"
        )

    def _number(self, text: str) -> float:
        if _DECIMAL.fullmatch(text) and self.minimum <= float(text) <= self.maximum:
            return float(text)
        raise BadRequest(
            f"{self.name}={shortened(text)} is not a number from {self.minimum} to {self.maximum}"
        )

    def _boolean(self, text: str) -> bool:
        if text not in ("true", "false"):
            raise BadRequest(f"{self.name}={shortened(text)} is neither true nor false; give one")
        return text == "true"

    def _text(self, text: str) -> str:
        if self.choices and text not in self.choices:
            raise BadRequest(
                f"{self.name}={shortened(text)} is not one of {', '.join(self.choices)}"
            )
        if not self.shortest <= len(text) <= self.longest:
            raise BadRequest(
                f"{self.name} has {len(text)} characters; "
                f"it may have {self.shortest} to {self.longest}"
            )
        if not re.fullmatch(_PRINTABLE[1:-1], text):
            raise BadRequest(f"{self.name}={shortened(text)} contains control characters")
        if self.pattern and not re.search(self.pattern, text):
            raise BadRequest(f"{self.name}={shortened(text)} is not {self.description}")
        return text


def parse(parameters: Sequence[Parameter], query: bytes, path: Mapping[str, str]) -> Given:
    """The values of all parameters by name, with defaults filled in.  Raises BadRequest."""
    values = _split(query)
    if unknown := sorted(set(values) - {p.name for p in parameters if p.place == "query"}):
        known = ", ".join(p.name for p in parameters if p.place == "query") or "none"
        raise BadRequest(f"unknown parameter {shortened(unknown[0])}; this route takes: {known}")
    return {
        p.name: p.parse(path[p.name]) if p.place == "path" else _value(p, values.get(p.name, []))
        for p in parameters
    }


def _value(parameter: Parameter, texts: list[str]) -> Any:
    if parameter.repeated:
        if parameter.required and not texts:
            raise BadRequest(f"give at least one {parameter.name}: {parameter.description}")
        return tuple(parameter.parse(text) for text in texts)
    if len(texts) > 1:
        raise BadRequest(f"{parameter.name} is given {len(texts)} times; give it once")
    if not texts and parameter.required:
        raise BadRequest(f"{parameter.name} is missing: {parameter.description}")
    return parameter.parse(texts[0]) if texts else parameter.default


def _split(query: bytes) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for part in query.split(b"&") if query else ():
        name, _, value = part.partition(b"=")
        values.setdefault(decoded(name), []).append(decoded(value))
    return values


def decoded(raw: bytes) -> str:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"{shortened(raw.decode('latin-1'))} is not UTF-8; percent-encode text as UTF-8"
        ) from error


def shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")


# ── parameters of many routes ──────────────────────────────────────────────────────────────────

RUN: Final = Parameter(
    "run", "string", "a run's id, or its name if only one run has it", "path", shortest=1
)
METRIC: Final = Parameter(
    "metric", "string", "only series of these metrics", shortest=1, repeated=True
)
SERIES_FILTERS: Final = (
    Parameter("rank", "integer", "only series of these ranks", repeated=True),
    Parameter("host", "string", "only series of these hosts", repeated=True),
    Parameter("device", "string", "only series of these devices", repeated=True),
    Parameter("attempt", "integer", "only series of these attempts", minimum=1, repeated=True),
)
START: Final = Parameter("start", "integer", "the window's start, in nanoseconds since the epoch")
END: Final = Parameter(
    "end", "integer", "the window's end (exclusive), in nanoseconds since the epoch"
)
OFFSET: Final = Parameter(
    "offset", "integer", "how many entries to skip", minimum=0, maximum=10**9, default=0
)
YES: Final = Parameter("yes", "integer", "1: you are sure", minimum=0, maximum=1, default=0)


def limit(default: int, most: int) -> Parameter:
    return Parameter(
        "limit", "integer", "list at most this many", minimum=1, maximum=most, default=default
    )


def check_range(given: Given) -> None:
    start, end = given["start"], given["end"]
    if start is not None and end is not None and start > end:
        raise UsageError(f"start={start} is after end={end}; give a start before the end")
