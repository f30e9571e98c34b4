"""Chat templates: what they are given, and what they cannot do."""

import pytest

from mooncake_core.errors import ModelError, RequestError
from mooncake_core.tokenizer.chat import ChatTemplate

HELLO = [{"role": "user", "content": "Hi"}]


def render(source, messages=HELLO, **tokens):
    return ChatTemplate(source, tokens).render(messages, add_generation_prompt=True)


def test_a_template_sees_messages_special_tokens_and_the_prompt_flag():
    source = "{{ bos_token }}{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}"
    assert render(source, bos_token="<s>") == "<s>Hi>"


def test_blocks_leave_no_line_breaks_behind():
    assert render("{% if true %}\n  {% set x = 1 %}\nx\n{% endif %}\n") == "x\n"


def test_loops_can_be_left():
    assert render(
        "{% for i in range(9) %}{% if i > 1 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    ) == ("01")


def test_json_is_not_escaped_for_html():
    assert render("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'
    assert render("{{ [1] | tojson(indent=1) }}") == "[\n 1\n]"


def test_the_date_can_be_asked_for():
    assert render("{{ strftime_now('%Y') }}").isdecimal()


def test_a_template_that_refuses_gives_its_message_to_the_user():
    with pytest.raises(RequestError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[5].content }}",
        "{{ 'a' + messages }}",
        "{{ 1 / 0 }}",
        "{{ messages[0].nope.more }}",
    ],
)
def test_messages_that_a_template_cannot_use_are_refused(source):
    with pytest.raises(RequestError, match="chat template refuses"):
        render(source)


@pytest.mark.parametrize(
    "source",
    ["{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.append(1) }}"],
)
def test_a_template_reaches_nothing_outside_and_changes_nothing(source):
    with pytest.raises(RequestError):
        render(source)


def test_a_template_that_does_not_parse_is_a_fault_of_the_model():
    with pytest.raises(ModelError, match="does not parse"):
        ChatTemplate("{% if %}", {})
