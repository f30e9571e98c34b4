"""Reading prompts: in a thread that leaves the event loop alone, with the numbers in its errors."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from mooncake_core.blocks import block_names
from mooncake_core.conductor.openai_api import ApiError, read_chat, read_completion
from mooncake_core.conductor.prompt import Prompt, answer_tokens, read_prompt
from mooncake_core.messages import kv_identity
from mooncake_core.model_spec.checkpoint import prepare_checkpoint
from mooncake_core.tokenizer import Tokenizer, load_tokenizer
from tests.conductor.views import MODEL

SMALL = msgspec.structs.replace(MODEL, context_tokens=20, block_tokens=4, vocab=300)


@pytest.fixture
def letters(tmp_path: Path) -> Tokenizer:
    (tmp_path / "config.json").write_text('{"vocab_size": 300}')
    return load_tokenizer(tmp_path)


def completion(prompt: str | list[int]) -> bytes:
    return msgspec.json.encode({"model": "m", "prompt": prompt})


def test_whole_blocks_are_named_as_workers_name_them(letters: Tokenizer) -> None:
    prompt = read_prompt(read_completion(completion("abcdefgh")), letters, SMALL, "salt")
    assert prompt.tokens == letters.encode("abcdefgh")
    namespace = kv_identity(SMALL).namespace("salt")
    assert prompt.names == block_names(namespace, prompt.tokens, 4)
    assert len(prompt.names) == 2


def test_the_developer_speaks_as_the_system(letters: Tokenizer) -> None:
    def tokens(role: str) -> list[int]:
        body = {"model": "m", "messages": [{"role": role, "content": ""}]}
        return read_prompt(
            read_chat(msgspec.json.encode(body)),
            letters,
            msgspec.structs.replace(SMALL, context_tokens=100),
            "",
        ).tokens

    assert tokens("developer") == tokens("system") != tokens("user")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "empty"),
        ("", "empty"),
        ([300], r"prompt\[0\] = 300 is no token; they are 0 to 299"),
        ([5, -1], r"prompt\[1\] = -1"),
        ("x" * 19, "20 tokens.* 20 "),
    ],
)
def test_a_prompt_that_cannot_be_served_is_refused(
    letters: Tokenizer, prompt: str | list[int], message: str
) -> None:
    with pytest.raises(ApiError, match=message):
        read_prompt(read_completion(completion(prompt)), letters, SMALL, "")


def test_an_answer_takes_what_the_context_leaves_and_no_more() -> None:
    prompt = Prompt(tokens=[1] * 15, names=[])
    assert answer_tokens(None, 512, prompt, SMALL) == 5
    assert answer_tokens(None, 3, prompt, SMALL) == 3
    assert answer_tokens(5, 512, prompt, SMALL) == 5
    with pytest.raises(ApiError, match=r"15 tokens .* asks for 6, together 21.* 20"):
        answer_tokens(6, 512, prompt, SMALL)


async def test_the_event_loop_runs_on_while_a_long_prompt_is_read() -> None:
    folder = await asyncio.to_thread(prepare_checkpoint, "smollm2-135m-instruct")
    tokenizer = await asyncio.to_thread(load_tokenizer, folder)
    text = "The quick brown fox jumps over the lazy dog. " * 10_000
    reading = asyncio.ensure_future(asyncio.to_thread(tokenizer.encode, text))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.001)
        turns += 1
    # Were the interpreter held, one turn would take all of the time.
    assert turns > 10, turns
    assert len(await reading) == pytest.approx(100_000, rel=0.1)
