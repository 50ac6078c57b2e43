"""What a head needs of OTLP before somebody sends any: names, limits, values as plain Python.

The messages themselves are in `otlp.py`, which takes a moment to load.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from typing import Any, Final, Literal, get_args

from runwatch.errors import WireError

Signal = Literal["metrics", "logs", "traces"]
SIGNALS: Final[tuple[Signal, ...]] = get_args(Signal)
PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
LARGEST: Final = 8 << 20
"""Bytes of a request, unpacked."""
DEEPEST: Final = 16


class TooLarge(WireError):
    """The request is larger than LARGEST."""


def unpacked(body: bytes) -> bytes:
    """A body that was packed with gzip.  Raises WireError."""
    unpacking = zlib.decompressobj(wbits=31)
    try:
        plain = unpacking.decompress(body, LARGEST + 1)
    except zlib.error as error:
        raise WireError(f"the body is not gzip: {error}") from error
    if len(plain) > LARGEST:
        raise TooLarge(f"the request has more than {LARGEST} bytes when it is unpacked")
    if not unpacking.eof:
        raise WireError("the body ends in the middle of its gzip stream")
    return plain


def plain(value: Any, depth: int = 0) -> Any:
    """An AnyValue as JSON has it; bytes in base64, None for none."""
    kind = value.WhichOneof("value")
    if kind is None or depth > DEEPEST:
        return None
    if kind == "array_value":
        return [plain(each, depth + 1) for each in value.array_value.values]
    if kind == "kvlist_value":
        return {each.key: plain(each.value, depth + 1) for each in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind)


def attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    # Nearly all are texts, and asking which kind a value has takes longer than reading it.
    return {pair.key: pair.value.string_value or plain(pair.value) for pair in pairs}


def text(value: Any) -> str:
    """For a label or a line."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
