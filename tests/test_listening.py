"""Addresses that a process listens on, and how it tells others of them."""

import errno
import http.server
import os
import threading

import pytest

from mooncake_cli.http import get_json
from mooncake_core.errors import ConfigError
from mooncake_core.listening import address_of, bind, explained
from tests.addresses import link_local


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[1]")

    def log_message(self, format: str, *args: object) -> None:
        pass


def assert_it_is_reached(address: str) -> None:
    with bind(f"{address}:0", "listen") as listener:
        assert address_of(listener).startswith(f"{address}:")
        server = http.server.HTTPServer(("", 0), Answer, bind_and_activate=False)
        server.socket.close()
        server.socket = listener
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert get_json(address_of(listener), "/") == (200, [1])
        thread.join()


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_an_address_is_reached_as_it_is_told(address: str) -> None:
    assert_it_is_reached(address)


def test_an_ipv6_socket_takes_no_ipv4() -> None:
    with pytest.raises(ConfigError, match="listen on"):
        bind("[::ffff:127.0.0.1]:0", "listen")


def test_a_link_local_address_is_told_with_its_interface() -> None:
    assert_it_is_reached(f"[{link_local()}]")


def test_a_name_is_taken_for_its_address() -> None:
    with bind("localhost:0", "listen") as listener:
        assert address_of(listener).rpartition(":")[0] in {"127.0.0.1", "[::1]"}


def test_a_name_that_is_none_is_told_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^listen: listen on nowhere\.invalid:0: \w"):
        bind("nowhere.invalid:0", "listen")


def test_each_reason_not_to_listen_comes_with_what_would_be_right() -> None:
    with pytest.raises(ConfigError, match=r"listen on 203.*no interface .* has it: there is .*lo "):
        bind("203.0.113.9:0", "listen")
    with bind("127.0.0.1:0", "listen") as taken:
        address = address_of(taken)
        with pytest.raises(ConfigError) as raised:
            bind(address, "admin")
    assert str(raised.value).startswith(f"admin: listen on {address}: Address already in use; use ")
    assert "ports below 1024" in explained(f"listen on a:80: {os.strerror(errno.EACCES)}")
    assert explained("listen on a:1: Connection reset") == "listen on a:1: Connection reset"
