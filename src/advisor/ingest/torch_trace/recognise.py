"""Is this text a trace for us, and if not, what is it?"""

from __future__ import annotations


def claims(head: bytes) -> bool:
    return b'"traceEvents"' in head or b'"ph"' in head


def refusal(head: bytes) -> str | None:
    return None
