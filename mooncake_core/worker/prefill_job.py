"""One prefill request on its way through an instance: its state, and its work on two threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mooncake_core.blocks import KvIdentity, block_names
from mooncake_core.cache.lane import Lane
from mooncake_core.cache.layerwise import BlockWriter, LayerLoader, LayerSender, LoadFailed
from mooncake_core.errors import MooncakeError, RequestError
from mooncake_core.messages import PrefillRequest, PrefillResult
from mooncake_core.model.base import SequenceInput
from mooncake_core.model.sampling import sample
from mooncake_core.transfer import RemoteSegment
from mooncake_core.worker.peer_id import parse_peer_id
from mooncake_core.worker.prefill_core import chunks, reusable_blocks
from mooncake_core.worker.runtime import PAGE_TOKENS, Runtime
from mooncake_core.worker.store_port import Found, StorePort


class JobOver(MooncakeError):
    """A request was cancelled, or its time is up."""

    scope = "request"


class Refused(MooncakeError):
    """A request cannot be served here now; another try may succeed."""

    scope = "request"
    retryable = True


@dataclass
class Times:
    """Where a request's time went, in seconds."""

    created_s: float = field(default_factory=time.monotonic)
    queue_s: float = 0.0
    load_s: float = 0.0
    """While compute waited for loads."""
    compute_s: float = 0.0
    computed_s: float = 0.0
    """When compute ended."""
    send_s: float = 0.0


class Job:
    """A request. Made, cancelled and ended on the event loop; `compute` runs on another thread.

    Raises:
        RequestError: the request can never be served by this instance.
    """

    def __init__(self, request: PrefillRequest, runtime: Runtime, identity: KvIdentity) -> None:
        check_request(request, runtime)
        self.request = request
        self.reply: asyncio.Future[PrefillResult] = asyncio.get_running_loop().create_future()
        self.reply.add_done_callback(lambda reply: reply.cancelled() or reply.exception())
        self.over: MooncakeError | None = None
        self.names = block_names(
            identity.namespace(request.salt), request.tokens, runtime.block_tokens
        )
        self.held: list[bytes] = []
        """Blocks of the prefix cache that are kept for this request."""
        self.owned: list[int] = []
        """Pages that are this request's alone."""
        self.pages: list[int] = []
        """Of the whole prompt."""
        self.local_blocks = 0
        self.first_token = -1
        self.times = Times()
        self._runtime = runtime
        self._waits_as: asyncio.Task[None] | None = None
        """The task that waits in line, while it does."""
        self._pages_freed: asyncio.Event | None = None
        self.computed_end = 0
        """Behind the last chunk that is whole in the pages."""
        self.is_answered = False
        self._loader: LayerLoader | None = None
        self._is_loaded = False
        """Whatever of the loads will be there is there."""
        self._sender: LayerSender | None = None
        self._storing: Lane | None = None
        self._store: StorePort | None = None

    @property
    def key(self) -> tuple[str, int]:
        """What messages name this try by."""
        return self.request.request_id, self.request.attempt

    @property
    def is_waiting(self) -> bool:
        """Whether it stands in line."""
        return self._waits_as is not None

    @property
    def tokens_left(self) -> int:
        """Tokens that are still to be computed, as far as is known."""
        return len(self.request.tokens) - max(self.cached_tokens, self.computed_end)

    @property
    def writer(self) -> int:
        """The peer id that the target was granted to."""
        return int(self.request.writer_peer_id, 16)

    @property
    def page_count(self) -> int:
        """Pages that the prompt takes."""
        return -(-len(self.request.tokens) // PAGE_TOKENS)

    @property
    def reusable_blocks(self) -> int:
        """Leading blocks that need not be computed."""
        return reusable_blocks(len(self.request.tokens), self._runtime.block_tokens)

    @property
    def loaded_blocks(self) -> int:
        """Blocks from the store; final after `join_loader`."""
        return 0 if self._loader is None else self._loader.good_blocks

    @property
    def cached_tokens(self) -> int:
        """Tokens that are not computed here."""
        return (self.local_blocks + self.loaded_blocks) * self._runtime.block_tokens

    @property
    def whole_blocks(self) -> int:
        """Leading blocks whose KV is in the pages; final after compute and `join_loader`."""
        return max(
            self.local_blocks + self.loaded_blocks, self.computed_end // self._runtime.block_tokens
        )

    @property
    def send_failure(self) -> BaseException | None:
        """Why writes to decode failed, if they did."""
        return None if self._sender is None else self._sender.lane.failure

    # --- on the event loop -----------------------------------------------------------------------

    def cancel(self, reason: MooncakeError) -> None:
        """Stop at the next layer, piece or turn."""
        if self.over is not None:
            return
        self.over = reason
        if self._waits_as is not None:
            self._waits_as.cancel()
        if self._pages_freed is not None:
            self._pages_freed.set()
        if self._loader is not None:
            self._loader.stop()
        if self._sender is not None:
            self._sender.lane.stop(reason)

    async def wait_in_line(self, turn: asyncio.Lock) -> None:
        """Take `turn` when all before have had it; the end of this request ends the wait."""
        self._waits_as = asyncio.current_task()
        try:
            await turn.acquire()
        except asyncio.CancelledError:
            raise self.over or JobOver("the instance stops") from None
        finally:
            self._waits_as = None
            self.times.queue_s = time.monotonic() - self.times.created_s

    async def wait_for(self, event: asyncio.Event) -> None:
        """Wait for `event`; the end of this request sets it too, and is raised."""
        self._pages_freed = event
        event.clear()
        await event.wait()
        self.check()

    def check_target(self, size_bytes: int) -> None:
        """Raise RequestError unless the target lies in a segment of `size_bytes`."""
        target = self.request.target
        end = 2 * self._runtime.pool.shape.layers * target.pool_pages * target.page_bytes
        if end > size_bytes:
            raise RequestError(
                f"request {self.request.request_id!r}: target: {target.pool_pages} pages take "
                f"{end} bytes; segment {target.segment_id} has {size_bytes}"
            )

    def start(self, remote: RemoteSegment, store: StorePort, found: Found) -> None:
        """Begin to send what is here, to load what was found, and to store what was not."""
        runtime, request = self._runtime, self.request
        sender = LayerSender(remote, request.target, runtime.pool, self.pages, len(request.tokens))
        self._sender = sender
        local_tokens = self.local_blocks * runtime.block_tokens
        for layer in range(runtime.pool.shape.layers):
            sender.send(layer, 0, local_tokens)
        if found.reader is not None:
            self._loader = LayerLoader(
                found.reader,
                runtime.mirror,
                self.pages,
                first_token=local_tokens,
                block_tokens=runtime.block_tokens,
                on_layer=lambda layer, end: sender.send(layer, local_tokens, end),
            )
        self._start_storing(store, found.present_blocks)

    async def join_loader(self) -> None:
        """Return when nothing is loaded into the pages any more."""
        if self._loader is not None:
            await asyncio.to_thread(self._loader.join)

    async def sent(self) -> list[int]:
        """Wait for all writes; return the checksums. Raises what stopped the writes."""
        assert self._sender is not None
        self._sender.lane.close()
        await asyncio.wrap_future(self._sender.lane.done)
        return self._sender.checksums

    async def stop_sending(self, reason: Exception) -> None:
        """Return when no write to decode is in flight or will be."""
        if self._sender is not None:
            self._sender.lane.stop(reason)
            self._sender.lane.close()
            await _ended(self._sender.lane)

    async def settle(self) -> None:
        """Return when nothing uses the pages any more."""
        if self._storing is not None:
            self._storing.close()
            await _ended(self._storing)

    def answer(self) -> None:
        """Give the result to whoever waits for it."""
        self.times.send_s = time.monotonic() - self.times.computed_s
        self.is_answered = True
        if self.reply.done():
            return
        block_tokens = self._runtime.block_tokens
        self.reply.set_result(
            PrefillResult(
                request_id=self.request.request_id,
                attempt=self.request.attempt,
                first_token=self.first_token,
                cached_tokens=self.cached_tokens,
                local_tokens=self.local_blocks * block_tokens,
                store_tokens=self.loaded_blocks * block_tokens,
                queue_s=self.times.queue_s,
                load_s=self.times.load_s,
                compute_s=self.times.compute_s,
                send_s=self.times.send_s,
            )
        )

    def fail(self, error: BaseException) -> None:
        """Give `error` to whoever waits for the result."""
        if not self.reply.done():
            self.reply.set_exception(error)

    # --- on the compute thread -------------------------------------------------------------------

    def check(self) -> None:
        """Raise why this request goes no further, if it does not."""
        if self.over is not None:
            raise self.over
        if self.send_failure is not None:
            raise self.send_failure

    def compute(self) -> None:
        """Compute what is not cached, and sample the first token."""
        began_s = time.monotonic()
        try:
            logits = self._compute_from(self.local_blocks + self.loaded_blocks)
        except LoadFailed:
            assert self._loader is not None
            self._loader.join()
            self._is_loaded = True
            logits = self._compute_from(self.local_blocks + self.loaded_blocks)
        self.first_token = sample(logits, [self.request.sampling], [0])[0]
        times = self.times
        times.computed_s = time.monotonic()
        times.load_s = 0.0 if self._loader is None else self._loader.waited_s
        times.compute_s = times.computed_s - began_s - times.load_s

    def _compute_from(self, first_block: int) -> Tensor:
        tokens, logits = self.request.tokens, None
        for begin, end in chunks(len(tokens), self._runtime.block_tokens, first_block):
            writer = self._block_writer(begin, end)
            hooks = _ChunkHooks(self, writer, begin, end)
            sequence = SequenceInput(pages=self.pages, start=begin, length=end - begin)
            try:
                logits = self._runtime.model.forward(
                    torch.tensor(tokens[begin:end]), [sequence], self._runtime.mirror.device, hooks
                )
            except BaseException:
                if writer is not None:
                    writer.abandon()
                raise
            self.computed_end = end
        assert logits is not None, (len(tokens), first_block)
        return logits

    def layer_begins(self, layer: int) -> None:
        """Wait until the cached KV of `layer` is in the pages."""
        self.check()
        if self._loader is not None and not self._is_loaded:
            self._loader.wait(layer)

    def layer_ended(self, layer: int, begin: int, end: int) -> None:
        """Send the new KV of `layer`."""
        assert self._sender is not None
        pages = self.pages[begin // PAGE_TOKENS : -(-end // PAGE_TOKENS)]
        self._runtime.mirror.download(layer, pages)
        self._sender.send(layer, begin, end)
        if end == len(self.request.tokens):
            self._sender.seal(layer)

    def _start_storing(self, store: StorePort, present_blocks: int) -> None:
        """Store the local blocks that the store does not have, and those to be computed."""
        if not self.names or not store.is_usable:
            return
        self._store = store
        self._storing = Lane("kv-store", depth=1 << 16)
        for index in range(present_blocks, self.local_blocks):
            begin = index * self._runtime.block_tokens
            writer = self._block_writer(begin, begin + self._runtime.block_tokens)
            if writer is not None:
                for layer in range(self._runtime.pool.shape.layers):
                    writer.layer_done(layer)

    def _block_writer(self, begin: int, end: int) -> BlockWriter | None:
        """Return a writer for the chunk [begin, end), if it is a block and the store keeps up."""
        block_tokens, layers = self._runtime.block_tokens, self._runtime.pool.shape.layers
        if self._store is None or self._storing is None or end - begin < block_tokens:
            return None
        if not self._store.is_usable or self._storing.backlog > 8 * layers:
            return None
        return BlockWriter(
            self._store.client,
            self.names[: begin // block_tokens + 1],
            self._storing,
            self._runtime.pool,
            self.pages,
            begin=begin,
            end=end,
            on_error=self._store.note,
        )


@dataclass(frozen=True)
class _ChunkHooks:
    """LayerHooks of one chunk of one job."""

    job: Job
    writer: BlockWriter | None
    begin: int
    end: int

    def before_layer(self, layer: int) -> None:
        self.job.layer_begins(layer)

    def after_layer(self, layer: int) -> None:
        self.job.layer_ended(layer, self.begin, self.end)
        if self.writer is not None:
            self.writer.layer_done(layer)


def check_request(request: PrefillRequest, runtime: Runtime) -> None:
    """Raise RequestError when this instance can never serve `request`."""
    for problem in _problems(request, runtime):
        raise RequestError(f"request {request.request_id!r}: {problem}")


def _problems(request: PrefillRequest, runtime: Runtime) -> Iterator[str]:
    tokens, target, model, pool = request.tokens, request.target, runtime.model, runtime.pool
    pages = -(-len(tokens) // PAGE_TOKENS)
    if not tokens:
        yield "tokens: the prompt is empty"
    elif min(tokens) < 0 or max(tokens) >= model.vocab:
        yield f"tokens: some are outside [0, {model.vocab})"
    if len(tokens) > model.context_tokens:
        yield f"tokens: {len(tokens)} are more than the model's {model.context_tokens}"
    if pages > pool.pages:
        yield f"tokens: {len(tokens)} need {pages} pages of KV; this instance has {pool.pages}"
    if len(target.pages) != pages:
        yield f"target.pages: {len(target.pages)}; {len(tokens)} tokens take {pages}"
    elif not all(0 <= page < target.pool_pages for page in target.pages):
        yield f"target.pages: some are outside [0, {target.pool_pages})"
    if target.page_bytes != pool.shape.page_bytes:
        yield f"target.page_bytes: {target.page_bytes}; a page here has {pool.shape.page_bytes}"
    if parse_peer_id(request.writer_peer_id) is None:
        yield f"writer_peer_id: {request.writer_peer_id!r} is no identity in hex"


async def _ended(lane: Lane) -> None:
    """Wait for the end of `lane`, however it ends."""
    done = asyncio.wrap_future(lane.done)
    await asyncio.wait([done])
    done.exception()
