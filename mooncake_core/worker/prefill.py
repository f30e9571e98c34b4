"""A prefill instance: reads prompts, one after the other, and hands their KV to decode.

One asyncio task carries a request through, and alone touches pages and the prefix cache:

    its turn ─► find prefix, take pages ─► [compute thread: chunks] ─► keep blocks ─► turn ends
                        │ loader thread         │ send lane, store lane, behind the compute
                        └──────► pages ─────────┴─► writes done ─► Landed ─► answer ─► pages back

A request that ends otherwise stops at the next layer, waits until none of its writes is in flight,
and says Released. Where that cannot be known, it says nothing, and decode fences this instance.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from mooncake_core.cache.page_table import PageState
from mooncake_core.cache.prefix_cache import PrefixCache
from mooncake_core.errors import Fenced, MooncakeError, PeerUnreachable, RequestError, TransferError
from mooncake_core.messages import (
    Failed,
    InstanceLoad,
    Landed,
    PrefillRequest,
    PrefillResult,
    Released,
    kv_identity,
)
from mooncake_core.worker.http import Peers
from mooncake_core.worker.metrics import PrefillMetrics
from mooncake_core.worker.prefill_job import Job, JobOver, Refused
from mooncake_core.worker.remotes import Remotes
from mooncake_core.worker.runtime import PAGE_TOKENS, Runtime
from mooncake_core.worker.store_port import Found, StorePort

log = logging.getLogger(__name__)

_CONFIRM_S = 5.0
"""How long decode may take to confirm a message."""
_TRIES = 3
_PAUSE_S = 0.05
_CLOSE_S = 5.0
"""How long a stop waits for decode instances that do not answer."""


class Prefill:
    """The engine of a prefill instance; on one event loop.

    Args:
        runtime: to compute with.
        store: the pool of KV blocks.
        peers: carries messages to decode.
        metrics: counted into.
        tokens_per_s: as calibrated.
        on_news: called when blocks entered or left the prefix cache, or the peer id is a new one.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: StorePort,
        peers: Peers,
        metrics: PrefillMetrics,
        *,
        tokens_per_s: float,
        on_news: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._peers = peers
        self._metrics = metrics
        self._on_news = on_news
        self.cache = PrefixCache(runtime.table)
        self.tokens_per_s = tokens_per_s
        self._identity = kv_identity(runtime.info)
        self._remotes = Remotes(runtime.engine)
        self._turn = asyncio.Lock()
        self._rotation = asyncio.Lock()
        self._pages_freed = asyncio.Event()
        self._jobs: dict[tuple[str, int], Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def load(self) -> InstanceLoad:
        """How busy this instance is."""
        table = self._runtime.table
        return InstanceLoad(
            queued_requests=sum(job.is_waiting for job in self._jobs.values()),
            queued_tokens=sum(job.tokens_left for job in self._jobs.values()),
            running=int(self._turn.locked()),
            free_pages=table.count(PageState.FREE) + self.cache.evictable_pages(),
            reserved_pages=table.count(PageState.OWNED),
            prefill_tokens_per_s=self.tokens_per_s,
        )

    async def run(self, request: PrefillRequest) -> PrefillResult:
        """Serve one request; cancelling this call cancels it.

        Raises:
            RequestError: it can never be served as it is.
            MooncakeError: it failed, or was refused for now.
        """
        if (request.request_id, request.attempt) in self._jobs:
            raise RequestError(f"request {request.request_id!r}, attempt {request.attempt} is here")
        try:
            job = self._take(request)
        except MooncakeError:
            self._spawn(self._say_released(request))
            raise
        self._jobs[job.key] = job
        self._spawn(self._serve(job))
        try:
            return await asyncio.shield(job.reply)
        except asyncio.CancelledError:
            job.cancel(JobOver("the client is gone"))
            raise

    async def close(self) -> None:
        """Cancel all requests and wait a little until nothing of them is left."""
        for job in self._jobs.values():
            job.cancel(JobOver("the instance stops"))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_S)
        for task in self._tasks:
            task.cancel()
        self._remotes.clear()

    def _take(self, request: PrefillRequest) -> Job:
        job = Job(request, self._runtime, self._identity)
        if job.writer != self._runtime.engine.peer_id:
            raise Refused(
                f"the pages are granted to writer {request.writer_peer_id}, which this instance "
                "is not or no longer; reserve them for its current identity"
            )
        return job

    async def _serve(self, job: Job) -> None:
        """Carry `job` from its turn to its end, whatever happens."""
        timer = asyncio.get_running_loop().call_later(
            job.request.deadline_s, job.cancel, JobOver("the deadline of the request has passed")
        )
        try:
            await self._compute_in_turn(job)
            await self._hand_over(job)
            job.answer()
        except Exception as error:  # raised again to whoever waits for the answer
            await self._let_go(job, error)
        finally:
            timer.cancel()
            await job.settle()
            self._give_back(job)

    async def _compute_in_turn(self, job: Job) -> None:
        """Wait in line, then compute."""
        await job.wait_in_line(self._turn)
        try:
            try:
                await self._prepare(job)
                await self._runtime.compute(job.compute)
            finally:
                await job.join_loader()
                self._keep_blocks(job)
        finally:
            self._turn.release()
        self._note_speed(job)

    async def _prepare(self, job: Job) -> None:
        """Find the longest prefix, take pages, and begin to load, send and store."""
        job.check()
        job.local_blocks = self.cache.match(job.names[: job.reusable_blocks])
        job.held = job.names[: job.local_blocks]
        local_pages = self.cache.acquire(job.held)
        job.owned = await self._take_pages(job, job.page_count - len(local_pages), local_pages)
        job.pages = local_pages + job.owned
        remote = await self._remotes.open(job.request.target)
        if self._runtime.engine.peer_id != job.writer:
            raise Fenced("this instance was fenced before it began to write")
        job.check_target(remote.size_bytes)
        job.start(remote, self._store, await self._find(job))

    async def _find(self, job: Job) -> Found:
        reusable = job.reusable_blocks if job.request.use_store else 0
        return await asyncio.to_thread(self._store.find, job.names, job.local_blocks, reusable)

    async def _take_pages(self, job: Job, count: int, local_pages: list[int]) -> list[int]:
        """Return `count` pages; wait for those of requests that are being handed over."""
        while not self.cache.make_room(count):
            await job.wait_for(self._pages_freed)
        after = local_pages[-1] if local_pages else None
        pages = self._runtime.table.allocate(count, after=after)
        assert pages is not None, count
        return pages

    def _keep_blocks(self, job: Job) -> None:
        """Move the whole blocks that are in the pages now into the prefix cache."""
        pages_a_block = self._runtime.block_tokens // PAGE_TOKENS
        for index in range(len(job.held), job.whole_blocks):
            parent = job.names[index - 1] if index else None
            pages = job.pages[index * pages_a_block : (index + 1) * pages_a_block]
            if not self.cache.insert(job.names[index], parent, pages):
                break
            job.held = job.names[: index + 1]
            job.owned = job.pages[(index + 1) * pages_a_block :]
        self._on_news()

    async def _hand_over(self, job: Job) -> None:
        """Wait for the writes, then tell decode, until it has confirmed."""
        request = job.request
        landed = Landed(
            request_id=request.request_id,
            attempt=request.attempt,
            first_token=job.first_token,
            checksums=await job.sent(),
        )
        status, body = await self._post(f"{request.target.url}/v1/landed", landed)
        if status != 200:
            raise Refused(f"decode did not take the prompt: {_reason(body)}")

    async def _let_go(self, job: Job, error: Exception) -> None:
        """Tell those who wait for a failed job, once it writes no more."""
        log.info("request %s is over: %s", job.request.request_id, error)
        await job.stop_sending(error)
        causes = (error, job.send_failure)
        if any(isinstance(cause, Fenced) for cause in causes):
            await self._take_new_identity(job.writer)
        if any(isinstance(cause, TransferError) for cause in causes):
            self._remotes.drop(job.request.target)
            job.fail(Refused(f"the KV did not reach decode: {job.send_failure or error}"))
        job.fail(error)
        if not isinstance(job.send_failure, TransferError) and not isinstance(error, Fenced):
            await self._say_released(job.request)

    async def _take_new_identity(self, fenced: int) -> None:
        """Replace the peer id `fenced`, unless that was done already, for example by the store."""
        async with self._rotation:
            if self._runtime.engine.peer_id == fenced:
                log.warning("this instance was fenced; it takes a new identity")
                await asyncio.to_thread(self._runtime.engine.rotate)
                self._metrics.identities.inc()
        self._on_news()

    async def _say_released(self, request: PrefillRequest) -> None:
        released = Released(request_id=request.request_id, attempt=request.attempt)
        with contextlib.suppress(PeerUnreachable):
            await self._post(f"{request.target.url}/v1/released", released)

    async def _post(self, url: str, message: Landed | Released) -> tuple[int, bytes]:
        """Send a message, which may arrive twice."""
        error: OSError | None = None
        for _ in range(_TRIES):
            try:
                return await self._peers.post(url, message, _CONFIRM_S)
            except OSError as failure:
                error = failure
            if isinstance(error, TimeoutError):
                break
            await asyncio.sleep(_PAUSE_S)
        raise PeerUnreachable(f"decode does not answer: {error}") from error

    def _give_back(self, job: Job) -> None:
        self.cache.release(job.held)
        self._runtime.table.free(job.owned)
        del self._jobs[job.key]
        self._pages_freed.set()
        self._count(job)

    def _count(self, job: Job) -> None:
        metrics, times = self._metrics, job.times
        metrics.requests.labels("landed" if job.is_answered else "failed").inc()
        computed = max(0, job.computed_end - job.cached_tokens)
        metrics.tokens.labels("local").inc(job.local_blocks * self._runtime.block_tokens)
        metrics.tokens.labels("store").inc(job.loaded_blocks * self._runtime.block_tokens)
        metrics.tokens.labels("computed").inc(computed)
        for phase in ("queue", "load", "compute", "send"):
            metrics.seconds.labels(phase).observe(getattr(times, f"{phase}_s"))

    def _note_speed(self, job: Job) -> None:
        computed = len(job.request.tokens) - job.cached_tokens
        if computed >= self._runtime.block_tokens // 2 and job.times.compute_s > 0:
            self.tokens_per_s += 0.3 * (computed / job.times.compute_s - self.tokens_per_s)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _reason(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=Failed).error
    except msgspec.MsgspecError:
        return body[:200].decode(errors="replace")
