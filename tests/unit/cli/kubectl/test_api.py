"""Connections that break in the middle of an answer, as when an API server restarts or a proxy ends them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

import pytest
from kubernetes.client import ApiClient, Configuration

from daybook.cli.kubectl.api import Api, ApiError, Object


class Answer(NamedTuple):
    """What the server sends; one that is not whole lacks its end."""

    body: bytes
    is_whole: bool = True
    status: int = 200


@contextmanager
def api_server(*answers: Answer) -> Iterator[Api]:
    """A server that gives these answers in turn, each on a connection of its own."""
    left = iter(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer = next(left)
            self.send_response(answer.status)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(answer.body), answer.body))
            if answer.is_whole:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Api(ApiClient(Configuration(host=f"http://127.0.0.1:{server.server_port}")))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def at(replicas: int) -> Object:
    """A pool that is to have so many bookies."""
    return {"metadata": {"resourceVersion": str(replicas)}, "spec": {"replicas": replicas}}


def encoded(thing: Any) -> bytes:
    return json.dumps(thing).encode() + b"\n"


def test_a_watch_that_breaks_off_is_followed_by_the_next_one() -> None:
    half = encoded({"type": "MODIFIED", "object": at(2)}) + b'{"type": "MODIF'
    gone = encoded({"type": "DELETED", "object": at(1)})
    answers = (Answer(encoded(at(3))), Answer(half, is_whole=False), Answer(encoded(at(1))), Answer(gone))
    seen: list[int] = []
    with api_server(*answers) as api, pytest.raises(ApiError, match="BookiePool data/bk was deleted"):
        seen += (each["spec"]["replicas"] for each in api.watch("BookiePool", "data", "bk"))
    assert seen == [3, 2, 1]


@pytest.mark.parametrize(
    ("ask", "status"),
    [
        (lambda api: api.listing("Pod"), 200),
        (lambda api: api.get("BookiePool", "data", "bk"), 200),
        (lambda api: api.get("BookiePool", "data", "bk"), 500),
        (lambda api: api.log("data", "bk-0", 9), 200),
        (lambda api: api.proxy("GET", "data", "broker-0:8080", "/", {}), 200),
    ],
)
def test_an_answer_that_breaks_off_is_an_error_in_words(ask: Callable[[Api], object], status: int) -> None:
    with (
        api_server(Answer(b'{"items": [', is_whole=False, status=status)) as api,
        pytest.raises(ApiError, match="the API server does not answer"),
    ):
        ask(api)
