"""Bad input gets a clear answer, and hurts nobody."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.cluster.chat import ask
from tests.cluster.harness import MODEL, Cluster

GOOD = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
CHATS = "/v1/chat/completions"


def post(cluster: Cluster, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        cluster.endpoint + path, data=body, headers={"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"model": "gpt-99"}, 404, "gpt-99"),
        ({"messages": []}, 400, "messages"),
        ({"messages": "hello"}, 400, "messages"),
        ({"messages": [{"role": "user"}]}, 400, "content"),
        ({"messages": None}, 400, "messages"),
        ({"temperature": -1}, 400, "temperature"),
        ({"temperature": "hot"}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": 10**9}, 400, "8192"),
        ({"n": 2}, 400, "n"),
        ({"logprobs": True}, 400, "logprobs"),
        ({"messages": [{"role": "user", "content": "word " * 9000}]}, 400, "8192"),
    ],
)
def test_a_bad_field_is_refused_by_name(
    cluster: Cluster, change: dict[str, Any], status: int, says: str
) -> None:
    code, body = post(cluster, CHATS, json.dumps({**GOOD, **change}).encode())
    assert code == status, body
    assert says in body["error"]["message"]
    assert {"message", "type", "param", "code"} <= set(body["error"])


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (CHATS, b"{not json", 400),
        (CHATS, b"", 400),
        (CHATS, b"[]", 400),
        (CHATS, b"\xff\xfe", 400),
        ("/v1/nothing", b"{}", 404),
        ("/v1/completions", b'{"model": "%s", "prompt": ""}' % MODEL.encode(), 400),
    ],
)
def test_a_bad_body_is_refused(cluster: Cluster, path: str, body: bytes, status: int) -> None:
    code, answer = post(cluster, path, body)
    assert code == status, answer
    assert answer["error"]["message"]


def test_a_body_of_100_mb_is_refused_without_being_kept(cluster: Cluster) -> None:
    body = json.dumps({**GOOD, "messages": [{"role": "user", "content": "x" * 100_000_000}]})
    try:
        code, answer = post(cluster, CHATS, body.encode())
    except urllib.error.URLError as error:  # the server may close before all of it is sent
        assert isinstance(error.reason, ConnectionError)
    else:
        assert code == 413 and "max_body" in answer["error"]["message"]
    assert post(cluster, CHATS, json.dumps(GOOD).encode())[0] == 200


def test_the_cluster_still_answers_after_all_that(cluster: Cluster) -> None:
    assert "Paris" in ask(cluster.client, "What is the capital of France?").text
