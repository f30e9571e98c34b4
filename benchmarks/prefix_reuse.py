"""What a cached prefix saves: time to first token, cold against reused from another process.

Each pair sends a prompt with a fresh shared prefix through one prefill instance, then the same
prefix with another question through the other one, which finds the prefix's KV in the store. The
answer to the second is compared, token for token, with the same request on an empty cache (a fresh
tenant salt shares nothing).

    python benchmarks/prefix_reuse.py [--pairs 5] [--dtypes float32,bfloat16] [--json]

Nothing else should run meanwhile: every process wants a core, and there may be as few as two.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import openai
from machine import describe

from mooncake_core.model_spec.checkpoint import prepare_checkpoint
from mooncake_core.tokenizer import Tokenizer, load_tokenizer

MODEL = "smollm2-135m-instruct"
WORDS = ("river", "stone", "lamp", "orchard", "velvet", "engine", "harbour", "candle", "winter")
QUESTIONS = ("Name the first word of the list.", "How many words are there, roughly?")


@dataclass
class Answer:
    """One streamed chat."""

    ttft_s: float
    text: str
    prompt_tokens: int
    cached_tokens: int
    prefill: str


@dataclass
class Pair:
    """A cold request, and one that reuses its prefix in another process."""

    prefix_tokens: int
    cold_s: float
    reused_s: float
    cached_tokens: int
    equal: bool
    other_instance: bool

    @property
    def speedup(self) -> float:
        """How many times sooner the first token came."""
        return self.cold_s / self.reused_s


@contextlib.contextmanager
def cluster(dtype: str) -> Iterator[str]:
    """Run `mooncake up` and yield its endpoint."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mooncake_cli", "up", "--json", "--port", "0", "--dtype", dtype],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["endpoint"]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def shared_prefix(tokenizer: Tokenizer, tokens: int, rng: random.Random) -> tuple[str, int]:
    """Return a text whose chat prompts share at least `tokens` tokens, and how many exactly."""
    text = "Here is a list of words."
    while True:
        text += " " + " ".join(rng.choice(WORDS) for _ in range(16))
        prompts = [
            tokenizer.chat([{"role": "user", "content": f"{text}\n\n{question}"}])
            for question in QUESTIONS
        ]
        shared = next(index for index, (a, b) in enumerate(zip(*prompts, strict=False)) if a != b)
        if shared >= tokens:
            return text, shared


def ask(client: openai.OpenAI, text: str, question: str, salt: str, avoid: str = "") -> Answer:
    """Stream one greedy chat and time its first token."""
    start = time.perf_counter()
    ttft_s, parts, usage = 0.0, [], None
    stream = client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=[{"role": "user", "content": f"{text}\n\n{question}"}],
        temperature=0,
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"cache_salt": salt},
        extra_headers={"x-mooncake-avoid-prefill": avoid} if avoid else {},
    )
    for chunk in stream.parse():
        if chunk.choices and chunk.choices[0].delta.content:
            ttft_s = ttft_s or time.perf_counter() - start
            parts.append(chunk.choices[0].delta.content)
        usage = chunk.usage or usage
    assert usage is not None and usage.prompt_tokens_details is not None
    return Answer(
        ttft_s=ttft_s,
        text="".join(parts),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.prompt_tokens_details.cached_tokens or 0,
        prefill=stream.headers["x-mooncake-prefill"],
    )


def stored_objects(endpoint: str) -> int:
    """Return how many objects the store holds."""
    with urllib.request.urlopen(f"{endpoint}/status") as answer:
        return int(json.load(answer)["store"]["objects"])


def measure(client: openai.OpenAI, endpoint: str, text: str, shared: int) -> Pair:
    """Run one pair."""
    salt, other_salt = uuid.uuid4().hex, uuid.uuid4().hex
    before = stored_objects(endpoint)
    cold = ask(client, text, QUESTIONS[0], salt)
    while stored_objects(endpoint) < before + shared // 256:
        time.sleep(0.01)
    reused = ask(client, text, QUESTIONS[1], salt, avoid=cold.prefill)
    alone = ask(client, text, QUESTIONS[1], other_salt, avoid=cold.prefill)
    assert cold.cached_tokens == alone.cached_tokens == 0, (cold, alone)
    return Pair(
        prefix_tokens=shared,
        cold_s=statistics.mean([cold.ttft_s, alone.ttft_s]),
        reused_s=reused.ttft_s,
        cached_tokens=reused.cached_tokens,
        equal=reused.text == alone.text,
        other_instance=reused.prefill != cold.prefill,
    )


def run(dtype: str, pairs: int, prefix_tokens: int, rng: random.Random) -> dict[str, Any]:
    """Measure `pairs` pairs on one cluster."""
    tokenizer = load_tokenizer(prepare_checkpoint(MODEL))
    with cluster(dtype) as endpoint:
        client = openai.OpenAI(base_url=f"{endpoint}/v1", api_key="none", timeout=300)
        ask(client, "Warm up.", QUESTIONS[0], "warm-up")
        rows = [
            measure(client, endpoint, *shared_prefix(tokenizer, prefix_tokens, rng))
            for _ in range(pairs)
        ]
    speedups = sorted(row.speedup for row in rows)
    return {
        "dtype": dtype,
        "pairs": [asdict(row) for row in rows],
        "cold_s_median": statistics.median(row.cold_s for row in rows),
        "reused_s_median": statistics.median(row.reused_s for row in rows),
        "speedup_median": statistics.median(speedups),
        "speedup_min": speedups[0],
        "speedup_max": speedups[-1],
        "cached_share_min": min(row.cached_tokens / row.prefix_tokens for row in rows),
        "answers_equal": all(row.equal for row in rows),
        "served_by_the_other": all(row.other_instance for row in rows),
    }


def main() -> None:
    """Parse flags, measure, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--prefix-tokens", type=int, default=2304)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    results = [run(d, args.pairs, args.prefix_tokens, rng) for d in args.dtypes.split(",")]
    if args.json:
        print(json.dumps({"machine": describe(args), "seed": args.seed, "results": results}))
        return
    print(f"# {describe(args)}")
    print("dtype      cold TTFT  reused TTFT  speed-up (min..max)    cached  equal  other instance")
    for row in results:
        print(
            f"{row['dtype']:<10} {row['cold_s_median']:7.2f} s   {row['reused_s_median']:8.3f} s"
            f"   {row['speedup_median']:5.1f} x"
            f" ({row['speedup_min']:.1f}..{row['speedup_max']:.1f})"
            f"   {row['cached_share_min']:6.1%}  {row['answers_equal']!s:<5}"
            f"  {row['served_by_the_other']}"
        )


if __name__ == "__main__":
    main()
