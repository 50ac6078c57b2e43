"""What a Content-Security-Policy must name for the inline parts of a page to run, and no others."""

from __future__ import annotations

import base64
import hashlib
import re


def inline_hashes(tag: str, page: str) -> str:
    found = re.findall(f"<{tag}(?: [^>]*)?>(.*?)</{tag}>", page, re.DOTALL)
    digests = (hashlib.sha256(part.encode()).digest() for part in found if part)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def page_policy(page: str) -> str:
    """For a page of our own: its inline script and style, and questions to this head."""
    scripts = inline_hashes("script", page) or "'none'"
    styles = inline_hashes("style", page) or "'none'"
    return (
        f"default-src 'none'; connect-src 'self'; img-src 'self' data:; "
        f"script-src {scripts}; style-src {styles}; "
        f"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
