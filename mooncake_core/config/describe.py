"""What may be configured: every key of a struct, with its type, default and meaning.

The meaning is the docstring below the field in the source of the struct, so that help texts,
examples and documentation say what the code says. Reads that source file; otherwise pure.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One configurable value."""

    name: str
    """Dotted, such as "transfer.listen"."""
    type: type
    """str, int, float, bool, or tuple: of strings."""
    default: Any
    doc: str
    choices: tuple[str, ...] = ()
    """Empty: any value within the bounds."""
    expected: str = ""
    """What a text, or each of a list, must look like; empty where the type says it all."""

    @property
    def flag(self) -> str:
        """The command-line flag that sets it."""
        return "--" + self.name.replace(".", "-").replace("_", "-")


def describe(kind: type[msgspec.Struct]) -> tuple[Key, ...]:
    """Return every key of `kind`, those of inner tables included, in the order of the fields."""
    return tuple(_keys(kind, kind(), ""))


def table_doc(kind: type[msgspec.Struct]) -> str:
    """Return what `kind` is for: the first paragraph of its docstring."""
    return inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0]


def _keys(kind: type[msgspec.Struct], defaults: msgspec.Struct, prefix: str) -> Iterator[Key]:
    docs = field_docs(kind)
    for field in msgspec.structs.fields(kind):
        name, default = f"{prefix}{field.name}", getattr(defaults, field.name)
        if isinstance(default, msgspec.Struct):
            yield from _keys(type(default), default, f"{name}.")
        else:
            choices, expected = _constraint(field.type)
            yield Key(
                name=name,
                type=type(default),
                default=default,
                doc=docs.get(field.name, ""),
                choices=choices,
                expected=expected,
            )


def _constraint(annotation: Any) -> tuple[tuple[str, ...], str]:
    if get_origin(annotation) is Literal:
        return get_args(annotation), ""
    if get_origin(annotation) is Annotated:
        metas = (meta for meta in get_args(annotation)[1:] if isinstance(meta, msgspec.Meta))
        return (), next((meta.description for meta in metas if meta.description), "")
    if get_origin(annotation) is tuple:
        return _constraint(get_args(annotation)[0])
    return (), ""


def field_docs(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return what each field of `kind` means; those that no docstring explains are left out."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            docs.update(_docs_of_module(inspect.getfile(base)).get(base.__name__, {}))
    return docs


@functools.cache
def _docs_of_module(path: str) -> Mapping[str, dict[str, str]]:
    """Return class name -> field name -> the string literal that follows the field."""
    module = ast.parse(Path(path).read_text(encoding="utf-8"))
    return {
        node.name: dict(_documented(node)) for node in module.body if isinstance(node, ast.ClassDef)
    }


def _documented(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, doc in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(doc, ast.Expr)
            and isinstance(doc.value, ast.Constant)
        ):
            yield field.target.id, inspect.cleandoc(str(doc.value.value)).replace("\n", " ")
