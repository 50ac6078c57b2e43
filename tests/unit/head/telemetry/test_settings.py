"""Settings of telemetry: wrong ones are refused with a reason, and no password is shown."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.errors import UsageError
from runwatch.head.telemetry.post import Poster
from runwatch.head.telemetry.settings import TelemetrySettings, headers_of, without_password


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"remote_write": "prometheus:9090"}, "begins with http://, https://"),
        ({"remote_write": "grpc://x:1"}, "telemetry.remote_write is 'grpc://x:1'"),
        ({"remote_write": "http://x:99999999/"}, "an address"),
        ({"otlp_export": "ftp://me:secret@x"}, "is 'ftp://x'"),
        ({"interval_seconds": 0.0}, "interval_seconds is 0.0"),
        ({"backlog_hours": -1.0}, "backlog_hours is -1.0"),
        ({"otlp_headers": "no equals sign"}, "telemetry.otlp_headers: write them as"),
        ({"remote_write_headers": "Bad Name=x"}, "Name=value"),
    ],
)
def test_a_wrong_setting_says_what_is_wrong(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        TelemetrySettings(**wrong)
    assert words in str(caught.value) and "secret" not in str(caught.value)


def test_right_settings_are_taken() -> None:
    assert not TelemetrySettings().is_on
    for address in ("grpc://c:4317", "grpcs://c", "https://c/otlp/v1/metrics", "http://[::1]:4318"):
        assert TelemetrySettings(otlp_export=address).is_on
    assert headers_of(" a=b=c, X-Team = d ,") == {"a": "b=c", "X-Team": "d"}


def test_a_password_goes_into_a_header_and_not_into_words() -> None:
    address = "https://me:p%40ss@mimir:9009/api/v1/push?x=1"
    assert without_password(address) == "https://mimir:9009/api/v1/push?x=1"
    poster = Poster(address, {}, 1.0)
    assert poster.name == "https://mimir:9009/api/v1/push?x=1"
    assert poster._headers["Authorization"] == "Basic bWU6cEBzcw=="
