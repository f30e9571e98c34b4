"""Carries out what the request machines want: calls to instances, and the clock.

On one event loop; not thread-safe.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field

import aiohttp
import msgspec

from mooncake_core.clock import Clock
from mooncake_core.conductor.cluster import Cluster, Key
from mooncake_core.conductor.policy import Ask, Choice, Refuse, choose
from mooncake_core.conductor.request import (
    Action,
    Begin,
    Decoded,
    Done,
    Emit,
    EndAttempt,
    Event,
    GiveUp,
    InstanceLost,
    OpenDecode,
    Place,
    Placed,
    Prefilled,
    RequestMachine,
    SendPrefill,
    TimedOut,
    Unplaced,
)
from mooncake_core.messages import (
    DecodeEvent,
    DecodeRequest,
    Failed,
    Finished,
    PrefillRequest,
    PrefillResult,
    Released,
    Sampling,
)

Update = Begin | Emit | Done | GiveUp
"""What a request's owner gets to see; Done and GiveUp are the last."""

_CONNECT_S = 2.0
_RELEASE_S = 1.0
"""Decode fences a writer that has said nothing for two seconds; later is too late."""
_LINE_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Job:
    """A request whose prompt has been read."""

    request_id: str
    tokens: Sequence[int]
    names: Sequence[bytes]
    """Of the prompt's blocks; empty while the model is unknown."""
    salt: str
    sampling: Sampling
    max_tokens: int
    stop_token_ids: Sequence[int]
    store_blocks: int
    """How many leading blocks the store has."""
    avoid: frozenset[str]
    deadline_s: float
    """On the dispatcher's clock."""


@dataclass(frozen=True)
class Decision:
    """A choice or refusal, for the record."""

    request_id: str
    attempt: int
    prompt_tokens: int
    outcome: Choice | Refuse


@dataclass
class _Flight:
    """The calls of one job."""

    job: Job
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    calls: dict[int, list[asyncio.Task[None]]] = field(default_factory=dict)
    placed: dict[int, Choice] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    """Attempts whose prefill may have got its request."""
    goodbyes: list[asyncio.Task[None]] = field(default_factory=list)


class Dispatcher:
    """Runs jobs on the cluster.

    Args:
        cluster: asked and kept up to date.
        session: for calls to instances; owned by the caller.
        clock: monotonic.
        random_unit: gives numbers in [0, 1).
    """

    def __init__(
        self,
        cluster: Cluster,
        session: aiohttp.ClientSession,
        clock: Clock,
        random_unit: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._session = session
        self._clock = clock
        self._random_unit = random_unit
        self._flights: dict[str, _Flight] = {}
        self.recent: deque[Decision] = deque(maxlen=32)

    @property
    def in_flight(self) -> int:
        """Jobs that run now."""
        return len(self._flights)

    def lost(self, instance_id: str) -> None:
        """Tell all jobs that an instance is gone."""
        for flight in self._flights.values():
            flight.events.put_nowait(InstanceLost(instance_id))

    async def run(self, job: Job) -> AsyncGenerator[Update, None]:
        """Yield what happens to `job` up to its end; closing the generator cancels it."""
        machine = RequestMachine(job.max_tokens)
        assert job.request_id not in self._flights, job.request_id
        flight = self._flights[job.request_id] = _Flight(job)
        actions = machine.start()
        # A timer, not a wait with a limit: those lose cancellations before Python 3.12.
        timer = asyncio.get_running_loop().call_later(
            self._remaining_s(job), flight.events.put_nowait, TimedOut()
        )
        try:
            while machine.phase != "ended" or actions:
                for action in actions:
                    update = self._carry_out(flight, action)
                    if update is not None:
                        yield update
                actions = (
                    [] if machine.phase == "ended" else machine.step(await flight.events.get())
                )
        finally:
            timer.cancel()
            del self._flights[job.request_id]
            for attempt in list(flight.placed):
                self._end_attempt(flight, attempt)
            await _settle(flight)

    def _carry_out(self, flight: _Flight, action: Action) -> Update | None:
        match action:
            case Place():
                self._place(flight, action)
            case OpenDecode():
                self._call(flight, action.attempt, self._decode(flight, action))
            case SendPrefill():
                self._call(flight, action.attempt, self._prefill(flight, action))
            case EndAttempt():
                self._end_attempt(flight, action.attempt)
            case Begin():
                instance_id = action.choice.prefill.instance.instance_id
                self._cluster.learn(instance_id, len(flight.job.tokens), action.result)
                return action
            case _:
                return action
        return None

    def _place(self, flight: _Flight, place: Place) -> None:
        job = flight.job
        now_s = self._clock()
        outcome = choose(self._cluster.view(now_s), self._ask(job, place), self._random_unit())
        self.recent.append(Decision(job.request_id, place.attempt, len(job.tokens), outcome))
        if isinstance(outcome, Refuse):
            flight.events.put_nowait(Unplaced(outcome))
            return
        flight.placed[place.attempt] = outcome
        self._cluster.assign((job.request_id, place.attempt), outcome, now_s)
        flight.events.put_nowait(Placed(outcome))

    def _ask(self, job: Job, place: Place) -> Ask:
        model = self._cluster.model
        block_tokens = model.block_tokens if model is not None else 1
        # The last token is always computed, for its logits.
        usable = min(len(job.names), (len(job.tokens) - 1) // block_tokens)
        matched = self._cluster.match(job.names[:usable])
        return Ask(
            prompt_tokens=len(job.tokens),
            max_tokens=job.max_tokens,
            local_tokens={name: blocks * block_tokens for name, blocks in matched.items()},
            store_tokens=min(job.store_blocks, usable) * block_tokens,
            avoid=job.avoid | place.failed,
            is_admitted=place.attempt > 0,
        )

    def _call(self, flight: _Flight, attempt: int, call: Coroutine[None, None, None]) -> None:
        flight.calls.setdefault(attempt, []).append(asyncio.ensure_future(call))

    def _end_attempt(self, flight: _Flight, attempt: int) -> None:
        calls = flight.calls.get(attempt, [])
        may_be_reserved = any(not call.done() for call in calls) and attempt not in flight.asked
        for call in calls:
            call.cancel()
        choice = flight.placed.pop(attempt, None)
        if choice is not None:
            key = (flight.job.request_id, attempt)
            self._prefill_ended(key, choice)
            self._cluster.decode_ended(key, choice.decode.instance_id)
            if may_be_reserved:
                flight.goodbyes.append(asyncio.ensure_future(self._release(key, choice)))

    def _prefill_ended(self, key: Key, choice: Choice) -> None:
        self._cluster.prefill_ended(key, choice.prefill.instance.instance_id, self._clock())

    async def _decode(self, flight: _Flight, action: OpenDecode) -> None:
        """Read the decode stream into events, the last of which ends it."""
        job, attempt, decode = flight.job, action.attempt, action.choice.decode
        request = DecodeRequest(
            request_id=job.request_id,
            prompt_tokens=len(job.tokens),
            max_tokens=job.max_tokens,
            sampling=job.sampling,
            stop_token_ids=list(job.stop_token_ids),
            writer_peer_id=action.choice.prefill.instance.peer_id,
            attempt=attempt,
            deadline_s=self._remaining_s(job),
        )

        def tell(event: DecodeEvent) -> None:
            flight.events.put_nowait(Decoded(attempt, event))

        try:
            async with self._post(f"{decode.url}/v1/decode", request) as response:
                if response.status != 200:
                    tell(_failure(response.status, await response.read()))
                    return
                async for line in response.content:
                    event = msgspec.json.decode(line, type=DecodeEvent)
                    tell(event)
                    if isinstance(event, Finished | Failed):
                        return
            tell(Failed(error="it closed the stream before its end", retryable=True))
        except (aiohttp.ClientError, OSError) as error:
            self._cluster.suspect(decode.instance_id)
            tell(Failed(error=f"the connection failed: {error}", retryable=True))
        except (msgspec.MsgspecError, ValueError) as error:
            tell(Failed(error=f"it sent what is no decode event: {error}", retryable=False))

    async def _prefill(self, flight: _Flight, action: SendPrefill) -> None:
        """Call prefill and turn its answer into an event."""
        job, attempt, plan = flight.job, action.attempt, action.choice.prefill
        flight.asked.add(attempt)
        request = PrefillRequest(
            request_id=job.request_id,
            attempt=attempt,
            tokens=list(job.tokens),
            salt=job.salt,
            sampling=job.sampling,
            use_store=plan.use_store,
            target=action.target,
            writer_peer_id=plan.instance.peer_id,
            deadline_s=self._remaining_s(job),
        )
        answer = await self._ask_prefill(plan.instance.url, plan.instance.instance_id, request)
        self._prefill_ended((job.request_id, attempt), action.choice)
        flight.events.put_nowait(Prefilled(attempt, answer))

    async def _release(self, key: Key, choice: Choice) -> None:
        """Tell decode that nobody writes the pages that it may have reserved; best effort."""
        released = Released(request_id=key[0], attempt=key[1])
        url = f"{choice.decode.url}/v1/released"
        with contextlib.suppress(aiohttp.ClientError, OSError, asyncio.TimeoutError):
            async with self._post(url, released, timeout_s=_RELEASE_S):
                pass

    async def _ask_prefill(
        self, url: str, instance_id: str, request: PrefillRequest
    ) -> PrefillResult | Failed:
        try:
            async with self._post(f"{url}/v1/prefill", request) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            self._cluster.suspect(instance_id)
            return Failed(error=f"the connection failed: {error}", retryable=True)
        if response.status != 200:
            return _failure(response.status, body)
        try:
            return msgspec.json.decode(body, type=PrefillResult)
        except msgspec.MsgspecError as error:
            return Failed(error=f"it sent what is no prefill result: {error}", retryable=False)

    def _post(
        self, url: str, message: msgspec.Struct, *, timeout_s: float | None = None
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._session.post(
            url,
            data=msgspec.json.encode(message),
            headers={"Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_S),
            read_bufsize=_LINE_BYTES,
        )

    def _remaining_s(self, job: Job) -> float:
        return max(0.001, job.deadline_s - self._clock())


def _failure(status: int, body: bytes) -> Failed:
    """Read an instance's error answer; what is not in our form is taken by its status."""
    try:
        return msgspec.json.decode(body, type=Failed)
    except msgspec.MsgspecError:
        text = body[:200].decode(errors="replace")
        return Failed(error=f"HTTP {status}: {text}", retryable=status >= 500)


async def _settle(flight: _Flight) -> None:
    """Wait for cancelled calls, so that their connections are closed when this returns."""
    calls = [call for calls in flight.calls.values() for call in calls]
    for call in calls:
        call.cancel()
    for result in await asyncio.gather(*calls, *flight.goodbyes, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
