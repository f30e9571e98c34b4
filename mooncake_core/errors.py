"""Every error that Mooncake raises on purpose.

MooncakeError                what the world did wrong
├── ConfigError              a file or flag is wrong: "file:key: problem", "--flag: problem"
│   └── UsageError           what the command line says is wrong in itself, whatever the host
├── TopologyError            the host cannot be read the way it was asked for
├── NativeUnavailable        the native library is missing or does not fit
├── WireError                a peer spoke, but not our protocol
│   └── WrongPeer            who answered is not who was asked for
├── ModelError               a checkpoint or a model configuration cannot be used
├── RequestError             a user's request is wrong; the message is for the user
├── TransferError            bytes did not move
│   ├── TransferTimeout      the deadline passed; a write may have left its target dirty
│   ├── TransferCancelled    its caller gave the batch up
│   ├── PeerUnreachable      no connection, or it died
│   ├── BufferNotRegistered  an address outside every registered buffer
│   ├── ReadOnly             memory that its owner lends for reading only
│   ├── NotNotified          every byte has landed, but the peer took no notification
│   ├── ChecksumMismatch     the bytes that arrived are not the bytes that were sent
│   └── Fenced               the owner revoked this process's writes
└── StoreError               the store could not do it
    ├── OutOfSpace           nothing evictable is left that would make room
    ├── TooFewNodes          not so many failure domains as copies that had to be
    ├── GroupGone            another member of the object's group has gone meanwhile
    ├── LeaseExpired         the lease ended before the read did
    ├── StaleEpoch           the descriptor is of an earlier master
    ├── TensorMismatch       the object is no tensor, or not the one that is needed
    └── StoreUnavailable     no master or node to serve this now

A miss, a refusal and a full queue are answers, not errors; what we did wrong is an `assert`.
Pure; no imports but the standard library.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Scope = Literal["request", "endpoint", "nic", "process"]


class MooncakeError(Exception):
    """What the world did wrong. `scope` is the largest thing lost.

    `is_dirty` is about a batch that was to be written. True: its target may hold anything, and may
    still be changing, until its owner has fenced the writer. False: nothing of it was written, or
    every byte of it; reads and batches that were refused are never dirty.
    """

    scope: ClassVar[Scope] = "process"
    retryable: ClassVar[bool] = False
    is_dirty: bool = False
    results: tuple[object, ...] = ()
    """Of a batch that failed in part: how each of its items has gone, or the error of each."""


class ConfigError(MooncakeError):
    """A file or flag is wrong; it reads "file:key: problem" or "--flag: problem"."""


class UsageError(ConfigError):
    """A flag or an argument is wrong in itself; the command ends with exit code 2."""


class TopologyError(MooncakeError):
    """The host cannot be read the way it was asked for."""


class NativeUnavailable(MooncakeError):
    """The native library is missing or does not fit this interpreter."""


class WireError(MooncakeError):
    """A peer spoke, but not our protocol or not this version of it."""

    scope = "endpoint"


class WrongPeer(WireError):
    """Who answered is not who was asked for."""


class ModelError(MooncakeError):
    """A checkpoint or a model configuration cannot be used."""


class RequestError(MooncakeError):
    """A user's request is wrong; the message is for the user."""

    scope = "request"


class TransferError(MooncakeError):
    """Bytes did not move."""

    scope: ClassVar[Scope] = "request"


class TransferTimeout(TransferError):
    """The deadline passed; `is_dirty` says what that means for the target of a write."""

    retryable = True


class TransferCancelled(TransferError):
    """The batch's caller gave it up; `is_dirty` says whether it had begun to write."""


class PeerUnreachable(TransferError):
    """No connection to the peer, or it died."""

    scope = "endpoint"
    retryable = True


class BufferNotRegistered(TransferError):
    """An address lies outside every registered buffer."""


class ReadOnly(TransferError):
    """A write to memory that its owner lends for reading only; nothing was written."""

    scope = "request"


class NotNotified(TransferError):
    """Every byte has landed, but the peer's queue of notifications is full: only that failed."""

    retryable = True


class ChecksumMismatch(TransferError):
    """The bytes that arrived are not the bytes that were sent."""

    retryable = True


class Fenced(TransferError):
    """The owner of the memory revoked this process's writes."""

    scope = "process"


class StoreError(MooncakeError):
    """The store could not do it."""

    scope = "request"


class OutOfSpace(StoreError):
    """Nothing evictable is left that would make room.

    When a put raises it: bytes over all nodes that take objects.
    """

    capacity_bytes: int = 0
    used_bytes: int = 0
    evictable_bytes: int = 0
    pinned_bytes: int = 0
    quarantined_bytes: int = 0
    largest_free_extent_bytes: int = 0


class TooFewNodes(StoreError):
    """Not so many failure domains take objects as copies had to be; nothing was stored."""


class GroupGone(StoreError):
    """While the object was written its group died with another member; put the group again."""


class LeaseExpired(StoreError):
    """The lease ended before the read did; what was read is not to be used."""

    retryable = True


class StaleEpoch(StoreError):
    """The descriptor is of an earlier master; look the key up again."""

    retryable = True


class TensorMismatch(StoreError):
    """The object is no tensor, or not of the dtype and shape that is needed."""

    scope = "request"


class StoreUnavailable(StoreError):
    """No master or no node can serve this now."""

    retryable = True
