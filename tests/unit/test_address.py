"""Where a head is, from what people have at hand."""

from __future__ import annotations

import pytest

from runwatch.address import http_address
from runwatch.errors import UsageError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("head-1:8090", "http://head-1:8091"),
        ("head-1", "http://head-1:8091"),
        ("grpcs://head-1:90", "https://head-1:91"),
        ("http://head-1:5/", "http://head-1:5"),
        ("[::1]:8090", "http://[::1]:8091"),
    ],
)
def test_a_heads_page_from_where_its_agents_connect(text: str, address: str) -> None:
    assert http_address(text) == address
    with pytest.raises(UsageError, match="not an address"):
        http_address("ftp://head")
