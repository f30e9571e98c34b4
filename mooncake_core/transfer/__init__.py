"""The transfer engine: batches of bytes between this process and segments of others.

docs/ARCHITECTURE.md says what segments, buffers, batches and fences promise.
"""

from mooncake_core.transfer.checksum import crc32c, crc32c_gather
from mooncake_core.transfer.engine import TransferEngine
from mooncake_core.transfer.memory import Buffer, Segment
from mooncake_core.transfer.remote import RemoteSegment, Transfer

__all__ = [
    "Buffer",
    "RemoteSegment",
    "Segment",
    "Transfer",
    "TransferEngine",
    "crc32c",
    "crc32c_gather",
]
