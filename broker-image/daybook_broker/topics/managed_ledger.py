"""A topic's ledgers on this broker: carries out what the machine of the core asks for, over the ledger client and ZooKeeper.

The machine (daybook/core/topics/managed_ledger.py) decides; nothing is decided here. A request becomes a task; what is appended goes to
its ledger in order (appends.py), without a task or a future. Answers arrive in a later turn of the event loop.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final, assert_never

from daybook.client.client import Client
from daybook.client.ledger import Ledger
from daybook.core.errors import (
    DaybookError,
    MetadataError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NoSuchTopicError,
    NotOwnerError,
)
from daybook.core.events import CasAnswered, CasOutcome, MetadataUnreadable
from daybook.core.format.frame import Buffer
from daybook.core.format.payloads import check_payloads
from daybook.core.ids import EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.topics.events import (
    Append,
    CasList,
    CloseLedger,
    CompactionWritten,
    CreateLedger,
    DeleteLedger,
    LedgerCreated,
    LedgerDeleted,
    LedgerEnded,
    LedgerRequestFailed,
    ListKnown,
    ListRead,
    ManagedLedgerEffect,
    ManagedLedgerEvent,
    Published,
    PublishFailed,
    ReadList,
    RecoverLedger,
    Retrying,
    RollRequested,
    TerminateRequested,
    TopicEnded,
    TopicTick,
    TrimRequested,
    UnloadRequested,
)
from daybook.core.topics.ledger_list import Compaction, LedgerList, Position
from daybook.core.topics.list_room import check_room
from daybook.core.topics.managed_ledger import ManagedLedger
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.changes import OffloadChange
from daybook.core.topics.open_ledger import ManagedLedgerPolicy
from daybook.core.topics.phases import Phase
from daybook.core.topics.policy import LedgerTerms
from daybook.core.topics.trimming import Retention
from daybook.core.topics.unnamed import made_by
from daybook.metadata.store.store import Versioned
from daybook.metadata.topics import TopicManager
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.logs import get_logger
from daybook_broker.topics.appends import LedgerAppends
from daybook_broker.topics.creation import create_ledger
from daybook_broker.topics.tasks import Tasks
from daybook_broker.topics.turn import TurnEnd

log = get_logger(__name__)

RECOVERY_TIMEOUT_MS: Final = 30_000
"""A recovery that takes longer ends, and the machine asks for another after its pause."""


class TopicLedgers:
    """The ledgers of one topic, for whoever publishes to it. Make one for each time that this broker takes the topic over."""

    def __init__(
        self,
        name: TopicName,
        owner_token: str,
        client: Client,
        *,
        terms: Callable[[], LedgerTerms],
        policy: ManagedLedgerPolicy | None = None,
        on_result: Callable[[ListKnown | Published | PublishFailed | TopicEnded], None],
        turn_end: TurnEnd | None = None,
    ) -> None:
        """`on_result` receives what the machine reports, in order; `owner_token` is drawn anew for each take-over (rule 38).

        `terms` says how the next ledger is created, with the bookies that are there now; `turn_end` is the broker's.
        """
        self.name = name
        self._owner_token = owner_token
        self._client = client
        self._topics = TopicManager(client.store, client.layout)
        self._terms = terms
        self._created_with: LedgerTerms | None = None
        """The terms of the newest ledger of this owner."""
        self._on_result = on_result
        self._turn_end = turn_end or TurnEnd()
        self._machine = ManagedLedger(
            str(name), owner_token, policy=policy, now_ms=monotonic_ms(), unix_ms=unix_ms()
        )
        self._list = Versioned(LedgerList(), -1)
        self._writing: dict[LedgerId, LedgerAppends] = {}
        self._tasks = Tasks(self._crashed)
        self._deletions = Tasks(self._crashed)
        self._crash: DaybookError | None = None

    @property
    def refusal(self) -> DaybookError | None:
        """Why nothing may be published now."""
        return self._crash or self._machine.refusal

    @property
    def phase(self) -> Phase:
        """What the machine does, for people."""
        return self._machine.phase

    @property
    def has_room(self) -> bool:
        """Whether more may be published now; until then whoever publishes should read no more from its clients.

        While it is False something is unanswered, so it may be True again at the next answer, and only then.
        """
        for (
            appends
        ) in self._writing.values():  # rarely more than one, and `any` costs as much as all else here
            if appends.is_waiting:
                return False
        return self._machine.has_room

    def start(self) -> None:
        """Take the topic over. `ListKnown` reports that it is served, `TopicEnded` that it is not."""
        self._perform(self._machine.start())

    def publish(self, payloads: Sequence[Buffer]) -> None:
        """Append entries, in order; `Published` and `PublishFailed` answer for the oldest first.

        Raises EntryTooLargeError, and `refusal` if there is one: then none of them is appended.
        """
        check_payloads(payloads)
        if (refusal := self.refusal) is not None:
            raise refusal
        self._take(self._machine.publish, payloads)

    def handle(self, ledger_id: LedgerId) -> Ledger | None:
        """The writer of a ledger that is being written."""
        appends = self._writing.get(ledger_id)
        return None if appends is None else appends.handle

    def trim(self, marks: tuple[Position, ...], retention: Retention) -> None:
        """Drop the ledgers that nobody needs, now or not at all; `marks` are what is persisted of every subscription (rule 40, rule 51)."""
        self._step(TrimRequested(marks, retention))

    def name_compaction(self, compaction: Compaction | None) -> None:
        """Name what a compaction wrote, or nothing, in place of what the list names now; `ListKnown` reports that it does (rule 41).

        Raises TopicFullError if the list has no room for the names.
        """
        self._check_room(replace(self._list.value, compaction=compaction))
        self._step(CompactionWritten(compaction))

    def change_offload(self, change: OffloadChange) -> Callable[[], bool]:
        """Name files of ledgers, give replicas up, or name copies; `ListKnown` reports that the list does (rule 70, rule 72).

        What is returned says whether the change is settled: done, or none because of another one before it. That may be so at once; later it
        becomes so with a `ListKnown`. Raises TopicFullError if the list has no room for the names.
        """
        self._check_room(change.applied(self._list.value))
        self._step(change)
        orders, number = self._machine.orders, self._machine.orders.taken
        return lambda: orders.settled >= number

    def _check_room(self, target: LedgerList) -> None:
        check_room(str(self.name), self._list.value, target)

    def terminate(self) -> None:
        """Finish what was published, and take nothing any more, for good; `ListKnown` reports the end."""
        self._step(TerminateRequested())

    def unload(self) -> None:
        """Finish what was published, and give the topic up; `TopicEnded` reports the end."""
        self._step(UnloadRequested())

    @property
    def written_with(self) -> LedgerTerms | None:
        """The terms of the ledger that is written; a policy that was changed since holds for the next one."""
        return self._created_with if self._writing else None

    @property
    def is_degraded(self) -> bool:
        """Whether what is written has fewer copies than the policy says (rule 45)."""
        terms = self.written_with
        return terms is not None and (
            terms.is_degraded or any(each.handle.is_degraded for each in self._writing.values())
        )

    def check_terms(self) -> None:
        """Begin another ledger if it would have more copies, or other quorums; call it now and then."""
        then = self.written_with
        if then is None:
            return
        now = self._terms()
        has_more = now.quorum.write_quorum > then.quorum.write_quorum
        if has_more or (now != then and not now.is_degraded):
            self._step(RollRequested())

    def tick(self) -> None:
        """Let time pass; call it a few times a second."""
        self._step(TopicTick(monotonic_ms(), unix_ms()))

    async def finished(self) -> None:
        """Wait until what is under way is done: after an unload, the deletions of ledgers that a trim has just dropped."""
        await self._tasks.finished()
        await self._deletions.finished()

    async def close(self) -> None:
        """Stop at once. What is open stays open, and the next owner recovers it.

        A ledger that nobody names any more needs no owner: its deletion continues, since nobody else would delete it.
        """
        await self._tasks.stop()
        for ledger_id in list(self._writing):
            await self._drop(ledger_id)

    # The loop

    def _step(self, event: ManagedLedgerEvent) -> None:
        self._take(self._machine.step, event)

    def _appended(self, ledger_id: LedgerId, through: EntryId) -> None:
        self._take(self._machine.appended, ledger_id, through)

    def _take(self, part: Callable[..., Sequence[ManagedLedgerEffect]], *arguments: Any) -> None:
        """Call `part` of the machine, and carry out what it asks for."""
        if self._crash is not None:
            return
        try:
            self._perform(part(*arguments))
        except Exception as error:  # noqa: BLE001 - it is logged, and the topic ends
            self._crashed(error)

    def _perform(self, effects: Sequence[ManagedLedgerEffect]) -> None:
        for effect in effects:
            match effect:
                case Append(ledger_id, payloads):
                    # if the ledger was dropped, the machine knows that what it sent there is to be sent again
                    if (appends := self._writing.get(ledger_id)) is not None:
                        appends.append(payloads)
                case Published() | PublishFailed() | ListKnown() | TopicEnded():
                    self._on_result(effect)
                case Retrying():
                    log.warning("a request for a topic failed", topic=str(self.name), why=str(effect.error))
                case ReadList():
                    self._tasks.begin(self._read_list(effect))
                case CasList():
                    self._tasks.begin(self._cas_list(effect))
                case CreateLedger():
                    self._tasks.begin(self._about_ledger(effect.request_id, self._create(effect)))
                case CloseLedger():
                    self._tasks.begin(self._about_ledger(effect.request_id, self._close(effect)))
                case RecoverLedger():
                    self._tasks.begin(self._about_ledger(effect.request_id, self._recover(effect)))
                case DeleteLedger():
                    self._deletions.begin(self._about_ledger(effect.request_id, self._delete(effect)))
                case _:
                    assert_never(effect)

    def _crashed(self, error: BaseException) -> None:
        """The machine is not to be trusted any more."""
        if self._crash is None:
            log.error("a part of a topic ended with an error", topic=str(self.name), exc_info=error)
            msg = (
                f"topic {self.name} stopped after an error of the broker: {error}; the next owner recovers it"
            )
            self._crash = DaybookError(msg)
            self._on_result(TopicEnded(self._crash))

    # The list

    async def _read_list(self, effect: ReadList) -> None:
        try:
            self._list = await self._topics.read(self.name, sync=True)
        except NoSuchTopicError:
            self._step(ListRead(effect.request_id, None))
        except (MetadataUnavailableError, MetadataError) as error:
            log.warning("a topic's list cannot be read", topic=str(self.name), why=str(error))
            self._step(MetadataUnreadable(effect.request_id))
        else:
            self._step(ListRead(effect.request_id, *self._list))

    async def _cas_list(self, effect: CasList) -> None:
        assert effect.expected_version == self._list.version
        try:
            self._list = await self._topics.cas(self.name, self._list, effect.ledger_list)
        except (NotOwnerError, NoSuchTopicError):
            self._step(CasAnswered(effect.request_id, CasOutcome.CONFLICT))
        except MetadataUnavailableError:
            self._step(CasAnswered(effect.request_id, CasOutcome.UNKNOWN))
        else:
            self._step(CasAnswered(effect.request_id, CasOutcome.DONE, self._list.version))

    # Ledgers

    async def _about_ledger(self, request_id: int, work: Coroutine[Any, Any, ManagedLedgerEvent]) -> None:
        try:
            answer = await work
        except DaybookError as error:
            answer = LedgerRequestFailed(request_id, error)
        self._step(answer)

    async def _create(self, effect: CreateLedger) -> LedgerCreated:
        terms = self._terms()
        custom_metadata = made_by(str(self.name), self._owner_token, pool=terms.pool)
        handle = await create_ledger(self._client, terms, custom_metadata, above=effect.above)
        self._created_with = terms
        self._writing[handle.id] = LedgerAppends(handle, self._appended, self._step, self._turn_end)
        return LedgerCreated(effect.request_id, handle.id)

    async def _close(self, effect: CloseLedger) -> LedgerEnded:
        metadata = await self._writing[effect.ledger_id].handle.close()
        self._writing.pop(effect.ledger_id, None)
        return _end(effect.request_id, metadata)

    async def _recover(self, effect: RecoverLedger) -> LedgerEnded:
        await self._drop(effect.ledger_id)
        found = await self._client.ledgers.read(effect.ledger_id, sync=True)
        metadata = found.value
        if not metadata.is_closed:
            metadata = await self._client.recover(metadata, timeout_ms=RECOVERY_TIMEOUT_MS)
        return _end(effect.request_id, metadata)

    async def _delete(self, effect: DeleteLedger) -> LedgerDeleted:
        await self._drop(effect.ledger_id)
        try:
            await self._client.delete_ledger(effect.ledger_id)
        except NoSuchLedgerError:
            log.info("a ledger was deleted before", topic=str(self.name), ledger_id=effect.ledger_id)
        return LedgerDeleted(effect.request_id)

    async def _drop(self, ledger_id: LedgerId) -> None:
        appends = self._writing.pop(ledger_id, None)
        if appends is not None:
            appends.drop()
            await appends.handle.abandon()


def _end(request_id: int, metadata: LedgerMetadata) -> LedgerEnded:
    return LedgerEnded(request_id, metadata.last_entry + 1, metadata.length)
