"""The text of an answer never shows what a stop string forbids."""

from hypothesis import given
from hypothesis import strategies as st

from mooncake_core.conductor.answer import AnswerText

EOS = 0


class Letters:
    """One letter a token: the simplest decoder there is."""

    def push(self, token_id: int) -> str:
        return chr(token_id)

    def finish(self) -> str:
        return ""


def shown(text: str, stops: list[str]) -> tuple[list[str], bool]:
    answer = AnswerText(Letters(), stops, [EOS])
    pieces = []
    for letter in text:
        pieces.append(answer.push(ord(letter)))
        if answer.is_stopped:
            break
    return [*pieces, answer.finish()], answer.is_stopped


def test_text_without_stops_passes_at_once() -> None:
    assert shown("abc", []) == (["a", "b", "c", ""], False)


def test_a_stop_string_and_what_follows_are_cut_off() -> None:
    pieces, is_stopped = shown("hello STOP there", [" STOP"])
    assert "".join(pieces) == "hello" and is_stopped


def test_what_may_become_a_stop_string_is_held_back_and_then_shown() -> None:
    pieces, is_stopped = shown("a STx", [" STOP"])
    assert pieces == ["a", "", "", "", " STx", ""] and not is_stopped


def test_a_beginning_of_a_stop_at_the_end_is_shown() -> None:
    assert "".join(shown("a ST", [" STOP"])[0]) == "a ST"


def test_the_end_token_is_not_text() -> None:
    assert "".join(shown("ab\0", [])[0]) == "ab"


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=4))
def test_it_cuts_where_a_search_of_the_whole_text_would(text: str, stops: list[str]) -> None:
    # The first moment at which any stop is complete decides.
    ends = [end for end in range(len(text) + 1) if any(stop in text[:end] for stop in stops)]
    seen = text[: ends[0]] if ends else text
    starts = [at for stop in stops if (at := seen.find(stop)) >= 0]
    expected = seen[: min(starts)] if starts else text
    pieces, is_stopped = shown(text, stops)
    assert "".join(pieces) == expected
    assert is_stopped == bool(starts)
