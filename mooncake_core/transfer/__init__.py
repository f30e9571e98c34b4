"""The transfer engine: batches of bytes between this process and segments of others.

docs/ARCHITECTURE.md says what segments, buffers, batches and fences promise.
"""

from mooncake_core.transfer.checksum import crc32c, crc32c_gather
from mooncake_core.transfer.choice import Choice
from mooncake_core.transfer.engine import TransferEngine
from mooncake_core.transfer.memory import Buffer, Segment
from mooncake_core.transfer.notifications import Notification
from mooncake_core.transfer.remote import RemoteSegment
from mooncake_core.transfer.statistics import PathStatistics
from mooncake_core.transfer.submitted import PreparedTransfer, Priority, Transfer

__all__ = [
    "Buffer",
    "Choice",
    "Notification",
    "PathStatistics",
    "PreparedTransfer",
    "Priority",
    "RemoteSegment",
    "Segment",
    "Transfer",
    "TransferEngine",
    "crc32c",
    "crc32c_gather",
]
