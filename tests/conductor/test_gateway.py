"""The public endpoints, with the real OpenAI client, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from mooncake_core.messages import DecodeRequest, PrefillRequest
from tests.conductor.conftest import World, eventually

CHAT = {"model": "toy", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def served(world: World) -> World:
    await world.add("p0", "p1", "d0")
    return world


async def test_a_chat_is_answered_with_text_reason_and_usage(served: World) -> None:
    served.peers["p0"].cached_tokens = served.peers["p1"].cached_tokens = 3
    answer = await served.chat()
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", "hello world")
    assert choice.finish_reason == "stop"
    assert answer.usage.prompt_tokens == len("user: hi\nassistant: ")
    assert answer.usage.completion_tokens == len("hello world") + 1
    assert answer.usage.prompt_tokens_details.cached_tokens == 3
    assert answer.model == "toy"


async def test_a_streamed_chat_has_the_same_text_and_its_usage_last(served: World) -> None:
    stream = await served.chat(stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "hello world"
    assert [c.choices[0].finish_reason for c in chunks[:-1]][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 12
    assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_a_stream_ends_with_done(served: World) -> None:
    async with served.http.post(
        f"{served.url}/v1/chat/completions", json={**CHAT, "stream": True}
    ) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        events = (await response.text()).strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    assert all("usage" not in event for event in events)


@pytest.mark.parametrize("prompt", ["hi", ["hi"], [256, 104, 105]])
async def test_a_completion_takes_a_text_or_tokens(served: World, prompt: Any) -> None:
    answer = await served.client.completions.create(model="toy", prompt=prompt, max_tokens=5)
    assert answer.choices[0].text == "hello"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None and answer.usage.prompt_tokens == 3


async def test_an_answer_of_one_token_is_complete(served: World) -> None:
    answer = await served.chat(max_tokens=1)
    assert answer.choices[0].message.content == "h"
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_ends_the_answer_and_frees_decode(served: World, stream: bool) -> None:
    answer = await served.chat(stop=["o wo", "zzz"], stream=stream)
    if stream:
        chunks = [chunk async for chunk in answer]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        reason = chunks[-1].choices[0].finish_reason
    else:
        text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert (text, reason) == ("hell", "stop")
    await eventually(served.is_idle, "everything is given back")


async def test_characters_of_many_bytes_are_never_split(served: World) -> None:
    for name in ("p0", "p1", "d0"):
        served.peers[name].answer = [*"grün 🌙".encode(), 257]
    chunks = [chunk async for chunk in await served.chat(stream=True)]
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "grün 🌙"


async def test_sampling_reaches_both_instances_alike(served: World) -> None:
    await served.chat(temperature=0.5, top_p=0.9, seed=7, max_tokens=3, extra_body={"top_k": 5})
    (decode,) = served.peers["d0"].requests
    (prefill,) = served.peers["p0"].requests + served.peers["p1"].requests
    assert isinstance(decode, DecodeRequest) and isinstance(prefill, PrefillRequest)
    assert decode.sampling == prefill.sampling
    assert (decode.sampling.temperature, decode.sampling.top_p) == (0.5, 0.9)
    assert (decode.sampling.top_k, decode.sampling.seed) == (5, 7)
    assert decode.max_tokens == 3
    assert prefill.target.request_id == decode.request_id == prefill.request_id


async def test_answers_say_who_served_them_and_prefills_can_be_avoided(served: World) -> None:
    first = await served.client.chat.completions.with_raw_response.create(**CHAT)
    used = first.headers["x-mooncake-prefill"]
    assert first.headers["x-mooncake-decode"] == "d0"
    assert first.headers["x-request-id"]
    for avoid in (used, served.peers[used].url):
        other = await served.client.chat.completions.with_raw_response.create(
            **CHAT, extra_headers={"x-mooncake-avoid-prefill": avoid}
        )
        assert other.headers["x-mooncake-prefill"] != used


async def test_tenants_and_salts_share_no_names(served: World) -> None:
    salts = set()
    for headers, body in [
        ({}, {}),
        ({"X-Tenant": "a"}, {}),
        ({}, {"cache_salt": "a"}),
        ({"X-Tenant": "a"}, {"cache_salt": "a"}),
        ({"X-Tenant": "aa"}, {}),
    ]:
        await served.chat(extra_headers=headers, extra_body=body)
    for name in ("p0", "p1"):
        salts |= {r.salt for r in served.peers[name].requests if isinstance(r, PrefillRequest)}
    assert len(salts) == 5 and "" in salts


async def test_the_model_is_listed_and_described(served: World) -> None:
    assert [model.id async for model in served.client.models.list()] == ["toy"]
    assert (await served.client.models.retrieve("toy")).id == "toy"
    with pytest.raises(openai.NotFoundError, match="'toy'"):
        await served.client.models.retrieve("gpt")


BAD = [
    (b"{", 400, None, None),
    ({**CHAT, "messages": []}, 400, "messages", None),
    ({**CHAT, "temperature": -1}, 400, "temperature", None),
    ({"model": "toy"}, 400, "messages", "missing_field"),
    ({**CHAT, "model": "gpt-9"}, 404, "model", "model_not_found"),
    ({**CHAT, "n": 3}, 400, "n", "unsupported"),
    ({**CHAT, "max_tokens": "many"}, 400, "max_tokens", None),
    ({**CHAT, "max_tokens": 9000}, 400, "max_tokens", "context_length_exceeded"),
    (
        {**CHAT, "messages": [{"role": "user", "content": "x" * 9000}]},
        400,
        "messages",
        "context_length_exceeded",
    ),
    (b" " * 70_000, 413, None, None),
]


@pytest.mark.parametrize(("body", "status", "param", "code"), BAD)
async def test_bad_input_gets_a_clear_answer_and_hurts_nobody(
    served: World, body: Any, status: int, param: str | None, code: str | None
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    got, answer, headers = await served.post("/v1/chat/completions", data=data)
    assert got == status
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] and error["type"] == "invalid_request_error"
    assert (error["param"], error["code"]) == (param, code)
    assert headers["x-request-id"]
    assert (await served.chat()).choices[0].message.content == "hello world"
    assert served.is_idle()


async def test_a_prompt_that_is_too_long_names_both_numbers(served: World) -> None:
    with pytest.raises(openai.BadRequestError, match=r"9018 tokens.* 8192"):
        await served.chat("x" * 9000)


async def test_a_huge_body_is_refused_without_being_read(served: World) -> None:
    """The length alone is enough: the body never comes."""
    reader, writer = await open_connection(served)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n{"
    )
    assert b" 413 " in await reader.readline()
    writer.close()


async def test_a_body_of_unknown_length_is_read_up_to_the_limit(served: World) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1024

    status, answer, _ = await served.post("/v1/completions", data=chunks())
    assert status == 413 and "max_body" in answer["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/completions", "/internal/heartbeat"])
async def test_a_body_that_is_not_compressed_as_it_says_is_refused(
    served: World, path: str
) -> None:
    async with served.http.post(
        served.url + path, data=b"{}", headers={"Content-Encoding": "gzip"}
    ) as response:
        assert response.status == 400
        assert "body" in (await response.json())["error"]["message"]


async def test_a_client_that_asks_first_is_refused_before_it_sends(served: World) -> None:
    reader, writer = await open_connection(served)
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n"
        b"Expect: 100-continue\r\n\r\n"
    )
    assert b" 413 " in await reader.readline()
    assert b"max_body" in await reader.readuntil(b"}")
    writer.close()


async def test_a_client_that_asks_first_may_send_what_fits(served: World) -> None:
    async with served.http.post(
        f"{served.url}/v1/chat/completions", json=CHAT, expect100=True
    ) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/embeddings", 404),
    ],
)
async def test_wrong_paths_and_methods_are_answered_in_json(
    served: World, method: str, path: str, status: int
) -> None:
    async with served.http.request(method, served.url + path) as response:
        assert response.status == status
        assert (await response.json())["error"]["message"]


async def test_health_says_what_is_missing(world: World) -> None:
    async with world.http.get(f"{world.url}/health") as response:
        assert response.status == 503
        assert (await response.json())["missing"] == ["prefill", "decode"]
    await world.add("p0", "d0")
    async with world.http.get(f"{world.url}/health") as response:
        assert response.status == 200


async def test_without_instances_requests_are_told_to_come_again(world: World) -> None:
    status, answer, headers = await world.post("/v1/chat/completions", json=CHAT)
    assert status == 503 and answer["error"]["code"] == "no_prefill"
    assert int(headers["Retry-After"]) >= 1
    await world.add("p0")
    status, answer, _ = await world.post("/v1/chat/completions", json=CHAT)
    assert status == 503 and answer["error"]["code"] == "no_decode"


async def test_status_and_metrics_show_what_happened(served: World) -> None:
    served.peers["p0"].cached_tokens = served.peers["p1"].cached_tokens = 10
    await served.chat()
    async with served.http.get(f"{served.url}/status") as response:
        status = await response.json()
    assert {m["instance_id"] for m in status["members"]} == {"p0", "p1", "d0"}
    assert status["hit_rate"] == pytest.approx(10 / 20)
    assert status["recent"][0]["decode"] == "d0"
    assert status["store"] is None
    outcome = 'mooncake_requests_total{endpoint="/v1/chat/completions",outcome="ok"}'
    assert await served.metric(outcome) == 1
    assert await served.metric('mooncake_cached_tokens_total{tier="store"}') == 10
    assert await served.metric("mooncake_requests_in_flight") == 0
    assert await served.metric("mooncake_ttft_seconds_count") == 1
    assert await served.metric("mooncake_tbt_seconds_count") == 11
    assert await served.metric('mooncake_instance_up{instance="d0",role="decode"}') == 1


async def test_an_instance_of_another_model_is_refused_over_http(served: World) -> None:
    peer = served.peers["p0"]
    status = await peer.register(
        served.url, instance_id="px", url="http://x", model={"block_tokens": 128, "vocab": 300}
    )
    assert status == 409


async def test_unknown_heartbeats_are_gone_and_malformed_ones_are_refused(world: World) -> None:
    beat = {"instance_id": "nobody", "load": {}}
    async with world.http.post(f"{world.url}/internal/heartbeat", json=beat) as response:
        assert response.status == 410
    status, answer, _ = await world.post("/internal/heartbeat", json={**beat, "extra": 1})
    assert status == 400 and "extra" in answer["error"]["message"]


async def open_connection(world: World) -> Any:
    host, port = world.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))
