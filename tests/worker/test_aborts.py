"""Whoever fails, at whatever moment: the answer is whole or an error, and all pages come back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from serving import (
    Asker,
    Stream,
    decode_config,
    model_config,
    plain_answer,
    prefill_config,
    prompt_of,
    reference_model,
    running,
    until,
)

from mooncake_core.config import DecodeConfig, ModelConfig, PrefillConfig, TransferConfig
from mooncake_core.messages import (
    DecodeEvent,
    Failed,
    Finished,
    Landed,
    PrefillRequest,
    Released,
    Reserved,
    Token,
)
from mooncake_core.model.base import Model
from mooncake_core.worker.decode_service import serve_decode
from mooncake_core.worker.prefill_service import serve_prefill

# Slow enough that a prompt can be caught on its way.
SLOW = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8}
PROMPT = 3000
ROOT = Path(__file__).parents[2]


@dataclass
class World:
    """A decode instance, and who asks it. Prefill instances come and go."""

    config: ModelConfig
    decode: str
    asker: Asker
    model: Model

    async def answers(self, prefill: str) -> None:
        """Check that a request is served as ever."""
        prompt = prompt_of(300, seed=9)
        answer = await self.asker.ask(prefill, self.decode, prompt, 4)
        assert answer.tokens == plain_answer(self.model, prompt, 4), answer

    async def is_clean(self) -> bool:
        """Whether every page of decode is free."""
        status = await self.asker.status(self.decode)
        return bool(status["load"]["free_pages"] == status["instance"]["pages"])

    async def quarantined(self) -> int:
        return int((await self.asker.status(self.decode))["load"]["quarantined_pages"])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    config = model_config(tmp_path, **SLOW)
    async with running((serve_decode, decode_config(config))) as (decode,), Asker() as asker:
        yield World(config, decode.url, asker, reference_model(config))


@pytest.fixture
async def prefill(world: World) -> AsyncIterator[str]:
    async with running((serve_prefill, prefill_config(world.config))) as (server,):
        yield server.url


@dataclass
class Child:
    """An instance in a process of its own."""

    process: asyncio.subprocess.Process
    url: str

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@contextlib.asynccontextmanager
async def child_of(config: PrefillConfig | DecodeConfig) -> AsyncIterator[Child]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("instance_process.py")),
        "prefill" if isinstance(config, PrefillConfig) else "decode",
        msgspec.json.encode(config).decode(),
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        addresses = json.loads(await process.stdout.readline())
        yield Child(process, f"http://{addresses['http']}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
async def child(world: World) -> AsyncIterator[Child]:
    async with child_of(prefill_config(world.config)) as child:
        yield child


class Gate:
    """Stands before decode's HTTP server and holds back what prefill says at the end."""

    def __init__(self, decode: str, asker: Asker) -> None:
        self._decode = decode
        self._asker = asker
        self.arrived = asyncio.Event()
        self.open = asyncio.Event()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.add_routes([web.post("/{path:.*}", self._pass)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        try:
            yield f"http://{host}:{port}"
        finally:
            self.open.set()
            await runner.cleanup()

    async def _pass(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.path == "/v1/landed":
            self.arrived.set()
            await self.open.wait()
        status, answer = await self._asker.post(f"{self._decode}{request.path}", body)
        return web.Response(status=status, body=answer)


@contextlib.asynccontextmanager
async def begun(
    asker: Asker, prefill: str, stream: Stream, prompt: list[int], gate: str | None = None
) -> AsyncIterator[asyncio.Task[tuple[int, bytes]]]:
    """Have a prompt prefilled; `gate` is told as decode's address."""
    request = stream.prefill_request(prompt)
    if gate is not None:
        target = msgspec.structs.replace(request.target, url=gate)
        request = msgspec.structs.replace(request, target=target)
    call = asyncio.ensure_future(asker.post(f"{prefill}/v1/prefill", request))
    try:
        yield call
    finally:
        call.cancel()
        await asyncio.wait([call])


async def is_under_way(asker: Asker, prefill: str) -> bool:
    """Whether some chunks, not all, have been computed."""
    load = (await asker.status(prefill))["load"]
    return bool(load["running"] and 0 < load["queued_tokens"] < PROMPT)


async def rest(stream: Stream) -> list[DecodeEvent]:
    return [event async for event in stream.events()]


# --- prefill is killed ---------------------------------------------------------------------------


async def test_prefill_dies_before_it_was_asked(world: World, child: Child) -> None:
    async with world.asker.reserve(child.url, world.decode, prompt_of(PROMPT)):
        await child.kill()
    assert not await world.is_clean()
    await until(world.is_clean)


async def test_prefill_dies_under_way(world: World, child: Child) -> None:
    prompt = prompt_of(PROMPT)
    async with (
        world.asker.reserve(child.url, world.decode, prompt) as stream,
        begun(world.asker, child.url, stream, prompt),
    ):
        await until(lambda: is_under_way(world.asker, child.url))
        await child.kill()
    await until(world.is_clean)
    async with child_of(prefill_config(world.config)) as restarted:
        await world.answers(restarted.url)


async def test_prefill_dies_between_its_last_write_and_landed(world: World, child: Child) -> None:
    prompt, gate = prompt_of(300), Gate(world.decode, world.asker)
    async with (
        gate.serving() as url,
        world.asker.reserve(child.url, world.decode, prompt, deadline_s=5.0) as stream,
    ):
        async with begun(world.asker, child.url, stream, prompt, url):
            await asyncio.wait_for(gate.arrived.wait(), 30)
            await child.kill()
        events = await asyncio.wait_for(rest(stream), 10)
        assert [type(event) for event in events] == [Failed]
    await until(world.is_clean)


async def test_an_answer_outlives_the_prefill_that_began_it(world: World, child: Child) -> None:
    prompt = prompt_of(300)
    async with world.asker.reserve(child.url, world.decode, prompt, 40) as stream:
        status, body = await world.asker.post(
            f"{child.url}/v1/prefill", stream.prefill_request(prompt)
        )
        assert status == 200
        await child.kill()
        tokens = [msgspec.json.decode(body)["first_token"]]
        events = await rest(stream)
        tokens += [event.token_id for event in events if isinstance(event, Token)]
        assert tokens == plain_answer(world.model, prompt, 40)
        assert isinstance(events[-1], Finished)
    await until(world.is_clean)


# --- prefill is stopped, not dead ----------------------------------------------------------------


async def test_pages_stay_quarantined_while_a_stopped_prefill_maps_them(
    world: World, child: Child
) -> None:
    prompt = prompt_of(PROMPT)
    async with (
        world.asker.reserve(child.url, world.decode, prompt, deadline_s=20) as stream,
        begun(world.asker, child.url, stream, prompt),
    ):
        await until(lambda: is_under_way(world.asker, child.url))
        child.process.send_signal(signal.SIGSTOP)
    await until(lambda: is_fencing(world))
    async with running((serve_prefill, prefill_config(world.config))) as (other,):
        await world.answers(other.url)
    assert await world.quarantined() == -(-(PROMPT + 8) // 16)
    await child.kill()
    await until(world.is_clean)


async def test_a_prefill_that_wakes_up_fenced_takes_a_new_identity(
    world: World, child: Child
) -> None:
    prompt = prompt_of(PROMPT)
    async with (
        world.asker.reserve(child.url, world.decode, prompt, deadline_s=20) as stream,
        begun(world.asker, child.url, stream, prompt),
    ):
        await until(lambda: is_under_way(world.asker, child.url))
        child.process.send_signal(signal.SIGSTOP)
    await until(lambda: is_fencing(world))
    child.process.send_signal(signal.SIGCONT)
    await until(world.is_clean)
    old_peer_id = stream.request.writer_peer_id

    async def is_renewed() -> bool:
        await world.asker.ask(child.url, world.decode, prompt_of(300), 2)
        return (await world.asker.status(child.url))["instance"]["peer_id"] != old_peer_id

    await until(is_renewed)
    await world.answers(child.url)
    await until(world.is_clean)


async def test_a_stopped_prefill_across_the_network_is_cut_off_alive(world: World) -> None:
    """Its connection is the owner's to close, so nothing has to wait for it."""
    network = TransferConfig(same_host="network")
    prompt = prompt_of(PROMPT)
    async with child_of(prefill_config(world.config, transfer=network)) as child:
        async with (
            world.asker.reserve(child.url, world.decode, prompt, deadline_s=20) as stream,
            begun(world.asker, child.url, stream, prompt),
        ):
            await until(lambda: is_under_way(world.asker, child.url))
            child.process.send_signal(signal.SIGSTOP)
        await until(world.is_clean)
        child.process.send_signal(signal.SIGCONT)


async def test_an_idle_prefill_that_is_fenced_gives_its_mapping_up_and_serves_again(
    world: World, child: Child
) -> None:
    await world.answers(child.url)
    async with world.asker.reserve(child.url, world.decode, prompt_of(PROMPT)):
        pass
    await until(world.is_clean)

    async def serves() -> bool:
        answer = await world.asker.ask(child.url, world.decode, prompt_of(300), 2)
        return isinstance(answer.end, Finished)

    await until(serves)


async def is_fencing(world: World) -> bool:
    return await world.asker.metric(world.decode, "mooncake_decode_fences_total") == 1


async def test_a_prompt_that_lands_too_late_fails_and_is_not_run(
    world: World, prefill: str
) -> None:
    prompt, gate = prompt_of(300), Gate(world.decode, world.asker)
    async with (
        gate.serving() as url,
        world.asker.reserve(prefill, world.decode, prompt, deadline_s=1.0) as stream,
        begun(world.asker, prefill, stream, prompt, url) as call,
    ):
        events = await asyncio.wait_for(rest(stream), 10)
        assert [type(event) for event in events] == [Failed]
        assert "landed" in events[0].error and events[0].retryable
        gate.open.set()
        status, body = await call
        assert status == 503, body
    await until(world.is_clean)


# --- decode fails --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_prefill_whose_decode_fails_under_way_says_so_and_serves_others(
    world: World, prefill: str, how: signal.Signals
) -> None:
    prompt = prompt_of(PROMPT)
    async with child_of(decode_config(world.config)) as decode:
        async with (
            world.asker.reserve(prefill, decode.url, prompt) as stream,
            begun(world.asker, prefill, stream, prompt) as call,
        ):
            await until(lambda: is_under_way(world.asker, prefill))
            decode.process.send_signal(how)
            status, body = await asyncio.wait_for(call, 40)
            assert status == 503
            assert msgspec.json.decode(body, type=Failed).retryable
        await until(lambda: is_idle(world, prefill))
    await world.answers(prefill)


# --- cancellations -------------------------------------------------------------------------------


async def is_idle(world: World, prefill: str) -> bool:
    load = (await world.asker.status(prefill))["load"]
    return not (load["running"] or load["reserved_pages"] or load["queued_requests"])


async def test_a_client_that_goes_before_prefill_was_asked_costs_one_fence(
    world: World, prefill: str
) -> None:
    async with world.asker.reserve(prefill, world.decode, prompt_of(PROMPT)):
        pass
    await until(world.is_clean)


async def test_a_client_that_goes_under_way_frees_all_without_a_fence(
    world: World, prefill: str
) -> None:
    prompt = prompt_of(PROMPT)
    async with (
        world.asker.reserve(prefill, world.decode, prompt) as stream,
        begun(world.asker, prefill, stream, prompt),
    ):
        await until(lambda: is_under_way(world.asker, prefill))
    await until(world.is_clean)
    await until(lambda: is_idle(world, prefill))
    assert await world.asker.metric(world.decode, "mooncake_decode_fences_total") == 0
    await world.answers(prefill)


async def test_a_client_that_goes_after_the_last_layer_frees_all(
    world: World, prefill: str
) -> None:
    prompt, gate = prompt_of(600), Gate(world.decode, world.asker)
    async with gate.serving() as url:
        async with (
            world.asker.reserve(prefill, world.decode, prompt) as stream,
            begun(world.asker, prefill, stream, prompt, url),
        ):
            await asyncio.wait_for(gate.arrived.wait(), 30)
        gate.open.set()
        await until(world.is_clean)
        await until(lambda: is_idle(world, prefill))
    assert await world.asker.metric(world.decode, "mooncake_decode_tokens_total") == 0


async def test_a_client_that_goes_while_it_is_answered_frees_all(
    world: World, prefill: str
) -> None:
    prompt = prompt_of(300)
    async with world.asker.reserve(prefill, world.decode, prompt, 2000) as stream:
        await world.asker.post(f"{prefill}/v1/prefill", stream.prefill_request(prompt))
        async for event in stream.events():
            assert isinstance(event, Token)
            break
    await until(world.is_clean)


async def test_a_prefill_cancelled_in_line_releases_at_once(world: World, prefill: str) -> None:
    long, short = prompt_of(PROMPT), prompt_of(200, seed=1)
    async with (
        world.asker.reserve(prefill, world.decode, long, 4) as first,
        world.asker.reserve(prefill, world.decode, short) as second,
        begun(world.asker, prefill, first, long) as call,
    ):
        await until(lambda: is_under_way(world.asker, prefill))
        async with begun(world.asker, prefill, second, short):

            async def is_in_line() -> bool:
                return bool((await world.asker.status(prefill))["load"]["queued_requests"])

            await until(is_in_line)
        (event,) = await asyncio.wait_for(rest(second), 10)
        assert isinstance(event, Failed) and event.retryable
        status, body = await call
        assert status == 200
        tokens = [msgspec.json.decode(body)["first_token"]]
        tokens += [event.token_id for event in await rest(first) if isinstance(event, Token)]
        assert tokens == plain_answer(world.model, long, 4)
    await until(world.is_clean)


async def test_a_prefill_whose_deadline_passes_says_so_and_releases(
    world: World, prefill: str
) -> None:
    prompt = prompt_of(PROMPT)
    async with world.asker.reserve(prefill, world.decode, prompt) as stream:
        request = stream.prefill_request(prompt, deadline_s=0.05)
        status, body = await world.asker.post(f"{prefill}/v1/prefill", request)
        assert status == 503
        assert "deadline" in msgspec.json.decode(body, type=Failed).error
        (event,) = await asyncio.wait_for(rest(stream), 10)
        assert isinstance(event, Failed)
    await until(world.is_clean)


# --- messages that should not be -----------------------------------------------------------------


def landed_for(request: PrefillRequest, checksums: list[int]) -> Landed:
    return Landed(request_id=request.request_id, attempt=0, first_token=3, checksums=checksums)


@pytest.mark.parametrize("checksums", [[1] * 8, [], [0] * 9])
async def test_kv_that_is_not_what_was_sent_is_never_run(
    world: World, prefill: str, checksums: list[int]
) -> None:
    prompt = prompt_of(300)
    async with world.asker.reserve(prefill, world.decode, prompt) as stream:
        landed = landed_for(stream.prefill_request(prompt), checksums)
        status, body = await world.asker.post(f"{world.decode}/v1/landed", landed)
        assert status == 409
        assert msgspec.json.decode(body, type=Failed).kind == "ChecksumMismatch"
        (event,) = await rest(stream)
        assert isinstance(event, Failed) and event.retryable
    assert await world.asker.metric(world.decode, "mooncake_decode_tokens_total") == 0
    assert await world.asker.metric(world.decode, "mooncake_decode_checksum_failures_total") == 1
    await until(world.is_clean)


async def test_messages_about_unknown_requests_do_nothing(world: World, prefill: str) -> None:
    landed = Landed(request_id="nobody", attempt=0, first_token=1, checksums=[0])
    status, _ = await world.asker.post(f"{world.decode}/v1/landed", landed)
    assert status == 409
    released = Released(request_id="nobody", attempt=0)
    status, _ = await world.asker.post(f"{world.decode}/v1/released", released)
    assert status == 200
    await world.answers(prefill)


async def test_pages_granted_to_another_writer_are_not_written_and_come_back(
    world: World, prefill: str
) -> None:
    answer = await world.asker.ask(prefill, world.decode, prompt_of(300), writer_peer_id="1234abcd")
    assert isinstance(answer.end, Failed) and answer.end.retryable
    await until(world.is_clean)
    await world.answers(prefill)


async def test_the_same_attempt_twice_is_refused_and_a_later_one_supersedes(
    world: World, prefill: str
) -> None:
    prompt = prompt_of(300)
    async with world.asker.reserve(prefill, world.decode, prompt, request_id="r") as first:
        assert isinstance(first.first, Reserved)
        async with world.asker.reserve(prefill, world.decode, prompt, request_id="r") as twice:
            assert isinstance(twice.first, Failed) and not twice.first.retryable
        later = await world.asker.ask(prefill, world.decode, prompt, 4, request_id="r", attempt=1)
        assert later.tokens == plain_answer(world.model, prompt, 4)
        (event,) = await rest(first)
        assert isinstance(event, Failed) and "attempt 1" in event.error
    await until(world.is_clean)


async def test_what_does_not_fit_now_is_refused_for_now(world: World, prefill: str) -> None:
    async with (
        world.asker.reserve(prefill, world.decode, prompt_of(3000), 1000),
        world.asker.reserve(prefill, world.decode, prompt_of(3000), 1000),
    ):
        answer = await world.asker.ask(prefill, world.decode, prompt_of(600), 8)
        assert isinstance(answer.end, Failed) and answer.end.retryable
