"""What peers say after their batches. Pure."""

from __future__ import annotations

from msgspec import Struct


class Notification(Struct, frozen=True):
    """Given with a batch that this engine's memory was the other side of; all of it has moved."""

    peer_id: int
    """Of the sender, as it was then; see TransferEngine.peer_id."""
    data: bytes
    """What it gave, at most 4,096 bytes."""
