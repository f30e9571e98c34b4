r"""Keys as people see and type them: UTF-8 text, in which any byte can be written as \xNN.

What is shown can be given: a backslash is \\, and bytes that are not UTF-8 or that no terminal
shows are escaped. Pure.
"""

from __future__ import annotations

import re

from mooncake_core.errors import UsageError

_ESCAPE = re.compile(r"\\(\\|x[0-9A-Fa-f]{2})?")


def shown(key: bytes) -> str:
    """Return the text that `parse` makes this key of."""
    return "".join(map(_shown, key.decode("utf-8", "surrogateescape")))


def parse(text: str) -> bytes:
    """Return the key that a text stands for.

    Raises:
        UsageError: a backslash begins no escape.
    """
    key, at = b"", 0
    for escape in _ESCAPE.finditer(text):
        code = escape[1]
        if code is None:
            raise UsageError(rf"{text!r}: a backslash is written \\, and a byte \xNN")
        byte = b"\\" if code == "\\" else bytes([int(code[1:], 16)])
        key += _encoded(text[at : escape.start()]) + byte
        at = escape.end()
    return key + _encoded(text[at:])


def _shown(character: str) -> str:
    if character == "\\":
        return r"\\"
    if character.isprintable():
        return character
    return "".join(rf"\x{byte:02x}" for byte in _encoded(character))


def _encoded(text: str) -> bytes:
    """Return the bytes that a word of the command line had."""
    return text.encode("utf-8", "surrogateescape")
