"""Asking a cluster, with what came back in one value."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import openai

from tests.cluster.harness import MODEL

WORDS = ("river", "stone", "lamp", "orchard", "velvet", "engine", "harbour", "candle", "winter")


@dataclass
class Reply:
    """One chat's answer."""

    text: str = ""
    prefill: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    ttft_s: float = 0.0
    chunks: list[str] = field(default_factory=list)


def text_of(words: int, seed: int = 0) -> str:
    """Return a text of `words` words that depends on `seed` from its first word on."""
    return " ".join([f"List {seed}:"] + [WORDS[(i * i + seed) % len(WORDS)] for i in range(words)])


def ask(
    client: openai.OpenAI, content: str, *, avoid: str = "", salt: str = "", **options: Any
) -> Reply:
    """Stream one chat, greedy unless told otherwise, to its end."""
    start = time.perf_counter()
    options = {"temperature": 0, "max_tokens": 16, **options}
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=[{"role": "user", "content": content}],
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"cache_salt": salt} if salt else {},
        extra_headers={"x-mooncake-avoid-prefill": avoid} if avoid else {},
        **options,
    )
    reply = Reply(prefill=raw.headers["x-mooncake-prefill"])
    with raw.parse() as stream:
        for chunk in stream:
            for choice in chunk.choices:
                if choice.delta.content:
                    reply.ttft_s = reply.ttft_s or time.perf_counter() - start
                    reply.chunks.append(choice.delta.content)
                reply.finish_reason = choice.finish_reason or reply.finish_reason
            if chunk.usage is not None:
                reply.prompt_tokens = chunk.usage.prompt_tokens
                reply.completion_tokens = chunk.usage.completion_tokens
                details = chunk.usage.prompt_tokens_details
                reply.cached_tokens = (details.cached_tokens or 0) if details else 0
    reply.text = "".join(reply.chunks)
    return reply
