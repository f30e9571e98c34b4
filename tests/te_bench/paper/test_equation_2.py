"""Mooncake FAST '25, Equation 2: the bandwidth above which reuse beats recomputing."""

import pytest

from mooncake_core.errors import ConfigError
from mooncake_core.model_spec import load_spec
from mooncake_core.te_bench.recompute import bytes_per_flop, make_preset, read_gpus, verdict


# The paper prints 6 and 19 GB/s for a prefix of 8k tokens of LLaMA3-70B.
@pytest.mark.parametrize(("gpus", "gb_per_s"), [("a800", 5.86), ("h800", 18.57)])
def test_a_prefix_of_8k_tokens_needs_what_the_paper_prints(gpus: str, gb_per_s: float) -> None:
    preset = make_preset(load_spec("llama-3.1-70b"), 8192, gpus)
    assert preset.needed_bytes_per_s / 1e9 == pytest.approx(gb_per_s, abs=0.005)


def test_the_right_side_is_as_written() -> None:
    d, s, gqa, p, a, b = 8192, 2, 8, 8192, 4, 22
    right = 2 * d * s / (gqa * (a * p * d + b * d**2))
    assert bytes_per_flop(load_spec("llama-3.1-70b"), p) == pytest.approx(right)


def test_a_longer_prefix_needs_less_bandwidth() -> None:
    spec = load_spec("llama-3.1-70b")
    assert bytes_per_flop(spec, 65_536) < bytes_per_flop(spec, 8192)


def test_a_preset_moves_a_layer_of_every_whole_block_at_once() -> None:
    preset = make_preset(load_spec("llama-3.1-70b"), 8000, "a800")
    assert (preset.block_bytes, preset.batch, preset.layers) == (1 << 20, 31, 80)
    assert preset.tokens == 31 * 256
    assert preset.total_bytes == 31 * 256 * load_spec("llama-3.1-70b").bytes_per_token()


def test_the_verdict_is_on_the_side_of_the_need_that_was_measured() -> None:
    preset = make_preset(load_spec("llama-3.1-70b"), 8192, "a800")
    assert "reuse pays" in verdict(preset, "tcp read", 6e9)
    assert "reuse does not pay" in verdict(preset, "tcp read", 5.8e9)


def test_the_verdict_says_what_was_judged_and_what_either_way_takes() -> None:
    said = verdict(make_preset(load_spec("llama-3.1-70b"), 8000, "a800"), "tcp read 1 MiB", 2.6e9)
    assert "7,936 tokens (8,000 cut to whole blocks of 256)" in said
    assert "tcp read 1 MiB has 2.60 GB/s, and 5.89 GB/s are needed" in said
    assert "reading 2.60 GB takes 1.000 s, recomputing on 8 x a800 (8 x 312 TFLOPS) 0.442 s" in said
    assert "cut to" not in verdict(make_preset(load_spec("llama-3.1-70b"), 8192, "2496"), "", 1e9)


@pytest.mark.parametrize(
    ("text", "tflops"),
    [
        ("a800", 2496),
        ("H800", 7912),
        ("1xh800", 989),
        ("16xa100", 4992),
        ("312", 312),
        ("0.5", 0.5),
    ],
)
def test_gpus_are_read_as_people_write_them(text: str, tflops: float) -> None:
    assert read_gpus(text) == tflops


@pytest.mark.parametrize("text", ["h80", "", "0", "-1", "0xh800", "1e9", "nan", "x"])
def test_a_gpu_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no GPU known here"):
        read_gpus(text)


def test_the_nearest_gpu_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'h800'"):
        read_gpus("h880")
