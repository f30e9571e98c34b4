"""A model's chat template: messages to the text that the model was trained on.

Templates come from strangers, so they run in jinja2's sandbox, which lets them neither change what
they are given nor reach what Python hides. They see what transformers gives them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mooncake_core.errors import ModelError, RequestError

Message = Mapping[str, Any]


class ChatTemplate:
    """A compiled template. Thread-safe.

    Args:
        source: in jinja2.
        tokens: special tokens that templates name, such as bos_token.

    Raises:
        ModelError: the template does not parse.
    """

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ModelError(f"the model's chat template does not parse: {error}") from error
        self._tokens = dict(tokens)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """Return the prompt.

        Raises:
            RequestError: the template refuses the messages, or they lack what it reads.
        """
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **self._tokens,
            )
        # Whatever a template does with messages that it does not expect: 'a' + None, 1 / 0, ...
        except (
            jinja2.TemplateError,
            TypeError,
            ValueError,
            LookupError,
            ArithmeticError,
            AttributeError,
            RecursionError,
        ) as error:
            raise RequestError(
                f"the model's chat template refuses these messages: {error}"
            ) from error


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(value: Any, **options: Any) -> str:
    # jinja2's own filter escapes for HTML, which prompts must not be.
    return json.dumps(value, **{"ensure_ascii": False, **options})
