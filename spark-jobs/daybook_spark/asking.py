"""Asks a topic's owner for what may be asked for twice, until it answers: owners change, and are busy."""

import time
from collections.abc import Callable
from typing import Final

from daybook.client.broker_admin import AdminError
from daybook.core.topics.name import TopicName
from daybook.runtime.clock import monotonic_s
from daybook.runtime.logs import get_logger

log = get_logger(__name__)

ASK_S: Final = 120.0
"""How long the owner is asked, while it changes or is busy."""
PAUSE_S: Final = 1.0
"""Between two requests."""
NOT_NOW: Final = (0, 503)
"""The status of an AdminError after which nobody knows what became of the request."""


def ask_owner(topic: TopicName, ask: Callable[[], None]) -> None:
    """Ask until there is an answer. Raises AdminError if the owner refuses, or with a status of NOT_NOW once ASK_S are over."""
    deadline_s = monotonic_s() + ASK_S
    while True:
        try:
            return ask()
        except AdminError as error:
            if error.status not in NOT_NOW or monotonic_s() > deadline_s:
                raise
            log.warning("the owner of a topic is asked again", topic=str(topic), why=str(error))
            time.sleep(PAUSE_S)
