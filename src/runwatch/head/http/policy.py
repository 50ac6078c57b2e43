"""A Content-Security-Policy that lets a page's own inline scripts and styles run, and no others."""

from __future__ import annotations

import base64
import hashlib
import re


def inline_hashes(tag: str, page: str) -> str:
    parts = re.findall(f"<{tag}(?: [^>]*)?>(.*?)</{tag}>", page, re.DOTALL)
    digests = (hashlib.sha256(part.encode()).digest() for part in parts if part)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def page_policy(page: str) -> str:
    """The policy for a page of ours: its inline script and style, and requests to this head."""
    scripts = inline_hashes("script", page) or "'none'"
    styles = inline_hashes("style", page) or "'none'"
    return (
        f"default-src 'none'; connect-src 'self'; img-src 'self' data:; "
        f"script-src {scripts}; style-src {styles}; "
        f"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
