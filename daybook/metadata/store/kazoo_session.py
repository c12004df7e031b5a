"""kazoo's client, which also knows until when its session certainly lives.

Rule 46: by this process's own monotonic clock (`runtime.clock`) the session lives until the negotiated time-out after the
moment at which the last answered request, ping or handshake was *sent*, minus a margin for the way from the server that
answers to the leader that expires sessions. kazoo does not expose those moments, so this module extends the few methods
that know them. A request can also be bound to a session: it is checked and queued under the lock that expiry takes (rule 42).
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.connection import PING_XID, ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.serialization import Watch as WatchedPath
from kazoo.protocol.states import KeeperState

from daybook.metadata.store.add_watch import AddWatch
from daybook.metadata.store.multi_read import MultiRead
from daybook.runtime.clock import monotonic_s

SESSION_MARGIN: Final = 0.1
"""The part of the negotiated time-out that serves as the margin.

A follower that answers a ping reports it to the leader within half a tick; if the follower dies before, the leader counts
from the previous ping. A tenth covers this, and clocks of different rates, if a tick is at most a fifth of the time-out:
1 s for a time-out of 5 s. Set `tickTime` of the servers accordingly; the embedded server has 500 ms.
"""


class SessionConnection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's connection, which also reports when it sent the request that the server answered last."""

    client: "SessionClient"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pings_sent: deque[float] = deque()

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        sent = monotonic_s()
        if isinstance(request, Connect):
            self._pings_sent.clear()
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect):
            granted = answer[0]
            if granted.time_out > 0:
                self.client.session_granted(granted.session_id, granted.time_out / 1000, sent)
        return answer

    def _send_ping(self, connect_timeout: float) -> None:
        self._pings_sent.append(monotonic_s())
        super()._send_ping(connect_timeout)

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        super()._read_watch_event(buffer, offset)
        event, _ = WatchedPath.deserialize(buffer, offset)
        self.client.on_tree_change(self.client.unchroot(event.path))

    def _read_header(self, timeout: float) -> Any:
        answer = super()._read_header(timeout)
        if (
            answer[0].xid == PING_XID
        ):  # answers come in the order of the pings, of which several may be in flight
            self.client.answered(self.client.granted_id, self._pings_sent.popleft())
        return answer


class SessionClient(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """kazoo's client with the instant until which the session lives, and with requests bound to a session."""

    def __init__(self, *args: Any, sasl_options: Any, **kwargs: Any) -> None:
        super().__init__(*args, sasl_options=sasl_options, **kwargs)
        self.session_lock = threading.RLock()
        self.granted_id = 0
        self.alive_until = 0.0
        self._granted_s = 0.0
        self.on_tree_change: Callable[[str], None] = lambda _path: None
        """Called in the connection's thread with the path of each event, before any later answer is passed on."""
        self._connection = SessionConnection(
            self, self._conn_retry.copy(), logger=self.logger, sasl_options=sasl_options
        )

    def session_granted(self, session_id: int, granted_s: float, sent: float) -> None:
        """The server accepted a handshake that began at `sent`."""
        with self.session_lock:
            self.granted_id, self._granted_s = session_id, granted_s
            self.alive_until = 0.0
            self.answered(session_id, sent)

    def answered(self, session_id: int, sent: float) -> None:
        """The server answered, within `session_id`, a request that was sent at `sent`."""
        with self.session_lock:
            if session_id == self.granted_id:
                certain = sent + self._granted_s * (1 - SESSION_MARGIN)
                self.alive_until = max(self.alive_until, certain)

    def get_each_async(self, paths: Sequence[str]) -> IAsyncResult:
        """Read the nodes in one request; the result is that of MultiRead."""
        result = self.handler.async_result()
        self._call(MultiRead([f"{self.chroot}{path}" for path in paths]), result)
        return result

    def watch_tree_async(self, path: str) -> IAsyncResult:
        """Have every change at or below `path` reported to `on_tree_change`, until the connection ends."""
        result = self.handler.async_result()
        self._call(AddWatch(f"{self.chroot}{path}"), result)
        return result

    def _session_callback(self, state: KeeperState) -> None:
        with self.session_lock:
            if state == KeeperState.EXPIRED_SESSION:
                self.granted_id, self.alive_until = 0, 0.0
            super()._session_callback(state)

    def _call(self, request: Any, async_object: Any) -> Any:
        # Under the lock no request enters the queue of a session whose queue was just failed and dropped.
        with self.session_lock:
            return super()._call(request, async_object)
