from __future__ import annotations

import pytest

from runwatch.head.features.profiles.viewer import adapted, policy
from runwatch.head.features.profiles.viewer_proxy import refused


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("data/plugin/profile/capture_profile", b"service_addr=10.0.0.1:1"),
        ("capture_profile", b""),
        ("data/plugin/profile/capture_profile/", b""),
        ("data/plugin/profile/generate_cache", b""),
        ("data/plugin/profile/runs", b"session_path=/etc"),
        ("data/plugin/profile/runs", b"session%5Fpath=x"),
        ("data/plugin/profile/runs", b"a=b&run_path=x"),
        ("data/plugin/profile/runs", b"a=b;run_path=x"),
        ("data/plugin/profile/data", b"run=..%2F..%2Fetc&tag=x"),
        ("data/plugin/profile/data", b"run=/etc&tag=x"),
        ("data/plugin/profile/data", b"run=a&host=%2Fetc%2Fpasswd"),
        ("data/plugin/profile/../../x", b""),
        ("data\\x", b""),
        ("data\n", b""),
    ],
)
def test_what_would_leave_the_profiles_is_refused(path: str, query: bytes) -> None:
    assert refused(path, query)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("data/plugin/profile/", b""),
        ("data/plugin/profile/runs", b""),
        ("data/plugin/profile/data", b"run=llama%2Fs1&tag=trace_viewer%40&host=gpu-17"),
        ("data/plugin/profile/trace_viewer@", b"run=a/b&hosts=x,y"),
        ("data/plugin/profile/trace_viewer_index.html", b"trace_data_url=%2Fteam%2Fx%2Fdata"),
    ],
)
def test_what_reads_them_is_not(path: str, query: bytes) -> None:
    assert refused(path, query) == ""


def answer(path: str, kind: str, body: bytes) -> tuple[dict[str, str], bytes]:
    """What becomes of an application's answer."""
    said: dict[str, str] = {}

    def application(environ: object, start_response: object) -> list[bytes]:
        start_response("200 OK", [("Content-Type", kind), ("Content-Security-Policy", "theirs")])  # type: ignore[operator]
        return [body]

    pieces = adapted(application)(
        {"PATH_INFO": path}, lambda status, headers: said.update(dict(headers))
    )
    return said, b"".join(pieces)


def test_the_page_may_run_its_own_inline_scripts_and_no_others() -> None:
    headers, _ = answer("/data/plugin/profile/", "text/html", b"<script>let a = 1;</script>")
    assert "'sha256-" in headers["Content-Security-Policy"]
    made_from_data = answer("/data/plugin/profile/data", "text/html", b"<script>evil()</script>")
    assert made_from_data[0]["Content-Security-Policy"] == policy()[1]
    assert "http" not in policy()[1] and "sha256" not in policy()[1]
