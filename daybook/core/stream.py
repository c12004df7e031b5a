"""The bookkeeping of an append stream: which frames are answered, on both ends of it (rule 49).

A client sends messages of frames; they are numbered 1, 2, 3 … by their order, so no message carries its number. A
bookie decides frames in any order (a deferred one at once, the others when their group is on disk) and answers with a
*cumulative* number: every message up to it is decided, and every frame of those succeeded unless an error has named it.
Two things keep that true, and both are here, so that the simulator runs the same code as the sockets: the cumulative
number never passes a message with an undecided frame, and an error travels before or together with the first
cumulative number at or beyond its message. A stream that closed answers nothing any more: what was in flight then is
unknown, and a late answer cannot turn it into a success.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from daybook.core.errors import Code, DaybookError

Token = TypeVar("Token", bound=Hashable)

WINDOW_BYTES_MAX: Final = 4 * 1024 * 1024
WINDOW_MESSAGES_MAX: Final = 16
FULL_MESSAGE_BYTES: Final = 256 * 1024


WHOLE_MESSAGE: Final = 2**32 - 1
"""In place of a frame's index: all frames of the message, because the bookie could not separate them."""


class StreamError(DaybookError):
    """The other end broke the stream's rules: the stream is closed, its outcome is unknown."""


class FrameFailure(NamedTuple):
    """A frame that did not succeed: the `frame`-th (from 0) of `message` (from 1)."""

    message: int
    frame: int
    code: Code


class StreamAnswer(NamedTuple):
    """A bookie's answer to a client: errors first, then the number up to which every message is decided."""

    through: int
    failures: tuple[FrameFailure, ...] = ()


class StreamAnswers:
    """A bookie's side of one stream. Not thread-safe: the owner holds a lock of the stream around every call."""

    __slots__ = ("_failures", "_received", "_through", "_told", "_undecided")

    def __init__(self) -> None:
        """A stream on which nothing has arrived."""
        self._received = 0
        self._undecided: dict[int, int] = {}  # message -> how many of its frames are undecided
        self._through = 0
        self._told = 0
        self._failures: list[FrameFailure] = []

    def receive(self, frames: int) -> int:
        """A message of `frames` frames arrived; returns its number. One without frames is decided by arriving."""
        assert frames >= 0
        self._received += 1
        self._undecided[self._received] = frames
        if not frames:
            self._advance()
        return self._received

    def succeed(self, message: int, frames: int = 1) -> None:
        """`frames` frames of `message` have reached what their sender asked for."""
        left = self._undecided[message] - frames
        assert left >= 0, "a frame is decided once"
        self._undecided[message] = left
        if not left:
            self._advance()

    def fail(self, message: int, frame: int, code: Code) -> None:
        """The `frame`-th frame of `message` is refused with `code`."""
        assert code is not Code.OK
        self._failures.append(FrameFailure(message, frame, code))
        self.succeed(message)

    def decide(self, message: int, frames: Sequence[int], code: Code) -> None:
        """The frames with these indexes have reached what their sender asked for, or are refused with `code`."""
        if code is not Code.OK:
            for frame in frames:
                self.fail(message, frame, code)
        elif frames:
            self.succeed(message, len(frames))

    def refuse(self, code: Code) -> int:
        """A message arrived whose frames cannot be separated: all of it is refused. Returns its number."""
        message = self.receive(1)
        self.fail(message, WHOLE_MESSAGE, code)
        return message

    def take_answer(self) -> StreamAnswer | None:
        """What was not sent to the client yet; None if there is nothing.

        Failures go out at once, even of messages that are not decided as a whole.
        """
        failures = self._take_failures()
        if not failures and self._through == self._told:
            return None
        self._told = self._through
        return StreamAnswer(self._through, failures)

    def _take_failures(self) -> tuple[FrameFailure, ...]:
        failures = tuple(self._failures)
        self._failures.clear()
        return failures

    def _advance(self) -> None:
        """Move the cumulative number over every message that is wholly decided."""
        undecided = self._undecided
        while undecided.get(self._through + 1, -1) == 0:
            self._through += 1
            del undecided[self._through]


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """How much may be under way on one stream.

    While messages are small only one is: a message costs the bookie the same whatever its size, so several small ones
    queue up and everyone waits longer. Full ones may overlap, up to `bytes_max` and `messages_max`.
    """

    bytes_max: int = WINDOW_BYTES_MAX
    messages_max: int = WINDOW_MESSAGES_MAX
    full_bytes: int = FULL_MESSAGE_BYTES


class _Sent(Generic[Token]):
    """A message under way. No dataclass: mypyc compiles no generic one (tools/compiled)."""

    __slots__ = ("size_bytes", "tokens")

    def __init__(self, tokens: list[Token | None], size_bytes: int) -> None:
        self.tokens = tokens
        self.size_bytes = size_bytes


class StreamWindow(Generic[Token]):
    """A client's side of one stream: what is under way, and what each answer decides.

    A *token* is the caller's name for a frame (the send id of `SendFrame`).
    """

    __slots__ = ("_limits", "_oldest", "_sent", "bytes_in_flight", "is_closed")

    def __init__(self, limits: WindowLimits | None = None) -> None:
        """A stream on which nothing was sent."""
        self._limits = limits or WindowLimits()
        self._sent: dict[int, _Sent[Token]] = {}
        self._oldest = 1
        self.bytes_in_flight = 0
        self.is_closed = False

    @property
    def messages_in_flight(self) -> int:
        """How many messages wait for their answer."""
        return len(self._sent)

    @property
    def oldest_message(self) -> int:
        """The first message without an answer, or the next one."""
        return self._oldest

    @property
    def next_message(self) -> int:
        """The number of the next message."""
        return self._oldest + len(self._sent)

    def may_send(self, waiting_bytes: int) -> bool:
        """Whether a message should leave now, with `waiting_bytes` gathered for it."""
        if self.is_closed or not waiting_bytes:
            return False
        if not self._sent:
            return True
        limits = self._limits
        return (
            waiting_bytes >= limits.full_bytes
            and len(self._sent) < limits.messages_max
            and self.bytes_in_flight + limits.full_bytes <= limits.bytes_max
        )

    def send(self, tokens: Sequence[Token], size_bytes: int) -> int:
        """A message of the frames `tokens` leaves; returns its number."""
        assert not self.is_closed
        assert tokens
        number = self.next_message
        self._sent[number] = _Sent(list(tokens), size_bytes)
        self.bytes_in_flight += size_bytes
        return number

    def settle(self, answer: StreamAnswer) -> list[tuple[Token, Code]]:
        """The frames that `answer` decides, in order of failure, then of sending; nothing on a closed stream.

        Raises StreamError for an answer about what was never sent, or a frame that is already decided; the caller
        closes the stream then.
        """
        if self.is_closed:
            return []
        if answer.through >= self.next_message:
            msg = f"the bookie answered message {answer.through}, which was never sent: the connection is given up"
            raise StreamError(msg)
        left: dict[int, list[Token | None]] = {}
        decided = [
            (token, failure.code) for failure in answer.failures for token in self._take(failure, left)
        ]
        for message, tokens in left.items():
            self._sent[message].tokens = tokens
        while self._oldest <= answer.through:
            sent = self._sent.pop(self._oldest)
            self._oldest += 1
            self.bytes_in_flight -= sent.size_bytes
            decided.extend((token, Code.OK) for token in sent.tokens if token is not None)
        return decided

    def close(self) -> list[Token]:
        """The stream ended: the frames whose outcome is unknown now. Later answers are dropped."""
        self.is_closed = True
        unknown = [token for sent in self._sent.values() for token in sent.tokens if token is not None]
        self._sent.clear()
        self.bytes_in_flight = 0
        return unknown

    def _take(self, failure: FrameFailure, left: dict[int, list[Token | None]]) -> list[Token]:
        """The tokens of the frames that failed. They are missed in `left`, and in what was sent only once the whole
        answer was found right: what a bad one decides stays unknown, so that `close` reports it.
        """
        sent = self._sent.get(failure.message)
        frames = slice(None) if failure.frame == WHOLE_MESSAGE else slice(failure.frame, failure.frame + 1)
        rest = [] if sent is None else left.setdefault(failure.message, list(sent.tokens))
        tokens = [token for token in rest[frames] if token is not None]
        if not tokens:
            msg = (
                f"the bookie failed frame {failure.frame} of message {failure.message}, which is not under way: "
                "the connection is given up"
            )
            raise StreamError(msg)
        rest[frames] = [None] * len(rest[frames])
        return tokens
