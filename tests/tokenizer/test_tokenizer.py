"""The tokenizer of the built-in model, of bytes, and of other folders."""

import json
import random

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from mooncake_core.errors import ModelError, RequestError
from mooncake_core.model_spec.checkpoint import BUILT_IN, prepare_checkpoint
from mooncake_core.tokenizer import load_tokenizer

TEXTS = (
    "Hello, world!",
    "The year 2024  12 and  7 spaces",
    "naïve café — “quotes”, 東京, 한국어, 👩‍🚀🚀",
    "def f(x):\n\treturn x ** 2  # 3.14159\r\n\r\n",
    "   leading and trailing   ",
    "it's we'll they've I'd",
)


@pytest.fixture(scope="module")
def smollm():
    return load_tokenizer(prepare_checkpoint(BUILT_IN))


def write(folder, **files):
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def byte_folder(folder, vocab=300):
    return write(folder, config={"vocab_size": vocab})


def test_digits_are_single_tokens(smollm):
    assert smollm.encode("in 1984  42") == [254, 216, 33, 41, 40, 36, 256, 36, 34]


def test_ids_are_those_of_the_model_s_own_pipeline(smollm):
    """The oracle: the same vocabulary and merges, put together by hand from the library's parts."""
    file = json.loads((prepare_checkpoint(BUILT_IN) / "tokenizer.json").read_text())["model"]
    merges = [tuple(merge.split(" ")) for merge in file["merges"]]
    oracle = tokenizers.Tokenizer(models.BPE(file["vocab"], merges))
    oracle.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    for text in TEXTS:
        assert smollm.encode(text) == oracle.encode(text).ids


def test_text_comes_back(smollm):
    for text in TEXTS:
        assert smollm.decode(smollm.encode(text)) == text


def test_text_that_is_not_unicode_is_refused(smollm):
    with pytest.raises(RequestError, match="surrogate"):
        smollm.encode("half \ud83d")


def test_special_tokens_are_one_id_in_and_no_text_out(smollm):
    ids = smollm.encode("a<|im_end|>b")
    assert smollm.eos_token_ids == (2,)
    assert ids.count(2) == 1
    assert smollm.decode(ids) == "ab"


def test_chat_follows_the_models_template(smollm):
    ids = smollm.chat(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    )
    text = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert ids == smollm.encode(text)


@pytest.mark.parametrize("seed", range(20))
def test_stream_of_random_ids_gives_the_text_of_all(smollm, seed):
    ids = random.Random(seed).choices(range(smollm.vocab), k=200)
    stream = smollm.stream()
    assert "".join([*map(stream.push, ids), stream.finish()]) == smollm.decode(ids)


def test_stream_never_gives_half_a_character(smollm):
    stream = smollm.stream()
    parts = [stream.push(token) for token in smollm.encode("👩‍🚀東京é")]
    assert "".join(parts) == "👩‍🚀東京é"
    assert not any("\ufffd" in part for part in parts)
    assert stream.finish() == ""


def test_stream_does_not_lose_a_character_that_never_ends(smollm):
    first = smollm.encode("👩‍🚀")[0]
    stream = smollm.stream()
    assert (stream.push(first), stream.finish()) == ("", "\ufffd")


@pytest.fixture
def sentencepiece(tmp_path):
    """Tokens as in Llama 2: words begin with a mark, unknown characters fall back to bytes."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁a", "▁b", "c"]
    made = tokenizers.Tokenizer(
        models.BPE({word: index for index, word in enumerate(words)}, [], byte_fallback=True)
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    return load_tokenizer(tmp_path)


def test_stream_with_byte_fallback_gives_whole_characters(sentencepiece):
    snowman = [1 + byte for byte in "☃".encode()]
    ids = [257, 258, 259, *snowman, 257]
    stream = sentencepiece.stream()
    parts = [stream.push(token) for token in ids]
    assert parts == ["a", " b", "c", "", "", "☃", " a"]
    assert "".join(parts) + stream.finish() == sentencepiece.decode(ids)


def test_a_chat_without_a_template_is_refused(sentencepiece):
    assert not sentencepiece.has_chat_template
    with pytest.raises(RequestError, match="no chat template"):
        sentencepiece.chat([{"role": "user", "content": "Hi"}])


def test_bytes_serve_where_random_weights_have_no_tokenizer(tmp_path):
    tokenizer = load_tokenizer(byte_folder(tmp_path))
    assert tokenizer.encode("é") == [256, 0xC3, 0xA9]
    assert tokenizer.decode([256, 0xC3, 0xA9, 299, 257]) == "é"
    assert (tokenizer.vocab, tokenizer.eos_token_ids) == (300, (257,))
    assert tokenizer.decode(tokenizer.chat([{"role": "user", "content": "x"}])) == (
        "user: x\nassistant: "
    )


def test_a_vocabulary_too_small_for_bytes_is_refused(tmp_path):
    with pytest.raises(ModelError, match="vocab_size is 100"):
        load_tokenizer(byte_folder(tmp_path, vocab=100))


def test_weights_without_a_tokenizer_are_refused(tmp_path):
    (byte_folder(tmp_path) / "model.safetensors").touch()
    with pytest.raises(ModelError, match=r"tokenizer\.json is missing"):
        load_tokenizer(tmp_path)


def test_a_damaged_tokenizer_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ModelError, match=r"tokenizer\.json: cannot read it"):
        load_tokenizer(tmp_path)


def folder_like(smollm_folder, folder, **files):
    (folder / "tokenizer.json").symlink_to(smollm_folder / "tokenizer.json")
    return write(folder, **files)


def test_every_end_token_that_the_folder_names_ends_an_answer(tmp_path):
    folder = folder_like(
        prepare_checkpoint(BUILT_IN),
        tmp_path,
        generation_config={"eos_token_id": [7, 2]},
        config={"eos_token_id": 9},
        tokenizer_config={"eos_token": {"content": "<|im_start|>"}},
    )
    assert load_tokenizer(folder).eos_token_ids == (7, 2, 9, 1)
