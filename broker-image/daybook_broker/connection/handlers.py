"""All commands that this broker carries out, each with its handler."""

from collections.abc import Mapping
from typing import Final

from daybook_broker.connection import consumer_reports, consumers, lookups, producers, session, topic_lists
from daybook_broker.connection.connection import Handler

HANDLERS: Final[Mapping[int, Handler]] = {
    **session.HANDLERS,
    **lookups.HANDLERS,
    **topic_lists.HANDLERS,
    **producers.HANDLERS,
    **consumers.HANDLERS,
    **consumer_reports.HANDLERS,
}
"""By the number of the command's type; another command is refused, and the connection continues."""
