"""Where a head can be reached: see `runwatch/address.py`, which agents read, too."""

from __future__ import annotations

from runwatch.address import ADDRESS_FILE, Listening, read_address

__all__ = ["ADDRESS_FILE", "Listening", "read_address"]
