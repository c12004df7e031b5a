"""Bookies that answer each message in the loop's next turn, and what a handle needs around it."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Self

from daybook.client.driver.shared import Shared
from daybook.client.ledger import Ledger
from daybook.client.transport.channels import ChannelPool
from daybook.client.transport.link import AppendLink, LinkOwner
from daybook.core.errors import Code
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum
from daybook.core.reader.reader import Rank
from daybook.core.reader.suspects import Suspects
from daybook.core.stream import StreamAnswer
from daybook.core.writer.policy import WriterPolicy
from daybook.core.writer.writer import LedgerWriter
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.memory import MemoryServer, MemoryStore
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import decode_client_control, encode_answer, encode_server_control

BOOKIES: Final = ("b0", "b1", "b2")
QUORUM: Final = Quorum(3, 3, 2)


class _InstantLink:
    """A bookie that answers each message in the loop's next turn."""

    def __init__(self, bookie: BookieId, owner: LinkOwner) -> None:
        self.hello = pb.ServerHello(bookie_id=bookie, boot_id="boot", takes_lac_tables=True)
        self._owner = owner
        self._messages = 0

    def send(self, parts: Sequence[bytes]) -> None:
        """A message of frames; tables of LACs are not answered (rule 48)."""
        if parts[0].startswith(b"DBF"):
            self._messages += 1
            self._answer(encode_answer(StreamAnswer(self._messages)))

    def send_each(self, messages: Sequence[bytes]) -> None:
        """Attachments."""
        for message in messages:
            attach = decode_client_control(message).attach
            attached = pb.Attached(ledger_id=attach.ledger_id, purpose=attach.purpose, code=Code.OK)
            self._answer(encode_server_control(pb.ServerControl(attached=attached)))

    def _answer(self, message: bytes) -> None:
        asyncio.get_running_loop().call_soon(self._owner.received, message)


class _InstantBookies(ChannelPool):
    @asynccontextmanager
    async def _open_link(self, bookie: BookieId, owner: LinkOwner) -> AsyncIterator[AppendLink]:
        yield _InstantLink(bookie, owner)


def metadata_of(ledger_id: LedgerId, password_hash: str) -> LedgerMetadata:
    """An open ledger of all bookies, from its first entry on."""
    fragments = (Fragment(0, 0, BOOKIES),)
    return LedgerMetadata(ledger_id, QUORUM, fragments, writer_token="t", password_hash=password_hash)


class InstantCluster:
    """A cluster in memory, and a client's handles on ledgers there."""

    def __init__(self) -> None:
        """Its metadata is empty: `opened` makes it."""
        self.store = MemoryStore(MemoryServer())
        self.layout = Layout("bench")
        self.channels: ChannelPool = _InstantBookies("bench")
        self.ledgers = LedgerManager(self.store, self.layout)
        self.suspects = Suspects()
        self._shared = Shared(0)
        self._handles: list[Ledger] = []

    @classmethod
    @asynccontextmanager
    async def opened(cls) -> AsyncIterator[Self]:
        """A cluster; what was opened there is abandoned at the end."""
        cluster = cls()
        await ensure_cluster(cluster.store, cluster.layout, created_at_ms=0)
        cluster.channels.bookies_changed(cluster.bookies())
        try:
            yield cluster
        finally:
            for ledger in cluster._handles:
                await ledger.abandon()
            await cluster.channels.close()
            await cluster.store.close()

    def bookies(self) -> Mapping[BookieId, BookieInfo]:
        """All bookies."""
        return {name: BookieInfo(name, "nowhere:1") for name in BOOKIES}

    def rank(self) -> Rank:
        """All are equally near."""
        return lambda _: 0

    def open_ledger(self, policy: WriterPolicy | None = None) -> Ledger:
        """A new ledger's handle."""
        ledger_id: LedgerId = len(self._handles)
        writer = LedgerWriter(
            metadata_of(ledger_id, "h"),
            0,
            placement=make_policy(),
            rng=random.Random(ledger_id),
            bookies=self.bookies(),
            policy=policy or WriterPolicy(),
        )
        handle = Ledger(
            writer,
            "h",
            surroundings=self,
            on_end=lambda _: None,
            on_quarantine=lambda *_: None,
            shared=self._shared,
        )
        self._handles.append(handle)
        return handle
