"""KV on the move, a layer at a time, in the background of the compute.

    LayerLoader   store blocks ─► own pages, on a thread; compute waits for the layer it needs
    LayerSender   own pages ─► decode's pages, with a checksum a layer
    BlockWriter   own pages ─► one new store object

A sender and the writers of a request run on a `Lane` each, so their pieces leave in the order in
which they were submitted: KV that is sent twice ends as what was sent last.
"""

from __future__ import annotations

import logging
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial

from mooncake_core.cache.kv_pool import KvPool
from mooncake_core.cache.lane import Lane
from mooncake_core.cache.mirror import KvMirror
from mooncake_core.cache.spans import layer_checksum, layer_pieces, paired_runs
from mooncake_core.errors import MooncakeError
from mooncake_core.messages import Reserved
from mooncake_core.store import Link, ObjectReader, ObjectWriter, StoreClient
from mooncake_core.transfer import RemoteSegment

log = logging.getLogger(__name__)


class LoadFailed(Exception):
    """A layer did not arrive; `LayerLoader.good_blocks` says what did."""


class LayerLoader:
    """Loads the blocks of `reader` into pages, layer by layer, on a thread of its own.

    Args:
        reader: leases of consecutive blocks; closed at the end.
        mirror: of the pages; what is loaded is uploaded before anybody is told.
        pages: of the whole sequence.
        first_token: where the first block starts.
        block_tokens: tokens a block; whole pages.
        on_layer: called on the thread with (layer, end): tokens [first_token, end) are in the pool.
    """

    def __init__(
        self,
        reader: ObjectReader,
        mirror: KvMirror,
        pages: Sequence[int],
        *,
        first_token: int,
        block_tokens: int,
        on_layer: Callable[[int, int], None],
    ) -> None:
        self.good_blocks = reader.count
        """Blocks that are whole; final once `join` has returned."""
        self.waited_s = 0.0
        """Time that compute spent in `wait`."""
        self._reader = reader
        self._mirror = mirror
        self._pool = mirror.host
        self._pages = pages
        self._first_token = first_token
        self._block_tokens = block_tokens
        self._on_layer = on_layer
        self._stopped = False
        self._loaded = [threading.Event() for _ in range(mirror.host.shape.layers)]
        self._failed_layer: int | None = None
        self._thread = threading.Thread(target=self._run, name="kv-load", daemon=True)
        self._thread.start()

    def wait(self, layer: int) -> None:
        """Return when `layer` is in the pool, or raise LoadFailed."""
        began_s = time.monotonic()
        self._loaded[layer].wait()
        self.waited_s += time.monotonic() - began_s
        if self._failed_layer is not None and layer >= self._failed_layer:
            raise LoadFailed

    def stop(self) -> None:
        """Load no further layer."""
        self._stopped = True

    def join(self) -> None:
        """Return when nothing is loaded any more."""
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._reader:
                self._load_all()
        except BaseException:
            # A defect. Compute waits without a limit, so it must hear of it whatever it is.
            self._failed_layer, self.good_blocks = 0, 0
            raise
        finally:
            for event in self._loaded:
                event.set()

    def _load_all(self) -> None:
        layers = range(self._pool.shape.layers)
        for layer in layers:
            if self._stopped or not self._load(layer, self.good_blocks):
                self._failed_layer = layer
                self._save_what_is_good(layers[layer:])
                return
            self._is_here(layer)
            self._loaded[layer].set()

    def _save_what_is_good(self, layers: Sequence[int]) -> None:
        """Find the leading blocks of which every layer can be had."""
        good = 0
        while not self._stopped and good < self.good_blocks:
            if not all(self._load(layer, 1, good) for layer in layers):
                break
            good += 1
        self.good_blocks = good
        for layer in layers if good else ():
            self._is_here(layer)

    def _is_here(self, layer: int) -> None:
        page_tokens, end = self._pool.shape.page_tokens, self._end()
        pages = self._pages[self._first_token // page_tokens : end // page_tokens]
        self._mirror.upload(layer, pages)
        self._on_layer(layer, end)

    def _load(self, layer: int, count: int, first: int = 0) -> bool:
        reads = [(index, *self._pieces(layer, index)) for index in range(first, first + count)]
        try:
            return self._reader.read_parts(layer, reads)
        except (MooncakeError, ValueError) as error:  # ValueError: an object of another size
            log.warning("layer %d of %d cached blocks does not load: %s", layer, count, error)
            return False

    def _pieces(self, layer: int, index: int) -> tuple[array[int], array[int]]:
        begin = self._first_token + index * self._block_tokens
        return layer_pieces(self._pool, layer, self._pages, begin, begin + self._block_tokens)

    def _end(self) -> int:
        return self._first_token + self.good_blocks * self._block_tokens


class LayerSender:
    """Writes a prompt's KV into the pages that decode reserved.

    Every token of every layer must be sent at least once, then every layer sealed once.

    Args:
        remote: decode's segment, opened under the identity that the pages were granted to.
        target: the grant.
        pool: of the local pages.
        pages: of the whole prompt.
        tokens: of the prompt.
    """

    def __init__(
        self,
        remote: RemoteSegment,
        target: Reserved,
        pool: KvPool,
        pages: Sequence[int],
        tokens: int,
    ) -> None:
        self.lane = Lane("kv-send", depth=256)
        """`lane.done` is set when no write is in flight or will be."""
        self.checksums = [0] * pool.shape.layers
        self._remote = remote
        self._target = target
        self._pool = pool
        self._pages = pages
        self._tokens = tokens

    def send(self, layer: int, begin: int, end: int) -> None:
        """Write tokens [begin, end) of `layer`, soon. They are in the pool."""
        if begin < end:
            self.lane.submit(partial(self._send, layer, begin, end))

    def seal(self, layer: int) -> None:
        """Compute the checksum of `layer`, soon: its tokens change no more."""
        self.lane.submit(partial(self._seal, layer))

    def _send(self, layer: int, begin: int, end: int) -> None:
        shape, target = self._pool.shape, self._target
        runs = list(paired_runs(self._pages, target.pages, shape.page_tokens, begin, end))
        addresses, offsets, lengths = array("Q"), array("Q"), array("Q")
        for kv in (0, 1):
            base = self._pool.address + self._pool.offset(layer, kv, 0)
            remote_base = (layer * 2 + kv) * target.pool_pages * target.page_bytes
            addresses.extend(base + source * shape.token_bytes for source, _, _ in runs)
            offsets.extend(remote_base + slot * shape.token_bytes for _, slot, _ in runs)
            lengths.extend(count * shape.token_bytes for _, _, count in runs)
        self._remote.write(addresses, offsets, lengths)

    def _seal(self, layer: int) -> None:
        self.checksums[layer] = layer_checksum(self._pool, layer, self._pages, self._tokens)


class BlockWriter:
    """Writes one block that is being computed into the store, a layer at a time; best effort.

    A block that is there already, or whose store fails, is left alone: no request fails of it.

    Args:
        store: the client.
        chain: the names of the prompt's blocks, up to and with this one.
        lane: where the copying runs; kept open by the caller.
        pool: of the pages.
        pages: of the whole sequence.
        begin: first token of the block.
        end: behind its last.
        on_error: told, on the lane, why the block is not stored.
    """

    def __init__(
        self,
        store: StoreClient,
        chain: Sequence[bytes],
        lane: Lane,
        pool: KvPool,
        pages: Sequence[int],
        *,
        begin: int,
        end: int,
        on_error: Callable[[MooncakeError], None],
    ) -> None:
        self._lane = lane
        self._pool = pool
        self._pages = pages
        self._begin, self._end = begin, end
        self._writer: ObjectWriter | None = None
        self._on_error = on_error
        lane.submit(partial(self._guarded, partial(self._open, store, chain)))

    def layer_done(self, layer: int) -> None:
        """Write `layer`, which is in the pool, soon; commit after the last."""
        self._lane.submit(partial(self._guarded, partial(self._write, layer)))

    def abandon(self) -> None:
        """Give the object up, soon, unless it is committed."""
        self._lane.submit(partial(self._guarded, self._abort))

    def _open(self, store: StoreClient, chain: Sequence[bytes]) -> None:
        shape = self._pool.shape
        part_bytes = 2 * (self._end - self._begin) * shape.token_bytes
        self._writer = store.open_write(
            chain[-1],
            size_bytes=shape.layers * part_bytes,
            part_bytes=part_bytes,
            link=Link(parent=chain[-2] if len(chain) > 1 else b"", depth=len(chain) - 1),
        )

    def _write(self, layer: int) -> None:
        if self._writer is None:
            return
        pieces = layer_pieces(self._pool, layer, self._pages, self._begin, self._end)
        self._writer.write_part(layer, *pieces)
        if layer == self._pool.shape.layers - 1:
            self._writer.commit()  # False: another has stored the same block meanwhile
            self._writer = None

    def _abort(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()

    def _guarded(self, task: Callable[[], None]) -> None:
        """Run `task`; after an error the block is given up."""
        try:
            task()
        except MooncakeError as error:
            self._drop()
            self._on_error(error)

    def _drop(self) -> None:
        try:
            self._abort()
        except MooncakeError as error:
            log.warning("an unfinished object is left to the master: %s", error)
