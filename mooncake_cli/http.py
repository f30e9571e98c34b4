"""Asking Mooncake's own HTTP servers, with the standard library alone. Blocking; no proxies."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any

from mooncake_core.errors import MooncakeError, UsageError, WireError

TIMEOUT_S = 3.0


class Unreachable(MooncakeError):
    """Nobody answers at an address."""


def get_json(address: str, path: str) -> tuple[int, Any]:
    """Return the HTTP status and the decoded JSON body.

    Args:
        address: host:port.
        path: with its leading slash.

    Raises:
        UsageError: the address is none.
        Unreachable: nobody answers there within TIMEOUT_S.
        WireError: whoever answers does not speak HTTP with JSON.
    """
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise UsageError(f"{address!r} is not host:port, such as 127.0.0.1:8000")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if body else None
    except (http.client.HTTPException, ValueError) as error:  # before OSError: some are both
        raise WireError(f"http://{address}{path}: the answer is not JSON over HTTP") from error
    except OSError as error:
        raise Unreachable(f"{address}: nobody answers: {error.strerror or error}") from error
    finally:
        connection.close()
