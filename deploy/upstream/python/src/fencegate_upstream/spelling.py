"""Tells which field names some server takes for the same."""

from __future__ import annotations

import re


def folded(name: bytes) -> bytes:
    """Lower case, with `-` for all but letters and digits: some servers treat these characters alike."""
    return re.sub(rb"[^a-z0-9]", b"-", name.lower())
