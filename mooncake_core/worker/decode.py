"""A decode instance: reserves pages, checks what landed in them, writes answers in batches.

One event loop owns the reservations and the batch; steps run on the compute thread, checksums and
fences on others. The batch changes only between steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from mooncake_core.cache.page_table import PageState
from mooncake_core.cache.spans import layer_checksum
from mooncake_core.clock import Clock
from mooncake_core.errors import ChecksumMismatch, MooncakeError
from mooncake_core.messages import (
    DecodeEvent,
    DecodeRequest,
    Failed,
    Finished,
    InstanceLoad,
    Landed,
    Released,
    Reserved,
    Token,
)
from mooncake_core.model.base import SequenceInput
from mooncake_core.model.sampling import sample
from mooncake_core.worker.decode_core import Key, Reservation, Reservations, refusal
from mooncake_core.worker.metrics import DecodeMetrics
from mooncake_core.worker.peer_id import parse_peer_id
from mooncake_core.worker.runtime import PAGE_TOKENS, Runtime

log = logging.getLogger(__name__)

_TICK_S = 0.05
"""How late a deadline may be noticed."""
_FENCE_S = 0.5
"""How long one try to fence blocks one of `_FENCERS` threads."""
_FENCERS = 4
_REMEMBERED_LANDINGS = 4096
_TBT_STEPS = 16


class Decode:
    """The engine of a decode instance; on one event loop.

    Args:
        runtime: to compute with.
        metrics: counted into.
        url: of this instance's HTTP server.
        max_batch: sequences a step.
        clock: monotonic.
    """

    def __init__(
        self, runtime: Runtime, metrics: DecodeMetrics, *, url: str, max_batch: int, clock: Clock
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._url = url
        self._clock = clock
        self._core = Reservations(
            runtime.table,
            page_tokens=PAGE_TOKENS,
            context_tokens=runtime.model.context_tokens,
            max_batch=max_batch,
        )
        self._streams: dict[Key, asyncio.Queue[DecodeEvent]] = {}
        self._landings: OrderedDict[Key, asyncio.Task[Failed | None]] = OrderedDict()
        """What became of each Landed, for those that arrive twice."""
        self._has_work = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._fencers = ThreadPoolExecutor(_FENCERS, "fence")
        self._step_s: deque[float] = deque(maxlen=_TBT_STEPS)

    @property
    def load(self) -> InstanceLoad:
        """How busy this instance is."""
        table, running = self._runtime.table, len(self._core.running)
        tbt_s = sum(self._step_s) / len(self._step_s) if running and self._step_s else 0.0
        return InstanceLoad(
            queued_requests=self._core.waiting,
            running=running,
            free_pages=table.count(PageState.FREE),
            reserved_pages=table.count(PageState.OWNED),
            quarantined_pages=table.count(PageState.QUARANTINED),
            tbt_s=tbt_s,
        )

    def open(self, request: DecodeRequest) -> Reserved | Failed:
        """Reserve pages. REQUIRES: `abandon` is called in the end; `events` tells what happens."""
        if parse_peer_id(request.writer_peer_id) is None:
            return refusal(f"writer_peer_id: {request.writer_peer_id!r} is no identity in hex")
        for earlier in self._core.earlier_attempts(request):
            self._fail(earlier, f"superseded by attempt {request.attempt}", retryable=False)
        reservation = self._core.reserve(request, self._clock())
        if isinstance(reservation, Failed):
            return reservation
        self._streams[reservation.key] = asyncio.Queue()
        shape = self._runtime.pool.shape
        return Reserved(
            request_id=request.request_id,
            attempt=request.attempt,
            url=self._url,
            endpoint=self._runtime.engine.endpoint,
            segment_id=self._runtime.segment.id,
            pool_pages=self._runtime.pool.pages,
            page_bytes=shape.page_bytes,
            pages=reservation.pages[: -(-request.prompt_tokens // PAGE_TOKENS)],
        )

    async def events(self, key: Key) -> AsyncIterator[DecodeEvent]:
        """Yield tokens, and then Finished or Failed."""
        stream = self._streams[key]
        while True:
            event = await stream.get()
            yield event
            if isinstance(event, Finished | Failed):
                return

    def abandon(self, key: Key) -> None:
        """Note that nobody reads the events of `key` any more."""
        if self._streams.pop(key, None) is None:
            return
        reservation = self._core.find(key)
        if reservation is not None:
            self._core.abandon(reservation, self._clock())

    async def landed(self, message: Landed) -> Failed | None:
        """Verify a prompt's KV and put it in line; return why it is not taken, if it is not."""
        key = (message.request_id, message.attempt)
        landing = self._landings.get(key)
        if landing is None:
            reservation = self._core.land(message)
            if reservation is None:
                return Failed(
                    error=f"request {key[0]!r}, attempt {key[1]} waits for no KV", retryable=True
                )
            landing = self._spawn(self._land(reservation, message))
            self._landings[key] = landing
            if len(self._landings) > _REMEMBERED_LANDINGS:
                self._landings.popitem(last=False)
        return await asyncio.shield(landing)

    def released(self, message: Released) -> None:
        """Take back pages whose writer gave up."""
        reservation = self._core.release(message)
        if reservation is not None:
            self._tell_failed(reservation, "prefill gave the request up", retryable=True)

    async def run(self) -> None:
        """Run steps and watch deadlines until cancelled."""
        watch = self._spawn(self._watch())
        steps = self._spawn(self._run_steps())
        try:
            await asyncio.gather(watch, steps)
        finally:
            for task in (watch, steps):
                task.cancel()

    async def close(self) -> None:
        """End all streams and background work."""
        for key in list(self._streams):
            self._streams[key].put_nowait(Failed(error="the instance stops", retryable=True))
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.to_thread(self._fencers.shutdown)

    # --- landing ---------------------------------------------------------------------------------

    async def _land(self, reservation: Reservation, message: Landed) -> Failed | None:
        problem = await asyncio.to_thread(self._verify, reservation, message)
        if self._core.find(reservation.key) is not reservation:
            return Failed(error="the request was given up", retryable=True)
        if problem is not None:
            self._metrics.checksum_failures.inc()
            self._core.finish(reservation)
            self._tell_failed(reservation, problem, retryable=True, kind=ChecksumMismatch)
            return Failed(error=problem, retryable=True, kind=ChecksumMismatch.__name__)
        self._core.verified(reservation)
        if reservation.finish_reason is not None:
            self._core.finish(reservation)
            self._tell_finished(reservation)
        self._has_work.set()
        return None

    def _verify(self, reservation: Reservation, message: Landed) -> str | None:
        """Return what is wrong with the KV in the pages."""
        pool, request = self._runtime.pool, reservation.request
        if not 0 <= message.first_token < self._runtime.model.vocab:
            return f"first_token: {message.first_token} is outside the vocabulary"
        if len(message.checksums) != pool.shape.layers:
            return f"checksums: {len(message.checksums)} for {pool.shape.layers} layers"
        for layer, said in enumerate(message.checksums):
            found = layer_checksum(pool, layer, reservation.pages, request.prompt_tokens)
            if found != said:
                return f"layer {layer}: CRC-32C {found:08x}; prefill sent {said:08x}"
        return None

    # --- steps -----------------------------------------------------------------------------------

    async def _run_steps(self) -> None:
        while True:
            await self._has_work.wait()
            self._core.sweep()
            batch = self._core.admit()
            if not batch:
                self._has_work.clear()
                continue
            began_s = self._clock()
            tokens = await self._runtime.compute(partial(self._step, batch))
            self._note_step(len(batch), self._clock() - began_s)
            for reservation, token in zip(batch, tokens, strict=True):
                self._take_token(reservation, token)
            self._core.sweep()

    def _step(self, batch: Sequence[Reservation]) -> list[int]:
        """Write one token of each sequence; on the compute thread."""
        for reservation in batch:
            if len(reservation.answer) == 1:
                self._upload(reservation)
        sequences = [
            SequenceInput(
                pages=r.pages, start=r.request.prompt_tokens + len(r.answer) - 1, length=1
            )
            for r in batch
        ]
        last = torch.tensor([r.answer[-1] for r in batch])
        logits = self._runtime.model.forward(last, sequences, self._runtime.mirror.device)
        return sample(logits, [r.request.sampling for r in batch], [len(r.answer) for r in batch])

    def _upload(self, reservation: Reservation) -> None:
        """Give the model the prompt that has landed; before the first step, and never again."""
        pages = reservation.pages[: -(-reservation.request.prompt_tokens // PAGE_TOKENS)]
        for layer in range(self._runtime.pool.shape.layers):
            self._runtime.mirror.upload(layer, pages)

    def _take_token(self, reservation: Reservation, token: int) -> None:
        reservation.answer.append(token)
        self._metrics.tokens.inc()
        self._tell(reservation, Token(token_id=token, index=len(reservation.answer) - 1))
        if reservation.finish_reason is not None:
            self._tell_finished(reservation)

    def _note_step(self, sequences: int, step_s: float) -> None:
        self._step_s.append(step_s)
        self._metrics.batch_size.observe(sequences)
        self._metrics.step_seconds.observe(step_s)

    # --- deadlines and fences --------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            now_s = self._clock()
            for reservation in self._core.expire(now_s):
                waited = reservation.request.deadline_s
                self._tell_failed(
                    reservation, f"no KV has landed within {waited:.1f} s", retryable=True
                )
            for writer in self._core.writers_due(now_s):
                for reservation in self._core.bar(writer, now_s):
                    self._tell_failed(reservation, "its writer was fenced", retryable=True)
                self._spawn(self._fence(writer))

    async def _fence(self, writer: int) -> None:
        """Bar `writer`, and take its pages back once it cannot write them any more."""
        log.warning("fencing writer %016x", writer)
        self._metrics.fences.inc()
        loop = asyncio.get_running_loop()
        while not await loop.run_in_executor(self._fencers, self._try_to_fence, writer):
            await asyncio.sleep(_TICK_S)
        self._core.fenced(writer)

    def _try_to_fence(self, writer: int) -> bool:
        return self._runtime.engine.fence(writer, timeout_s=_FENCE_S)

    # --- telling ---------------------------------------------------------------------------------

    def _fail(self, reservation: Reservation, error: str, *, retryable: bool) -> None:
        self._core.abandon(reservation, self._clock())
        self._tell_failed(reservation, error, retryable=retryable)

    def _tell_failed(
        self,
        reservation: Reservation,
        error: str,
        *,
        retryable: bool,
        kind: type[MooncakeError] | None = None,
    ) -> None:
        self._metrics.requests.labels("failed").inc()
        name = kind.__name__ if kind is not None else ""
        self._tell(reservation, Failed(error=error, retryable=retryable, kind=name))

    def _tell_finished(self, reservation: Reservation) -> None:
        reason = reservation.finish_reason
        assert reason is not None
        self._metrics.requests.labels(reason).inc()
        self._tell(reservation, Finished(reason=reason, completion_tokens=len(reservation.answer)))

    def _tell(self, reservation: Reservation, event: DecodeEvent) -> None:
        stream = self._streams.get(reservation.key)
        if stream is not None:
            stream.put_nowait(event)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
