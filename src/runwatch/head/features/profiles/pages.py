"""The pages around the viewers: the list of profiles, the way into Perfetto, a missing viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.responses import Response

from runwatch.head.http.policy import page_policy

_HERE: Final = Path(__file__).parent


def page(name: str) -> Response:
    return _response((_HERE / name).read_text("utf-8"))


def missing(viewer: str) -> Response:
    """What a browser sees in place of a viewer that is not installed."""
    text = (_HERE / "missing.html").read_text("utf-8").replace("{VIEWER}", viewer)
    return _response(text, 404)


def _response(text: str, status: int = 200) -> Response:
    headers = {"Content-Security-Policy": page_policy(text), "Cache-Control": "no-cache"}
    return Response(text, status, media_type="text/html", headers=headers)
