"""/healthz and /readyz over HTTP, on a port and in threads of their own.

Alive: the event loop makes progress, and a leader has received something of the API server lately, by an event or a
resync, because a watch can die without an error. Ready: leading, or waiting to. Nothing else is checked: a restart does not
repair an API server or ZooKeeper that is unavailable.
"""

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

from daybook.runtime.health import Check
from daybook.runtime.ports import Address, check_port_free

PATHS: Final = ("/healthz", "/readyz")


class HealthEndpoint:
    """Serves while entered."""

    def __init__(self, address: Address, *, alive: list[Check], ready: list[Check]) -> None:
        """Listen on `address` (port 0: a free one) and serve. Raises PortInUseError."""
        check_port_free(address, "health_address")
        self._checks = dict(zip(PATHS, (alive, ready), strict=True))
        self._server = ThreadingHTTPServer((address.host, address.port), _handler(self.answer))
        self._server.daemon_threads = True
        self.address = Address(address.host, self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    def answer(self, path: str) -> tuple[HTTPStatus, str]:
        """The status for a path, and why."""
        checks = self._checks.get(path)
        if checks is None:
            return HTTPStatus.NOT_FOUND, f"there are {' and '.join(PATHS)}"
        reasons = [reason for check in checks if (reason := check())]
        return (HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(reasons)) if reasons else (HTTPStatus.OK, "ok")

    def close(self) -> None:
        """Stop serving and wait until the port is free."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        """The endpoint."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _handler(answer: Callable[[str], tuple[HTTPStatus, str]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answer(self.path.partition("?")[0])
            body = f"{text}\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes are not logged."""

    return Handler
