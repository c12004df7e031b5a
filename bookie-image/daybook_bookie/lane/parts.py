"""Sending a message that lies in parts: the kernel gathers them, so a megabyte of frames is not joined in memory first."""

import socket
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from daybook.core.format.frame import Buffer
from daybook.runtime.clock import monotonic_ms

PARTS_MAX: Final = 512
"""Of one system call; Linux takes 1,024."""


def send_parts(connection: socket.socket, parts: Sequence[Buffer], flags: int = 0) -> None:
    """As `sendall` of all parts together, within the socket's timeout. Raises OSError, of which TimeoutError is one."""
    timeout_s = connection.gettimeout()
    started_ms = monotonic_ms()
    waiting = deque([memoryview(part) for part in parts])
    while waiting:
        sent = connection.sendmsg(list(islice(waiting, PARTS_MAX)), (), flags)
        while waiting and sent >= len(waiting[0]):
            sent -= len(waiting.popleft())
        if not waiting:
            return
        waiting[0] = waiting[0][sent:]
        if timeout_s is not None and monotonic_ms() - started_ms > 1000 * timeout_s:
            msg = f"the client has not taken a message within {timeout_s:.1f} s"
            raise TimeoutError(msg)
