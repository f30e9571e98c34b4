"""What a store client asks its master: what is there, and how it stands. No value moves."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

from mooncake_core.config import StoreClientConfig
from mooncake_core.native import _native, native_errors
from mooncake_core.store.described import ObjectDescription, decode_objects
from mooncake_core.store.options import (
    MAX_PAGE,
    Key,
    PinKind,
    check_number,
    pin_number,
    pin_seconds,
)
from mooncake_core.store.stats import ClusterStats, decode_stats
from mooncake_core.store.tasks import StoreAdmin


class StoreQuestions:
    """The calls of a StoreClient about objects and the store, not about values."""

    def __init__(self, native: _native.StoreClient, config: StoreClientConfig) -> None:
        self._native = native
        self._config = config

    def exists(self, key: Key) -> bool:
        """Return whether the key is committed. Takes no lease: it may be gone a moment later."""
        with native_errors:
            [is_there] = self._native.exists((key,))
        return bool(is_there)

    def batch_exists(self, keys: Iterable[Key]) -> list[bool]:
        """Return for each key whether it is committed."""
        with native_errors:
            there: list[bool] = self._native.exists(keys)
            return there

    def match_prefix(self, keys: Iterable[Key]) -> int:
        """Return how many leading keys exist. Takes no lease."""
        with native_errors:
            return int(self._native.match_prefix(keys))

    def size(self, key: Key) -> int | None:
        """Return the bytes of an object, or None: a miss. Takes no lease."""
        described = self.describe([key])[0]
        return None if described is None else described.size_bytes

    def describe(self, keys: Sequence[Key]) -> list[ObjectDescription | None]:
        """Return what the master knows of each key; None: it is not there."""
        with native_errors:
            bodies = self._native.describe(keys)
        return [one for body in bodies for one in decode_objects(body)[1]]

    def list_objects(
        self, prefix: Key = b"", *, page: int = 1000, unreadable: bool = False
    ) -> Iterator[ObjectDescription]:
        """Return the objects whose key starts with `prefix`, in no order, asking page by page.

        An object that is there all the while comes once; one that comes or goes may.

        Args:
            prefix: what their keys start with.
            page: keys that the master is asked for at once.
            unreadable: also those that are stored but cannot be read now: their group waits for
                members, or their nodes are not heard of.
        """
        check_number("page", page, 1, MAX_PAGE)
        return self._listed(prefix, page, unreadable)

    def _listed(self, prefix: Key, page: int, unreadable: bool) -> Iterator[ObjectDescription]:
        cursor = 0
        while True:
            with native_errors:
                body = self._native.list(prefix, cursor, page)
            cursor, objects = decode_objects(body, unreadable=unreadable)
            yield from (one for one in objects if one is not None)
            if cursor == 0:
                return

    def remove(self, key: Key) -> bool:
        """Make the key invisible at once; False when it was not there or is being written."""
        return self.batch_remove([key])[0]

    def batch_remove(self, keys: Iterable[Key]) -> list[bool]:
        """Remove each key; as `remove` for each."""
        with native_errors:
            removed: list[bool] = self._native.remove(keys)
            return removed

    def pin(
        self, keys: Sequence[Key], kind: PinKind = "hard", *, soft_pin_s: float | None = None
    ) -> list[bool]:
        """Set how hard each object is to be evicted; False where it is not there.

        Args:
            keys: of the objects.
            kind: none; soft: evicted only when nothing else is left, for a time; or hard: never
                evicted.
            soft_pin_s: how long a soft pin lasts; None: 30 minutes.
        """
        number, seconds = pin_number(kind), pin_seconds(kind, soft_pin_s)
        with native_errors:
            return list(self._native.set_pin(keys, number, seconds))

    def unpin(self, keys: Sequence[Key]) -> list[bool]:
        """Let each object be evicted like any other; False where it is not there."""
        return self.pin(keys, "none")

    def stats(self) -> ClusterStats:
        """Return what the master says about the whole store."""
        with native_errors:
            return decode_stats(self._native.stats())

    @functools.cached_property
    def admin(self) -> StoreAdmin:
        """Asks the same master for copies, moves and drains."""
        return StoreAdmin(self._config.master, timeout_s=self._config.timeout_s)

    @property
    def epoch(self) -> int:
        """Of the master last spoken to; 0: none yet."""
        return int(self._native.epoch)

    @property
    def read_faults(self) -> dict[str, int]:
        """Reads of keys that were found which went wrong on a copy, by cause.

        `corrupt`: wrong bytes; `stale`: the lease had ended; `unreachable`: the node was silent.
        """
        corrupt, stale, unreachable = self._native.read_counters
        return {"corrupt": corrupt, "stale": stale, "unreachable": unreachable}

    def metrics(self) -> dict[str, int]:
        """Return what this client has counted so far, by names for a monitoring system."""
        return {f"reads_{cause}": count for cause, count in self.read_faults.items()}
