"""The bytes of entries before they are in a frame: their sizes, and the bound of one.

Most of what a topic appends is one entry at a time, so one alone is measured without the iterators that many need.
"""

from collections.abc import Sequence

from daybook.core.errors import EntryTooLargeError
from daybook.core.format.frame import Buffer
from daybook.core.ids import ENTRY_BYTES_MAX


def payload_bytes(payloads: Sequence[Buffer]) -> int:
    """The size of all of them together."""
    return len(payloads[0]) if len(payloads) == 1 else sum(map(len, payloads))


def check_payloads(payloads: Sequence[Buffer]) -> None:
    """Raise EntryTooLargeError if one is over the limit (rule 21: it burns no bookie)."""
    largest = len(payloads[0]) if len(payloads) == 1 else max(map(len, payloads), default=0)
    if largest > ENTRY_BYTES_MAX:
        msg = f"an entry of {largest} bytes: at most {ENTRY_BYTES_MAX} are allowed; split it, or store a reference"
        raise EntryTooLargeError(msg)
