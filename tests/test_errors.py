"""The error tree is the one that its module draws."""

import inspect
import re

from mooncake_core import errors


def all_errors() -> list[type[errors.MooncakeError]]:
    return [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.MooncakeError)
    ]


def test_every_error_is_in_the_drawn_tree_under_its_parent() -> None:
    drawn: dict[str, str] = {}
    stack: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"([│├└─ ]*)([A-Z]\w+) {2,}", line)
        if match is None:
            continue
        depth = len(match.group(1))
        while stack and stack[-1][0] >= depth:
            stack.pop()
        drawn[match.group(2)] = stack[-1][1] if stack else "Exception"
        stack.append((depth, match.group(2)))
    real = {kind.__name__: kind.__bases__[0].__name__ for kind in all_errors()}
    assert drawn == real


def test_every_error_says_in_a_sentence_what_it_means() -> None:
    for kind in all_errors():
        assert kind.__doc__ and kind.__doc__.strip().split("\n")[0].endswith("."), kind
