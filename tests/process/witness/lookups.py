"""Lookups over HTTP that name the wrong broker every other time, so that a client's next SUBSCRIBE or PRODUCER is certainly refused.

A client that a broker refuses because it is not the owner looks the topic up again, and then it gets the owner. All else is what a broker answers.
"""

import json
import threading
from collections import Counter
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.error import HTTPError
from urllib.request import urlopen

from daybook.local.cluster_file import BrokerEntry

LOOKUP: Final = "/lookup/v2/topic/"
TIMEOUT_S: Final = 60


class MisleadingLookups:
    """The server; `with` starts and stops it."""

    def __init__(self, brokers: Sequence[BrokerEntry]) -> None:
        """Two brokers or more."""
        self._brokers = brokers
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.misled = 0
        """How often it named the wrong broker."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="lookups", daemon=True)

    @property
    def url(self) -> str:
        """What clients get as their service URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str) -> bytes:
        """What a broker answers, changed if it is a lookup's turn. Raises HTTPError."""
        with urlopen(f"{self._brokers[0].admin_url}{path}", timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read()
        if path.startswith(LOOKUP) and self._is_turn(path):
            found = json.loads(content)
            wrong = next(each for each in self._brokers if each.service_url != found["brokerUrl"])
            content = json.dumps({**found, **_addresses(wrong)}).encode()
        return content

    def _is_turn(self, path: str) -> bool:
        with self._lock:
            self._asked[path] += 1
            is_turn = self._asked[path] % 2 == 1
            self.misled += is_turn
        return is_turn

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        lookups = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    status, content = 200, lookups.answer(self.path)
                except HTTPError as error:
                    status, content = error.code, error.read()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Nobody reads a log of requests."""

        return Handler

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _addresses(broker: BrokerEntry) -> dict[str, str]:
    return {"brokerUrl": broker.service_url, "nativeUrl": broker.service_url, "httpUrl": broker.admin_url}
