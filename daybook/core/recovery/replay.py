"""Replaying: reads on from where recovery starts until an entry is proved absent, and writes back what it finds.

Two halves run side by side: evidence.py decides what the answers to reads prove (rule 6), write_back.py puts what was
found on all of its write set. The ensemble that is read stays the one that was fenced (rule 9).
"""

from typing import Final, TypeAlias, assert_never

from daybook.core.effects import ReplayRequest, SendRead
from daybook.core.errors import Code
from daybook.core.events import BookieFailed, FrameAcked, FrameFailed, ReadAnswered, Tick
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.machine import RequestIds
from daybook.core.recovery.evidence import EvidenceWindow, Finding
from daybook.core.recovery.fencing import Fencing, describe_codes
from daybook.core.recovery.policy import RecoveryPolicy
from daybook.core.recovery.write_back import Spares, WriteBack

READS_FENCE: Final = True
"""A recovery read fences too: the fence request itself may have been lost (rule 2)."""

ReplayEvent: TypeAlias = ReadAnswered | FrameAcked | FrameFailed | BookieFailed | Tick


class Replay:
    """Replays the last fragment of `marked` after `fences`: `start()`, then `step(event)`.

    It ends by being `is_complete` or with a `failure`.
    """

    def __init__(
        self,
        marked: LedgerMetadata,
        fences: Fencing,
        *,
        spares: Spares,
        ids: RequestIds,
        policy: RecoveryPolicy,
        now_ms: int,
    ) -> None:
        self.failure: str | None = None
        """Why it cannot continue."""
        self.refusals = dict(fences.refusals)
        self.start_lac, length = fences.starting_point()
        self.write_back = WriteBack(
            marked.ledger_id,
            marked.quorum,
            marked.last_fragment,
            self.start_lac,
            length,
            spares,
            ids,
            policy.straggler_bytes_max,
        )
        self._quorum = marked.quorum
        self._ensemble = marked.last_fragment.bookies
        self._fenced = fences.fenced
        self._ids = ids
        self._policy = policy
        self._now_ms = now_ms
        self._out: list[ReplayRequest] = []
        self._reads: dict[int, tuple[int, EntryId]] = {}
        """The reads without an answer: the position that was asked, and from which entry on."""
        self._window: EvidenceWindow | None = None
        self._window_asked_ms = now_ms
        self._end: EntryId | None = None
        """The last entry, once it is proved."""

    @property
    def is_complete(self) -> bool:
        """Whether the end is proved and Qa bookies hold everything up to it."""
        return self._end is not None and self.write_back.is_idle

    def start(self) -> list[ReplayRequest]:
        """The first reads."""
        self._open_window()
        return self._take_out()

    def step(self, event: ReplayEvent) -> list[ReplayRequest]:
        """Take an event; what follows from it."""
        match event:
            case ReadAnswered():
                self._read_answered(event)
            case FrameAcked(_, send_id):
                self.write_back.acked(send_id)
                self._continue()
            case FrameFailed(_, send_id, code):
                self._out += self.write_back.failed(send_id, code)
                self._continue()
            case BookieFailed(bookie, code):
                self._bookie_failed(bookie, code)
            case Tick(now_ms):
                self._tick(now_ms)
            case _:
                assert_never(event)
        return self._take_out()

    def _take_out(self) -> list[ReplayRequest]:
        out, self._out = self._out, []
        return out

    # Reading

    def _open_window(self) -> None:
        first = self.write_back.added_to + 1
        self._window = EvidenceWindow(self._quorum, first, first + self._policy.window_entries - 1)
        self._reads.clear()
        self._ask(self._window, self._window.to_ask_first(self._fenced))

    def _ask(self, window: EvidenceWindow, positions: list[int]) -> None:
        self._window_asked_ms = self._now_ms
        for position in positions:
            window.asked |= 1 << position
            request = self._ids.next()
            self._reads[request] = (position, window.cursor)
            self._out.append(
                SendRead(
                    self._ensemble[position],
                    request,
                    window.cursor,
                    window.last,
                    self._policy.window_bytes,
                    fence=READS_FENCE,
                )
            )

    def _read_answered(self, event: ReadAnswered) -> None:
        asked = self._reads.pop(event.request_id, None)
        if asked is None or self._window is None:
            return
        position, first = asked
        self._window.answer(position, first, event)
        if event.code is not Code.OK:
            self.refusals[event.bookie] = event.code
        self._judge(self._window)

    def _judge(self, window: EvidenceWindow) -> None:
        """Take what the answers decide; open the next window, or end."""
        found = window.take_found()
        if found:
            self._out += self.write_back.add(found)
        finding = window.finding()
        match finding:
            case Finding.END:
                self._end = window.cursor - 1
                self._window = None
            case Finding.MORE:
                self._window = None
            case Finding.ASK:
                self._ask(window, window.to_ask_next())
            case Finding.UNKNOWN:
                self._fail(
                    f"whether entry {window.cursor} was acknowledged cannot be decided now "
                    f"({window.unknown_because()}; ensemble {', '.join(self._ensemble)})"
                )
                return
            case Finding.WAIT:
                pass
            case _:
                assert_never(finding)
        self._continue()

    # Both halves

    def _continue(self) -> None:
        """After progress of either half: fail, or read on if there is room."""
        write_back = self.write_back
        if not write_back.is_idle and write_back.is_stuck:
            self._fail(
                f"fewer than {self._quorum.ack_quorum} bookies take entries back, and there is no "
                f"spare ({describe_codes(write_back.failures)})"
            )
        elif self._end is not None:
            assert not write_back.is_idle or write_back.recovered_to == self._end
        elif self._window is None and write_back.pending_bytes <= self._policy.write_back_bytes_max:
            self._open_window()

    def _tick(self, now_ms: int) -> None:
        """Ask the other replicas where one is silent (rule 7)."""
        self._now_ms = max(now_ms, self._now_ms)
        window = self._window
        if window is not None and self._now_ms >= self._window_asked_ms + self._policy.speculate_ms:
            self._ask(window, window.to_ask_next())

    def _bookie_failed(self, bookie: BookieId, code: Code) -> None:
        """Everything that `bookie` was asked and did not answer is unknown."""
        for request in [r for r, (position, _) in self._reads.items() if self._ensemble[position] == bookie]:
            self._read_answered(ReadAnswered(bookie, request, code))
        if self.failure is None and self.write_back.owes(bookie):
            self._out += self.write_back.bookie_failed(bookie, code)
            self._continue()

    def _fail(self, why: str) -> None:
        self.failure = why
        self._window = None
        self._reads.clear()
