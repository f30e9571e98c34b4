"""The native library, loaded on first use, and the map from its codes to our errors.

`import mooncake_core` does not come here; `transfer` and `store` do.
"""

from __future__ import annotations

from types import TracebackType

from mooncake_core import errors

try:
    from mooncake_core import _native
except ImportError as error:
    raise errors.NativeUnavailable(
        f"mooncake_core._native does not load: {error}. Build it with `make native` in a checkout, "
        "or install the package again for this Python"
    ) from error

Code = _native.Code

ERROR_OF_CODE: dict[_native.Code, type[Exception]] = {
    Code.kInvalidArgument: ValueError,
    Code.kWire: errors.WireError,
    Code.kTimeout: errors.TransferTimeout,
    Code.kPeerUnreachable: errors.PeerUnreachable,
    Code.kBufferNotRegistered: errors.BufferNotRegistered,
    Code.kChecksumMismatch: errors.ChecksumMismatch,
    Code.kFenced: errors.Fenced,
    Code.kOutOfSpace: errors.OutOfSpace,
    Code.kLeaseExpired: errors.LeaseExpired,
    Code.kStaleEpoch: errors.StaleEpoch,
    Code.kNotFound: errors.TransferError,
    Code.kAlreadyExists: ValueError,
    Code.kUnavailable: errors.StoreUnavailable,
    Code.kSystem: errors.TransferError,
    Code.kClosed: errors.TransferError,
    Code.kWrongPeer: errors.WrongPeer,
    Code.kCancelled: errors.TransferCancelled,
    Code.kReadOnly: errors.ReadOnly,
    Code.kNotNotified: errors.NotNotified,
    Code.kTooFewNodes: errors.TooFewNodes,
    Code.kGroupGone: errors.GroupGone,
}
"""Every code but kOk. Codes that are answers to their callers stand here too."""


def translate(error: _native.Error) -> Exception:
    """Return the error that stands for a native one, with all that it says."""
    code, message, is_dirty = error.args
    ours = ERROR_OF_CODE[code](message)
    if is_dirty and isinstance(ours, errors.MooncakeError):
        ours.is_dirty = True
    return ours


class NativeErrors:
    """`with native_errors:` raises our errors where native calls raise theirs. Reusable."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Translate a native error."""
        if isinstance(error, _native.Error):
            raise translate(error) from error


native_errors = NativeErrors()

__all__ = ["ERROR_OF_CODE", "Code", "NativeErrors", "_native", "native_errors", "translate"]
