"""What only the owner of a topic can do or knows, asked over the brokers' admin HTTP, at Pulsar's paths."""

import json
import ssl
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urljoin
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from daybook.core.errors import DaybookError
from daybook.core.topics.name import TopicName

TIMEOUT_S: Final = 40.0
"""A broker holds a request for up to 25 s while a topic changes its owner."""
REDIRECTS_MAX: Final = 20
_REDIRECTS: Final = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT, HTTPStatus.FOUND)


class AdminError(DaybookError):
    """A broker refused a request, or none answers. `status` is HTTP's, 0 without an answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        """See the class."""
        super().__init__(message)
        self.status = status


class _NoRedirects(HTTPRedirectHandler):
    """The library follows no redirect of a PUT or POST, and turns others into GET."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Leave it to `Admin`."""


class Admin:
    """The admin HTTP of a cluster. Every method blocks."""

    def __init__(self, urls: Sequence[str], tls: ssl.SSLContext | None = None, token: str = "") -> None:
        """`urls` are those of all registered brokers; any of them sends a request on to the owner."""
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._urls = urls
        self._opener = build_opener(_NoRedirects, HTTPSHandler(context=tls))

    def ask(self, method: str, topic: TopicName, rest: str = "", body: object = None) -> Any:
        """The answer, decoded from JSON; None for an empty one. `rest` is of the path, or parameters. Raises AdminError."""
        parts = (topic.tenant, topic.namespace, topic.local)
        path = "/admin/v2/persistent/" + "/".join(quote(part, safe="") for part in parts)
        path += rest if rest.startswith("?") or not rest else f"/{rest}"
        failure = AdminError("no broker with an admin address is registered: start one, or check --cluster")
        for url in self._urls:
            try:
                return self._follow(method, urljoin(url, path), body)
            except AdminError as error:
                if error.status:
                    raise
                failure = error
        raise failure

    def _follow(self, method: str, url: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        for _ in range(REDIRECTS_MAX):
            request = Request(url, data=data, method=method, headers=self._headers)  # noqa: S310 - http(s) of a broker
            try:
                with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                    text = answer.read()
                    return json.loads(text) if text else None
            except HTTPError as error:
                with error:
                    if error.code not in _REDIRECTS:
                        raise AdminError(_reason(error), error.code) from error
                    url = urljoin(url, error.headers["Location"])
            except (URLError, OSError, ValueError) as error:
                msg = f"the broker's admin address {url} does not answer: {error}"
                raise AdminError(msg) from error
        msg = f"{url} was redirected {REDIRECTS_MAX} times: the topic moves from broker to broker, try again"
        raise AdminError(msg)


def _reason(error: HTTPError) -> str:
    """What the broker says; its errors are {"reason": text}."""
    text = error.read(10_000)
    try:
        return str(json.loads(text)["reason"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}: {text[:500].decode(errors='replace')}"


def subscription_path(subscription: str, action: str = "") -> str:
    """The rest of the path of a subscription."""
    return f"subscription/{quote(subscription, safe='')}" + (f"/{action}" if action else "")
