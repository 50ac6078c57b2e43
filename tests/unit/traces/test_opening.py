"""What is no trace is recognised and refused, whatever it is called."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from pathlib import Path

import pytest

from runwatch.traces.opening import BadTrace, Limits
from runwatch.traces.summary import summarise
from tests.unit.traces.building import written


def a_zip() -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trace.json", "0" * 1_000_000)
    return whole.getvalue()


@pytest.mark.parametrize(
    "content, said",
    (
        (a_zip(), "this is a zip archive, not a trace; Runwatch did not open it"),
        (pickle.dumps({"traceEvents": []}, protocol=4), "this is a pickle"),
        (b"<!doctype html><html>not found</html>", "a page of HTML"),
        (b"\x7fELF\x02\x01", "this is a program"),
        (b"", "the file is empty"),
        (b"hello", "neither JSON nor an XSpace; it begins with b'hello'"),
        (b"\x1f\x8bnot really gzip", "damaged gzip"),
        (
            gzip.compress(b'{"traceEvents": [' + b" " * 5000, mtime=0)[:-30],
            "damaged gzip|ends too early",
        ),
    ),
)
@pytest.mark.parametrize("name", ("trace.json.gz", "node.xplane.pb"))
def test_something_else_in_place_of_a_trace(
    tmp_path: Path, content: bytes, said: str, name: str
) -> None:
    path = written(tmp_path / name, content)
    with pytest.raises(BadTrace, match=said) as caught:
        summarise(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("inside", (b" ", b'{"ph": "M"},'))
def test_a_bomb_is_stopped_when_it_has_grown_enough(tmp_path: Path, inside: bytes) -> None:
    beginning = b'{"traceEvents": ['
    path = written(tmp_path / "trace.json.gz", gzip.compress(beginning + inside * 3_000_000))
    limits = Limits(ratio_from_bytes=1 << 20)
    with pytest.raises(BadTrace, match="no trace compresses 200 times|ends too early"):
        summarise(path, limits=limits)
    with pytest.raises(BadTrace, match="unpacks to more than 1,000,000 bytes"):
        summarise(path, limits=Limits(unpacked_bytes=1_000_000))


def test_files_beyond_the_limit_and_files_that_are_not(tmp_path: Path) -> None:
    path = written(tmp_path / "trace.json", b'{"traceEvents": []}')
    with pytest.raises(BadTrace, match="19 bytes is too large; the limit is 10"):
        summarise(path, limits=Limits(file_bytes=10))
    with pytest.raises(BadTrace, match="cannot be read"):
        summarise(tmp_path / "none.json")
    with pytest.raises(BadTrace, match="cannot be read"):
        summarise(tmp_path)
