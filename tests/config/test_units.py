"""One parser of sizes for every entry point."""

import pytest

from mooncake_core.errors import ConfigError
from mooncake_core.units import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("10gb", 10_000_000_000),
        ("10GiB", 10_737_418_240),
        ("1.5 GiB", 1_610_612_736),
        ("  64MB ", 64_000_000),
        ("4096", 4096),
        ("0", 0),
        ("1 kB", 1000),
    ],
)
def test_a_size_means_what_it_says(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["-5", "", "10 %", "10g", "1.5", "0.3 B", "GiB", "1e9", "inf", "nan", "9" * 30, "٣ GB"]
)
def test_what_is_no_size_is_refused_and_named(text: str) -> None:
    if text == "1.5":
        with pytest.raises(ConfigError, match="whole number of bytes"):
            parse_size(text)
        return
    with pytest.raises(ConfigError) as error:
        parse_size(text)
    assert repr(text) in str(error.value)


def test_sizes_are_written_in_binary_units() -> None:
    assert format_size(1_610_612_736) == "1.50 GiB"
    assert format_size(512) == "512 B"
