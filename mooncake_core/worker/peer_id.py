"""Identities of transfer engines as messages carry them. Pure."""

from __future__ import annotations


def parse_peer_id(text: str) -> int | None:
    """Return the peer id that `text` says in hex; None when it says none."""
    try:
        value = int(text, 16)
    except ValueError:
        return None
    return value if 0 < value < 1 << 64 else None


def format_peer_id(peer_id: int) -> str:
    """Return `peer_id` as messages carry it."""
    return f"{peer_id:016x}"
