"""What only the owner of a topic can do or knows, asked over the brokers' admin HTTP, at Pulsar's paths."""

import json
import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urljoin
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from daybook.core.errors import DaybookError
from daybook.core.topics.name import TopicName

TIMEOUT_S: Final = 40.0
"""A broker holds a request for up to 25 s while a topic changes its owner."""
REDIRECTS_MAX: Final = 20
MANAGER_HEADER: Final = "X-Daybook-Manager"
"""With the UID of the Topic resource that a request comes from."""
TOKEN_HEADER: Final = "X-Daybook-Token"  # noqa: S105 - the name of a header
"""With a token alone, for clients behind a proxy that keeps `Authorization` for itself, as Kubernetes' API server does."""
CHECK_FIRST: Final = "the request was sent and no answer came, so it may have been carried out: read `daybook topic stats` before you repeat it"
_READING: Final = ("GET", "HEAD")
_REDIRECTS: Final = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT, HTTPStatus.FOUND)


class AdminError(DaybookError):
    """A broker refused a request, or none answers. `status` is HTTP's, 0 without an answer.

    `is_outcome_unknown`: a change was sent, and no answer came. Whoever repeats it must know that twice is as good as once.
    """

    def __init__(self, message: str, status: int = 0, *, is_outcome_unknown: bool = False) -> None:
        """See the class."""
        super().__init__(message)
        self.status = status
        self.is_outcome_unknown = is_outcome_unknown


class _NotConnectedError(OSError):
    """No connection was made, so no request was sent."""


class _Connection(HTTPConnection):
    """Distinguishes errors before a request is sent from those after; the library raises the same for both."""

    def connect(self) -> None:
        try:
            super().connect()
        except (OSError, UnicodeError) as error:
            raise _NotConnectedError(str(error)) from error


class _TlsConnection(_Connection, HTTPSConnection):
    """The same with TLS."""


class _Http(HTTPHandler):
    """Uses these connections."""

    def http_open(self, req: Request) -> Any:
        return self.do_open(_Connection, req)


class _Https(HTTPSHandler):
    """The same with TLS."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._tls = context

    def https_open(self, req: Request) -> Any:
        return self.do_open(_TlsConnection, req, context=self._tls)


class _NoRedirects(HTTPRedirectHandler):
    """The library follows no redirect of a PUT or POST, and turns others into GET."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Leave it to `Admin`."""


class BrokerAdmin(ABC):
    """The admin HTTP of a cluster's brokers, however it is reached. Every method blocks."""

    def __init__(self, urls: Sequence[str]) -> None:
        """`urls` name all brokers that can be asked, as `ask_broker` takes them; any of them knows who answers."""
        self.urls: Final = tuple(urls)

    def ask(self, method: str, topic: TopicName, rest: str = "", body: object = None) -> Any:
        """The answer, decoded from JSON; None for an empty one. `rest` is of the path, or parameters. Raises AdminError."""
        parts = (topic.tenant, topic.namespace, topic.local)
        path = "/admin/v2/persistent/" + "/".join(quote(part, safe="") for part in parts)
        path += rest if rest.startswith("?") or not rest else f"/{rest}"
        return self.ask_any(method, path, body)

    def ask_any(self, method: str, path: str, body: object = None) -> Any:
        """The same of any path: the answer of the first broker that answers, or of the one that it redirects to. Raises AdminError.

        A change that may have been carried out is not sent to another broker: messages would be skipped twice.
        """
        failure = AdminError("no broker with an admin address is registered: start one, or check --cluster")
        for url in self.urls:
            try:
                return self.ask_broker(method, url, path, body)
            except AdminError as error:
                if error.status or error.is_outcome_unknown:
                    raise
                failure = error
        raise failure

    @abstractmethod
    def ask_broker(self, method: str, url: str, path: str, body: object = None) -> Any:
        """The answer of one broker, or of the one that it sends the request on to. Raises AdminError."""


class Admin(BrokerAdmin):
    """The admin HTTP at the addresses that brokers registered."""

    def __init__(
        self, urls: Sequence[str], tls: ssl.SSLContext | None = None, token: str = "", manager_uid: str = ""
    ) -> None:
        """`urls` are those of all registered brokers; any of them sends a request on to the owner.

        `manager_uid`: the requests come from the Topic resource with this UID, which may change what it manages.
        """
        super().__init__(urls)
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        if manager_uid:
            self._headers[MANAGER_HEADER] = manager_uid
        self._opener = build_opener(_NoRedirects, _Http, _Https(tls))

    def ask_broker(self, method: str, url: str, path: str, body: object = None) -> Any:
        """The answer of the broker whose admin HTTP is at `url`. Raises AdminError."""
        url = urljoin(url, path)
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
            except (URLError, OSError, ValueError, HTTPException) as error:
                raise _unanswered(method, url, error) from error
        msg = f"{url} was redirected {REDIRECTS_MAX} times: the topic moves from broker to broker, try again"
        raise AdminError(msg)


def _unanswered(method: str, url: str, error: Exception) -> AdminError:
    """The error of a broker that did not answer, or with something else than JSON."""
    msg = f"the broker's admin address {url} does not answer: {error}"
    if method in _READING or (isinstance(error, URLError) and isinstance(error.reason, _NotConnectedError)):
        return AdminError(msg)
    return AdminError(f"{msg}; {CHECK_FIRST}", is_outcome_unknown=True)


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
