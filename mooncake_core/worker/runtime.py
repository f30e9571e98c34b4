"""What an instance computes with: a model, KV in a transfer segment, a compute thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from mooncake_core.cache.kv_pool import KvPool
from mooncake_core.cache.mirror import KvMirror, device_pool
from mooncake_core.cache.page_table import PageTable
from mooncake_core.config import WorkerConfig
from mooncake_core.errors import ConfigError
from mooncake_core.messages import ModelInfo
from mooncake_core.model import load_model
from mooncake_core.model.base import Model, SequenceInput
from mooncake_core.transfer import TransferEngine

PAGE_TOKENS = 16
LAYOUT = "LKTHD"
"""A stored block: layer, K|V, token, head, dim."""

R = TypeVar("R")
MakePool = Callable[[KvPool, torch.device], KvPool]


class Runtime:
    """The heavy parts of an instance. Blocks for seconds while it is made; `close` at the end.

    `table` belongs to the event loop, `model` to the compute thread. Others read and write `pool`;
    the model computes on `mirror.device`.

    Args:
        config: of the instance.
        block_tokens: tokens a block.
        make_pool: makes the pool that the model computes on, of the pool in the segment and the
            model's device.
    """

    def __init__(
        self, config: WorkerConfig, block_tokens: int, make_pool: MakePool = device_pool
    ) -> None:
        if block_tokens % PAGE_TOKENS:
            raise ConfigError(
                f"block_tokens: {block_tokens} is no multiple of {PAGE_TOKENS}, "
                "the tokens of a page"
            )
        self.block_tokens = block_tokens
        self._computer = ThreadPoolExecutor(
            1, "compute", initializer=torch.set_num_threads, initargs=(config.threads,)
        )
        self.engine = TransferEngine(config.transfer)
        try:
            self._load(config, make_pool)
        except BaseException:
            self.engine.close()
            self._computer.shutdown()
            raise

    def _load(self, config: WorkerConfig, make_pool: MakePool) -> None:
        self.model: Model = self._computer.submit(
            load_model, config.model, page_tokens=PAGE_TOKENS
        ).result()
        shape = self.model.kv_shape
        pages = config.pool_tokens // PAGE_TOKENS
        self.segment = self.engine.create_segment(shape.pool_bytes(pages))
        storage = torch.frombuffer(self.segment.buffer, dtype=torch.uint8)
        self.pool = KvPool(shape, pages, storage)
        self.mirror = KvMirror(self.pool, make_pool(self.pool, self.model.device))
        self.table = PageTable(pages)

    @property
    def info(self) -> ModelInfo:
        """The model as others must agree on it."""
        model, shape = self.model, self.model.kv_shape
        return ModelInfo(
            name=model.name,
            weights_digest=model.weights_digest,
            dtype=str(shape.dtype).removeprefix("torch."),
            layout=LAYOUT,
            kernel_class=model.kernel_class,
            block_tokens=self.block_tokens,
            page_tokens=shape.page_tokens,
            layers=shape.layers,
            kv_bytes_per_token=shape.kv_bytes_per_token,
            context_tokens=model.context_tokens,
            vocab=model.vocab,
        )

    async def compute(self, work: Callable[[], R]) -> R:
        """Run `work` on the compute thread."""
        return await asyncio.get_running_loop().run_in_executor(self._computer, work)

    async def calibrate(self) -> float:
        """Return the prefill speed in tokens/s, from one chunk after a short one to warm up.

        REQUIRES: no page is in use.
        """
        tokens = min(self.block_tokens, self.model.context_tokens, self.pool.pages * PAGE_TOKENS)
        pages = self.table.allocate(-(-tokens // PAGE_TOKENS))
        assert pages is not None, tokens
        await self.compute(lambda: self._time_chunk(pages, min(tokens, PAGE_TOKENS)))
        seconds = await self.compute(lambda: self._time_chunk(pages, tokens))
        self.table.free(pages)
        return tokens / seconds

    def close(self) -> None:
        """Give everything back. Blocks until the compute thread is idle."""
        self._computer.shutdown()
        del self.pool, self.mirror
        self.segment.close()
        self.engine.close()

    def _time_chunk(self, pages: list[int], tokens: int) -> float:
        began_s = time.perf_counter()
        sequence = SequenceInput(pages=pages, start=0, length=tokens)
        prompt = torch.zeros(tokens, dtype=torch.int64)
        self.model.forward(prompt, [sequence], self.mirror.device).cpu()  # waits for a GPU
        return time.perf_counter() - began_s
