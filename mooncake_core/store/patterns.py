"""Many objects by a prefix or a regular expression of their keys.

An expression is looked for in each key, as `re.search` does; `^` ties it to the start. It runs
here, in the caller's process, over the pages of a listing: the master is only asked for the keys
that begin with what the expression begins with. The functions take a StoreClient and block; in
asyncio: `await store.call(remove_matching, "^model-1/")`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from mooncake_core.store.client import StoreClient
from mooncake_core.store.described import ObjectDescription
from mooncake_core.store.options import Key, raw

Compiled = re.Pattern[Any]
_PAGE = 1000
_META = frozenset(".^$*+?{}[]\\|()")
_OPTIONAL = ("*", "?", "{")
_CHANGES_LITERALS = re.IGNORECASE | re.VERBOSE | re.LOCALE


def list_matching(
    client: StoreClient,
    pattern: Key,
    *,
    prefix: Key = b"",
    page: int = _PAGE,
    unreadable: bool = False,
) -> Iterator[ObjectDescription]:
    """Yield the objects whose key the expression is found in; as StoreClient.list_objects.

    Args:
        client: whose store.
        pattern: text is looked for in keys as UTF-8, where other bytes are the code points U+DC80
            to U+DCFF; bytes in keys as they are.
        prefix: what the keys start with besides.
        page: keys that the master is asked for at once.
        unreadable: also those that are stored but cannot be read now.

    Raises:
        ValueError: it is no regular expression.
    """
    compiled = _compiled(pattern)
    start = raw(prefix)
    longest = max(start, literal_prefix(compiled), key=len)
    objects = client.list_objects(longest, page=page, unreadable=unreadable)
    return (one for one in objects if one.key.startswith(start) and _fits(compiled, one.key))


def remove_matching(client: StoreClient, pattern: Key, *, page: int = _PAGE) -> int:
    """Remove the objects that `list_matching` yields; return how many this call has removed.

    Those that are stored but cannot be read now go too; what is being written stays. Of a group
    that goes as a whole, the first member counts. An object that is put meanwhile may go or stay.
    """
    return _remove(client, list_matching(client, pattern, page=page, unreadable=True), page)


def remove_by_prefix(client: StoreClient, prefix: Key, *, page: int = _PAGE) -> int:
    """Remove the objects whose key starts with `prefix`; as `remove_matching`. Empty: all."""
    return _remove(client, client.list_objects(prefix, page=page, unreadable=True), page)


def literal_prefix(compiled: Compiled) -> bytes:
    """Return what every key begins with that the expression can be found in."""
    pattern = compiled.pattern
    text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    start = next((anchor for anchor in ("^", r"\A") if text.startswith(anchor)), "")
    is_tied = start == r"\A" or (start == "^" and not compiled.flags & re.MULTILINE)
    if not is_tied or "|" in text or compiled.flags & _CHANGES_LITERALS:
        return b""
    found = "".join(_literals(text[len(start) :]))
    return found.encode("latin-1") if isinstance(pattern, bytes) else _encoded(found)


def _literals(text: str) -> Iterator[str]:
    """Yield the characters that the expression begins with, each exactly once."""
    at = 0
    while at < len(text):
        length = 2 if text[at] == "\\" else 1
        character = text[at : at + length][-1]
        is_escaped = length == 2 and not character.isalnum()
        if not is_escaped and (length == 2 or character in _META):
            return
        at += length
        if text[at : at + 1] in _OPTIONAL:
            return
        yield character


def _compiled(pattern: Key) -> Compiled:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error


def _fits(compiled: Compiled, key: bytes) -> bool:
    """Return whether the expression, of text or of bytes, is found in the key."""
    is_text = isinstance(compiled.pattern, str)
    searched: Any = key.decode("utf-8", "surrogateescape") if is_text else key
    return compiled.search(searched) is not None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _remove(client: StoreClient, objects: Iterable[ObjectDescription], page: int) -> int:
    keys = (one.key for one in objects)
    count = 0
    while some := list(itertools.islice(keys, page)):
        count += sum(client.batch_remove(some))
    return count
