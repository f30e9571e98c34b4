"""The native library, loaded on first use, and the map from its codes to our errors.

`import mooncake_core` does not come here; `transfer` and `store` do.
"""

from __future__ import annotations

from mooncake_core import errors

try:
    from mooncake_core import _native
except ImportError as error:
    raise errors.NativeUnavailable(
        f"mooncake_core._native does not load: {error}. Build it with `make native` in a checkout, "
        "or install the package again for this Python"
    ) from error

ERROR_OF_CODE: dict[str, type[errors.MooncakeError]] = {
    "kWire": errors.WireError,
    "kTimeout": errors.TransferTimeout,
    "kPeerUnreachable": errors.PeerUnreachable,
    "kBufferNotRegistered": errors.BufferNotRegistered,
    "kChecksumMismatch": errors.ChecksumMismatch,
    "kFenced": errors.Fenced,
    "kOutOfSpace": errors.OutOfSpace,
    "kLeaseExpired": errors.LeaseExpired,
    "kStaleEpoch": errors.StaleEpoch,
    "kUnavailable": errors.StoreUnavailable,
    "kWrongPeer": errors.WrongPeer,
}

__all__ = ["ERROR_OF_CODE", "_native"]
