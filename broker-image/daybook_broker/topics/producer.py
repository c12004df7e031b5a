"""A producer of a topic, as its connection announced it: what it sends becomes entries, byte for byte, and is answered in order."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.core.ids import LedgerId
from daybook.wire.pulsar.by_hand import ReceiptEncoder, Send, receipt_encoder
from daybook.wire.pulsar.errors import EntryChecksumError, EntryError
from daybook.wire.pulsar.frames import encode_frame
from daybook.wire.pulsar.producer_entry import check_producer_entry
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandSendError,
    ProducerAccessMode,
    ServerError,
)
from daybook_broker.topics.peer import BrokerUrls, Peer

if TYPE_CHECKING:
    from daybook_broker.topics.topic import Topic


@dataclass(frozen=True, slots=True)
class ProducerWish:
    """What a client asks for with PRODUCER."""

    producer_id: int
    name: str
    is_name_given: bool
    """Whether a person chose the name: then no later session of the client replaces the producer by itself."""
    epoch: int
    """Rises with each time that the client connects this producer again."""
    access_mode: ProducerAccessMode
    topic_epoch: int | None
    """The one that the producer had as an exclusive one before it lost its connection."""
    metadata: tuple[tuple[str, str], ...] = ()
    """Names and values that the client gives it, for people."""


class Producer:
    """A producer that is connected. `close` is called by the topic that drops it, and notifies the client."""

    __slots__ = (
        "_on_closed",
        "_on_ready",
        "_receipts",
        "_receipts_of",
        "bytes_in",
        "entries_in",
        "id",
        "is_closed",
        "is_waiting",
        "messages_in",
        "name",
        "peer",
        "topic",
        "topic_epoch",
        "wish",
    )

    def __init__(
        self,
        wish: ProducerWish,
        topic: "Topic",
        peer: Peer,
        *,
        on_closed: Callable[["Producer", BrokerUrls | None], None],
        on_ready: Callable[["Producer", DaybookError | None], None],
    ) -> None:
        """`on_closed` removes it from its connection, and sends CLOSE_PRODUCER; `on_ready` ends a wait to be the exclusive one."""
        self.id = wish.producer_id
        self.name = wish.name
        self.wish = wish
        self.topic = topic
        self.peer = peer
        self.topic_epoch: int | None = None
        """Of an exclusive producer."""
        self.is_closed = False
        """Whether what it sends is ignored: the client sends it again to whoever serves the topic then."""
        self.is_waiting = False
        """Whether it waits to be the exclusive one, and may not publish yet."""
        self.entries_in = self.messages_in = self.bytes_in = 0
        self._on_closed = on_closed
        self._on_ready = on_ready
        self._receipts_of: LedgerId | None = None
        self._receipts: ReceiptEncoder | None = None

    def send(self, send: Send, entry: Buffer) -> None:
        """Publish an entry; its receipt, or its error, follows those of all earlier ones."""
        if self.is_closed:
            return
        _, sequence_id, messages, highest_sequence_id = send
        if self.is_waiting:
            msg = (
                f"topic {self.topic.name} has another producer: wait for the success that says producer_ready"
            )
            self.send_error(sequence_id, ServerError.NotAllowedError, msg)
            return
        try:
            check_producer_entry(entry)
        except EntryError as error:
            self.refuse(sequence_id, error)
            return
        if messages < 1:
            messages = 1
        size_bytes = len(entry)
        self.entries_in += 1
        self.messages_in += messages
        self.bytes_in += size_bytes
        self.peer.pending_bytes += size_bytes
        self.topic.publish((self, sequence_id, highest_sequence_id, messages, entry))

    def receipts(self, ledger_id: LedgerId) -> ReceiptEncoder:
        """What encodes its receipts for entries of this ledger, of which many follow each other."""
        if self._receipts is None or self._receipts_of != ledger_id:
            self._receipts_of, self._receipts = ledger_id, receipt_encoder(self.id, ledger_id)
        return self._receipts

    def refuse(self, sequence_id: int, error: EntryError) -> None:
        """The bytes of an entry are wrong: the client keeps the others, and sends this one again if it was damaged on its way."""
        is_damaged = isinstance(error, EntryChecksumError)
        code = ServerError.ChecksumError if is_damaged else ServerError.NotAllowedError
        self.send_error(sequence_id, code, f"topic {self.topic.name}: {error}")

    def send_error(self, sequence_id: int, code: ServerError, text: str) -> None:
        """Answer an entry with an error."""
        failure = CommandSendError(producer_id=self.id, sequence_id=sequence_id, error=code, message=text)
        self.peer.send(encode_frame(BaseCommand(type=BaseCommand.SEND_ERROR, send_error=failure)))

    def ready(self, error: DaybookError | None) -> None:
        """It is the exclusive one now, or never will be."""
        self.is_waiting = False
        if error is not None:
            self.is_closed = True
        self._on_ready(self, error)

    def close(self, urls: BrokerUrls | None = None) -> None:
        """The topic has dropped the producer: the client connects it again, to the broker at `urls` if they are known."""
        self.is_closed = True
        self._on_closed(self, urls)
