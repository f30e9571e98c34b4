"""Instances in this process, and what a conductor would ask of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import torch

from mooncake_core.cache.kv_pool import KvPool
from mooncake_core.config import (
    DecodeConfig,
    ModelConfig,
    PrefillConfig,
    StoreClientConfig,
    TransferConfig,
)
from mooncake_core.messages import (
    DecodeEvent,
    DecodeRequest,
    Failed,
    Finished,
    Message,
    PrefillRequest,
    PrefillResult,
    Reserved,
    Sampling,
    Token,
)
from mooncake_core.model import load_model
from mooncake_core.model.base import Model, SequenceInput
from mooncake_core.model.sampling import sample

VOCAB = 320
BLOCK = 256
NOBODY = "127.0.0.1:1"
GREEDY = Sampling(temperature=0)
DEADLINE_S = 30.0
SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.3,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def model_config(folder: Path, **changes: Any) -> ModelConfig:
    """Return a model of random weights that is small enough for tests."""
    path = folder / "config.json"
    path.write_text(json.dumps(SHAPE | changes))
    return ModelConfig(path=f"dummy:{path}", name="tiny", dtype="float32", device="cpu")


def prefill_config(model: ModelConfig, **changes: Any) -> PrefillConfig:
    config = PrefillConfig(
        conductor=NOBODY,
        model=model,
        pool_tokens=8192,
        transfer=TransferConfig(),
        pool=StoreClientConfig(master=NOBODY, timeout_s=2.0),
    )
    return msgspec.structs.replace(config, **changes)


def decode_config(model: ModelConfig, **changes: Any) -> DecodeConfig:
    config = DecodeConfig(conductor=NOBODY, model=model, pool_tokens=8192, max_batch=4)
    return msgspec.structs.replace(config, **changes)


def prompt_of(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, VOCAB, (count,), generator=generator).tolist()


def plain_answer(
    model: Model, prompt: Sequence[int], count: int, sampling: Sampling = GREEDY
) -> list[int]:
    """Return the first `count` tokens, computed in one process without any cache."""
    pages = list(range(-(-(len(prompt) + count) // 16)))
    pool = KvPool(model.kv_shape, len(pages), device=model.device)
    for begin in range(0, len(prompt), BLOCK):
        part = prompt[begin : begin + BLOCK]
        sequence = SequenceInput(pages=pages, start=begin, length=len(part))
        logits = model.forward(torch.tensor(part), [sequence], pool)
    answer = sample(logits, [sampling], [0])
    while len(answer) < count:
        start = len(prompt) + len(answer) - 1
        sequence = SequenceInput(pages=pages, start=start, length=1)
        logits = model.forward(torch.tensor(answer[-1:]), [sequence], pool)
        answer += sample(logits, [sampling], [len(answer)])
    return answer


def reference_model(config: ModelConfig) -> Model:
    torch.set_num_threads(1)
    return load_model(config)


@dataclass
class Server:
    """A daemon that runs as a task of this loop."""

    addresses: dict[str, str]
    stop: asyncio.Event
    task: asyncio.Task[None]

    @property
    def url(self) -> str:
        return f"http://{self.addresses['http']}"

    async def close(self) -> None:
        self.stop.set()
        await self.task


Serve = Callable[..., Coroutine[Any, Any, None]]


async def start(serve: Serve, config: Any) -> Server:
    """Start a daemon and wait until it serves."""
    stop = asyncio.Event()
    ready: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serve(config, ready=ready.set_result, stop=stop))
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    return Server(await ready, stop, task)


@contextlib.asynccontextmanager
async def running(*daemons: tuple[Serve, Any]) -> AsyncIterator[list[Server]]:
    """Run daemons; stop them in reverse order."""
    servers: list[Server] = []
    try:
        for serve, config in daemons:
            servers.append(await start(serve, config))
        yield servers
    finally:
        for server in reversed(servers):
            await server.close()


@dataclass
class Answer:
    """What a conductor would know of a request in the end."""

    tokens: list[int] = field(default_factory=list)
    result: PrefillResult | None = None
    end: Finished | Failed | None = None


class Asker:
    """Plays the conductor. A context manager."""

    def __init__(self) -> None:
        self._count = 0

    async def __aenter__(self) -> Asker:
        self.session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    def new_id(self) -> str:
        self._count += 1
        return f"r{self._count}"

    async def status(self, url: str) -> dict[str, Any]:
        async with self.session.get(f"{url}/status") as response:
            body: dict[str, Any] = await response.json()
            return body

    async def metric(self, url: str, name: str) -> float:
        """Return the sum over the series whose name and labels begin with `name`."""
        async with self.session.get(f"{url}/metrics") as response:
            lines = (await response.text()).splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    async def post(self, url: str, message: Message | bytes) -> tuple[int, bytes]:
        body = message if isinstance(message, bytes) else msgspec.json.encode(message)
        async with self.session.post(url, data=body) as response:
            return response.status, await response.read()

    async def ask(
        self,
        prefill: str,
        decode: str,
        prompt: Sequence[int],
        max_tokens: int = 8,
        **fields: Any,
    ) -> Answer:
        """Carry one request through one prefill and one decode instance."""
        answer = Answer()
        async with self.reserve(prefill, decode, prompt, max_tokens, **fields) as stream:
            if isinstance(stream.first, Failed):
                answer.end = stream.first
                return answer
            status, body = await self.post(f"{prefill}/v1/prefill", stream.prefill_request(prompt))
            if status != 200:
                answer.end = msgspec.json.decode(body, type=Failed)
                return answer
            answer.result = msgspec.json.decode(body, type=PrefillResult)
            answer.tokens.append(answer.result.first_token)
            async for event in stream.events():
                if isinstance(event, Token):
                    answer.tokens.append(event.token_id)
                elif isinstance(event, Finished | Failed):
                    answer.end = event
        return answer

    @contextlib.asynccontextmanager
    async def reserve(
        self,
        prefill: str,
        decode: str,
        prompt: Sequence[int],
        max_tokens: int = 8,
        **fields: Any,
    ) -> AsyncIterator[Stream]:
        """Open a decode stream and read its first event."""
        if "writer_peer_id" not in fields:
            fields["writer_peer_id"] = (await self.status(prefill))["instance"]["peer_id"]
        fields.setdefault("request_id", self.new_id())
        request = DecodeRequest(
            prompt_tokens=len(prompt),
            max_tokens=max_tokens,
            sampling=fields.pop("sampling", GREEDY),
            stop_token_ids=fields.pop("stop_token_ids", []),
            deadline_s=fields.pop("deadline_s", DEADLINE_S),
            **fields,
        )
        async with self.session.post(
            f"{decode}/v1/decode", data=msgspec.json.encode(request)
        ) as response:
            first = msgspec.json.decode(await response.content.readline(), type=Reserved | Failed)
            yield Stream(request, response, first)


@dataclass
class Stream:
    """A decode stream after its first event."""

    request: DecodeRequest
    response: aiohttp.ClientResponse
    first: Reserved | Failed

    async def events(self) -> AsyncIterator[DecodeEvent]:
        async for line in self.response.content:
            yield msgspec.json.decode(line, type=DecodeEvent)

    def prefill_request(self, prompt: Sequence[int], **changes: Any) -> PrefillRequest:
        assert isinstance(self.first, Reserved), self.first
        request = PrefillRequest(
            request_id=self.request.request_id,
            attempt=self.request.attempt,
            tokens=list(prompt),
            sampling=self.request.sampling,
            target=self.first,
            writer_peer_id=self.request.writer_peer_id,
            deadline_s=DEADLINE_S,
        )
        return msgspec.structs.replace(request, **changes)


async def until(condition: Callable[[], Coroutine[Any, Any, bool]], within_s: float = 10.0) -> None:
    """Wait until `condition` holds, or fail."""
    deadline_s = asyncio.get_running_loop().time() + within_s
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline_s, "it did not come true in time"
        await asyncio.sleep(0.01)
