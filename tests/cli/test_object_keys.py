"""Keys as people see and type them."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mooncake_cli.object_keys import parse, shown
from mooncake_core.errors import ConfigError


@given(
    some.binary(max_size=64)
    | some.text(max_size=16).map(lambda text: text.encode("utf-8", "ignore"))
)
def test_what_is_shown_is_the_key_when_it_is_given(key: bytes) -> None:
    assert parse(shown(key)) == key
    assert shown(key).isprintable()


def test_a_backslash_that_begins_no_escape_is_refused() -> None:
    for text in (r"a\b", r"\x1", "end\\"):
        with pytest.raises(ConfigError, match="a backslash is written"):
            parse(text)
