"""Instances and clients that fail: every request ends, and nothing is held afterwards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import openai
import pytest

from mooncake_core.clock import monotonic_s
from mooncake_core.conductor.dispatch import Job
from mooncake_core.conductor.store_lookup import BlockStore
from mooncake_core.config.tables import ConductorConfig, SloConfig
from mooncake_core.messages import Released, Sampling
from tests.conductor.conftest import World, eventually


@pytest.fixture
async def served(world: World) -> World:
    await world.add("p0", "p1", "d0", "d1")
    return world


def others_answer(world: World, role: str, behaviour: str) -> None:
    """Let the first instance of a role that is called behave so, and the other one answer."""
    for peer in world.peers.values():
        if peer.role == role:
            peer.behaviour = behaviour


@pytest.mark.parametrize("name", ["p0", "d0"])
@pytest.mark.parametrize("behaviour", ["refuse", "die"])
async def test_what_fails_before_the_first_token_runs_elsewhere(
    served: World, name: str, behaviour: str
) -> None:
    served.peers[name].behaviour = behaviour
    for _ in range(4):
        assert (await served.chat()).choices[0].message.content == "hello world"
    await eventually(served.is_idle, "everything is given back")
    twin = {"p0": "p1", "d0": "d1"}[name]
    assert served.peers[twin].requests


async def test_a_second_try_has_a_new_attempt_and_a_new_reservation(world: World) -> None:
    await world.add("p0", "p1", "d0")
    world.peers["p0"].behaviour = world.peers["p1"].behaviour = "refuse"

    async def one_recovers() -> None:
        tried = [await_call(world, name) for name in ("p0", "p1")]
        await asyncio.wait([asyncio.ensure_future(t) for t in tried], return_when="FIRST_COMPLETED")
        for name in ("p0", "p1"):
            if not world.peers[name].called.is_set():
                world.peers[name].behaviour = "answer"

    _, answer = await asyncio.gather(
        one_recovers(),
        world.client.chat.completions.with_raw_response.create(
            model="toy", messages=[{"role": "user", "content": "hi"}]
        ),
    )
    attempts = [request.attempt for request in world.peers["d0"].requests]
    assert attempts == list(range(len(attempts))) and len(attempts) >= 2
    assert answer.headers["x-mooncake-attempts"] == str(len(attempts))
    await eventually(world.is_idle, "everything is given back")


async def await_call(world: World, name: str) -> None:
    await world.peers[name].called.wait()


@pytest.mark.parametrize("behaviour", ["refuse", "die", "babble", "reject"])
@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_when_all_of_a_role_fail_the_request_ends_with_an_error(
    served: World, role: str, behaviour: str
) -> None:
    others_answer(served, role, behaviour)
    with pytest.raises(openai.InternalServerError) as caught:
        await served.chat(stream=True)
    assert caught.value.status_code == 503
    assert caught.value.code in {"instance_failed", f"no_{role}"}
    calls = sum(len(p.requests) for p in served.peers.values() if p.role == role)
    assert 1 <= calls <= 3
    await eventually(served.is_idle, "everything is given back")


async def test_decode_that_dies_after_tokens_ends_the_stream_with_an_error(served: World) -> None:
    others_answer(served, "decode", "die after 3")
    text = ""
    with pytest.raises(openai.APIError, match="decode instance d"):
        async for chunk in await served.chat(stream=True):
            text += chunk.choices[0].delta.content or ""
    assert text == "hel"
    await eventually(served.is_idle, "everything is given back")


async def test_decode_that_dies_after_tokens_fails_a_whole_answer(served: World) -> None:
    others_answer(served, "decode", "die after 3")
    with pytest.raises(openai.InternalServerError):
        await served.chat()


async def test_a_restarted_instance_frees_those_who_wait_for_its_predecessor(
    served: World,
) -> None:
    others_answer(served, "prefill", "hang")
    asked = asyncio.ensure_future(served.chat())
    await eventually(lambda: busy(served), "a prefill hangs")
    first = busy(served)[0]
    for peer in served.peers.values():
        peer.behaviour = "answer"
    assert await first.register(served.url, instance_id="p9", model={"vocab": 300}) == 204
    assert (await asked).choices[0].message.content == "hello world"
    await eventually(served.is_idle, "everything is given back")


async def test_an_instance_that_says_goodbye_is_forgotten(served: World) -> None:
    async with served.http.delete(f"{served.url}/internal/instances/p0") as response:
        assert response.status == 204
    await served.chat()
    assert not served.peers["p0"].requests


@pytest.mark.parametrize("stage", ["prefill", "decode"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_both_calls(
    served: World, stage: str, stream: bool
) -> None:
    others_answer(served, stage, "hang" if stage == "prefill" else "hang after 4")
    asked = asyncio.ensure_future(consumed(served, stream))
    role_busy = "prefill" if stage == "prefill" else "decode"
    await eventually(lambda: busy(served, role_busy), f"{stage} hangs")
    if stage == "decode":
        await eventually(lambda: called(served) and not busy(served), "prefill is over")
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await eventually(served.is_idle, "everything is given back")
    assert sum(peer.cancelled for peer in served.peers.values()) >= 1
    outcome = 'mooncake_requests_total{endpoint="/v1/chat/completions",outcome="cancelled"}'
    assert await served.metric(outcome) == 1


async def test_a_client_that_leaves_before_prefill_was_asked_costs_no_fence(world: World) -> None:
    """Decode must be told that nobody writes its pages: it would fence the prefill instance."""
    await world.add("p0", "d0")
    world.peers["d0"].behaviour = "reserve slowly"
    asked = asyncio.ensure_future(world.chat())
    await eventually(lambda: busy(world, "decode"), "decode reserves")
    asked.cancel()
    await eventually(world.is_idle, "everything is given back")
    (request,) = world.peers["d0"].requests
    await eventually(lambda: world.peers["d0"].released, "decode is told")
    assert world.peers["d0"].released == [Released(request_id=request.request_id, attempt=0)]
    assert not world.peers["p0"].requests


async def test_whoever_was_asked_to_write_says_itself_that_it_writes_no_more(
    served: World,
) -> None:
    others_answer(served, "prefill", "hang")
    asked = asyncio.ensure_future(served.chat())
    await eventually(lambda: busy(served), "prefill hangs")
    asked.cancel()
    await eventually(served.is_idle, "everything is given back")
    assert not any(peer.released for peer in served.peers.values())


@pytest.mark.parametrize("turns", range(4))
async def test_a_client_that_leaves_as_something_happens_is_noticed(
    served: World, turns: int
) -> None:
    others_answer(served, "prefill", "hang")
    job = Job(
        request_id="r",
        tokens=[1],
        names=[],
        salt="",
        sampling=Sampling(),
        max_tokens=1,
        stop_token_ids=[],
        store_blocks=0,
        avoid=frozenset(),
        deadline_s=monotonic_s() + 60,
    )

    async def ask() -> None:
        async with contextlib.aclosing(served.parts.dispatcher.run(job)) as updates:
            async for _ in updates:
                pass

    asked = asyncio.ensure_future(ask())
    await eventually(lambda: busy(served), "prefill hangs")
    served.parts.dispatcher.lost("somebody else")
    for _ in range(turns):
        await asyncio.sleep(0)
    asked.cancel()
    await eventually(asked.done, "the request is over")
    await eventually(served.is_idle, "everything is given back")


async def consumed(world: World, stream: bool) -> None:
    answer = await world.chat(stream=stream)
    if stream:
        async for _ in answer:
            pass


def called(world: World) -> bool:
    return any(peer.requests for peer in world.peers.values() if peer.role == "prefill")


def busy(world: World, role: str = "prefill") -> list[Any]:
    return [peer for peer in world.peers.values() if peer.role == role and peer.open_calls]


class TestDefect:
    @pytest.fixture
    def connect(self) -> Callable[[], BlockStore]:
        def connect() -> BlockStore:
            raise ZeroDivisionError

        return connect

    async def test_a_defect_ends_one_request_with_500_and_its_id(
        self, served: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        prompt = {"model": "toy", "prompt": "x" * 300}
        status, answer, headers = await served.post("/v1/completions", json=prompt)
        assert status == 500 and answer["error"]["type"] == "server_error"
        assert headers["x-request-id"] in answer["error"]["message"]
        assert "ZeroDivisionError" in caplog.text and headers["x-request-id"] in caplog.text
        assert (await served.chat()).choices[0].message.content == "hello world"


class TestShortDeadline:
    @pytest.fixture
    def config(self) -> ConductorConfig:
        return ConductorConfig(instance_ttl_s=60, request_timeout_s=0.5)

    @pytest.mark.parametrize("role", ["prefill", "decode"])
    async def test_a_request_that_hangs_ends_at_its_deadline(
        self, served: World, role: str
    ) -> None:
        others_answer(served, role, "hang")
        status, answer, _ = await served.post(
            "/v1/chat/completions",
            json={"model": "toy", "messages": [{"role": "user", "content": "hi"}]},
        )
        assert status == 504 and answer["error"]["code"] == "timeout"
        await eventually(served.is_idle, "everything is given back")

    async def test_instances_are_told_the_time_that_is_left(self, served: World) -> None:
        await served.chat()
        for peer in served.peers.values():
            for request in peer.requests:
                assert 0 < request.deadline_s <= 0.5

    async def test_the_time_that_a_body_takes_is_a_part_of_it(self, served: World) -> None:
        async def slowly() -> AsyncIterator[bytes]:
            yield b'{"model": "toy", "messages": '
            await asyncio.sleep(0.2)  # a slow client
            yield b'[{"role": "user", "content": "hi"}]}'

        status, _, _ = await served.post("/v1/chat/completions", data=slowly())
        assert status == 200
        requests = [request for peer in served.peers.values() for request in peer.requests]
        assert len(requests) == 2
        assert all(request.deadline_s <= 0.3 for request in requests)

    async def test_a_stream_that_hangs_ends_with_an_error_event(self, served: World) -> None:
        others_answer(served, "decode", "hang after 4")
        with pytest.raises(openai.APIError, match="longer than any may take"):
            await consumed(served, True)


class TestTightSlo:
    @pytest.fixture
    def config(self) -> ConductorConfig:
        return ConductorConfig(instance_ttl_s=60, slo=SloConfig(ttft_s=0.5))

    async def test_a_first_token_that_would_be_late_is_refused_with_429(
        self, served: World
    ) -> None:
        assert (await served.chat("short")).choices
        with pytest.raises(openai.RateLimitError) as caught:
            await served.chat("x" * 2000)
        error = caught.value
        assert error.code == "ttft_slo" and "0.5 s is promised" in str(error)
        assert int(error.response.headers["Retry-After"]) >= 1
        assert served.is_idle()
