"""The writer as scripts drive it, over the judged world of tests/unit/core.

create E/Qw/Qa a b c [spare d e] [explicit] [deferred] [option=value of WriterPolicy …]
append x y z | append 0=x 2=z      one append; its token is t1, t2, … (explicit ids: id=payload)
flush | force | close | tick MS
ack a b [0..2]                     the bookies answer OK to all they owe, or to one frame
late-ack a 0..2                    an old OK for a frame that was answered or given up before
fail a CODE [0..2]                 the bookie answers its oldest frame, or that one, with an error
down a | registered a b d | restart a
force-answer a b [CODE]
cas | cas unknown applied | cas unknown lost
read | read fails                  the store answers the read that the writer asked for
metadata away | metadata back
other repairs 0 a d | other recovers | other closes N LENGTH | other deletes     someone else changes the metadata
show                               the writer's state in one line
"""

from collections.abc import Sequence
from typing import Any, Final

from daybook.core.effects import (
    CasMetadata,
    Closed,
    Complete,
    Degraded,
    Effect,
    EnsembleChanged,
    Fail,
    Forced,
    HandleEnded,
    PublishLac,
    Quarantined,
    ReadMetadata,
    SendForce,
    SendFrame,
)
from daybook.core.errors import Code
from daybook.core.events import CasOutcome, FrameAcked, LacLost
from daybook.core.format.frame import decode_header, frame_entry_ids
from daybook.core.format.lac_table import decode_lac_row
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.writer.policy import WriterPolicy
from tests.model.scripts.harness import register
from tests.unit.core.writer.writer_world import WriterWorld

NAME: Final = "writer"


class WriterMachine:
    """Commands become events of a WriterWorld, effects become lines."""

    def __init__(self) -> None:
        self._world: WriterWorld | None = None

    @property
    def world(self) -> WriterWorld:
        assert self._world is not None, "create a ledger first"
        return self._world

    def _answer(self, effects: Sequence[Effect], lac_before: int) -> list[str]:
        lines = describe(effects)
        if self.world.lac != lac_before:
            lines.append(f"lac {self.world.lac}")
        return lines

    def _do(self, method: str, *arguments: Any, **options: Any) -> list[str]:
        lac_before, logged = self.world.lac, len(self.world.log)
        getattr(self.world, method)(*arguments, **options)
        return self._answer(self.world.log[logged:], lac_before)

    # Commands.

    def do_create(self, quorum: str, *words: str) -> list[str]:
        pairs = (word.split("=") for word in words if "=" in word)
        defaults = WriterPolicy()
        options: dict[str, Any] = {name: type(getattr(defaults, name))(int(value)) for name, value in pairs}
        names = [word for word in words if "=" not in word and word not in ("explicit", "deferred")]
        at = names.index("spare") if "spare" in names else len(names)
        e, qw, qa = map(int, quorum.split("/"))
        self._world = WriterWorld(
            " ".join(names[:at]),
            " ".join(names[at + 1 :]),
            quorum=(e, qw, qa),
            policy=WriterPolicy(**options),
            explicit_ids="explicit" in words,
            deferred_sync="deferred" in words,
        )
        return []

    def do_append(self, *payloads: str) -> list[str]:
        if any("=" in payload for payload in payloads):
            pairs = [payload.split("=") for payload in payloads]
            return self._do("append", *(data for _, data in pairs), ids=[int(entry) for entry, _ in pairs])
        return self._do("append", *payloads)

    def do_append_huge(self, size_bytes: str) -> list[str]:
        return self._do("append_bytes", bytes(int(size_bytes)))

    def do_flush(self) -> list[str]:
        return self._do("flush")

    def do_force(self) -> list[str]:
        return self._do("force")

    def do_close(self) -> list[str]:
        return self._do("close")

    def do_tick(self, ms: str) -> list[str]:
        return self._do("tick", int(ms))

    def do_ack(self, *words: str) -> list[str]:
        names, first = _names_and_first(words)
        return self._do("ack", names, first)

    def do_late_ack(self, bookie: str, entries: str) -> list[str]:
        first = int(entries.split("..")[0])
        sent = next(s for s in self.world.all_sent if s.bookie == bookie and s.entries[:1] == (first,))
        return self._do("step", FrameAcked(bookie, sent.send_id, self.world.bookies[bookie].boot_id))

    def do_fail(self, bookie: str, code: str, *entries: str) -> list[str]:
        _, first = _names_and_first(entries)
        return self._do("fail", bookie, Code[code], first)

    def do_down(self, *names: str) -> list[str]:
        return self._do("down", " ".join(names))

    def do_lac_lost(self, bookie: str) -> list[str]:
        return self._do("step", LacLost(bookie))

    def do_registered(self, *names: str) -> list[str]:
        return self._do("register", " ".join(names))

    def do_restart(self, bookie: str) -> list[str]:
        return self._do("restart", bookie)

    def do_force_answer(self, *words: str) -> list[str]:
        codes = [Code[word] for word in words if word in Code.__members__]
        names = " ".join(word for word in words if word not in Code.__members__)
        return self._do("answer_force", names, *codes)

    def do_cas(self, *words: str) -> list[str]:
        if not words:
            return self._do("cas")
        assert words in (("unknown", "applied"), ("unknown", "lost"))
        return self._do("cas", CasOutcome.UNKNOWN, applied=words[1] == "applied")

    def do_read(self, *words: str) -> list[str]:
        return self._do("read", fails=words == ("fails",))

    def do_metadata(self, where: str) -> list[str]:
        return self._do(f"metadata_{where}")

    def do_other(self, what: str, *words: str) -> list[str]:
        current = self.world.current
        changed: LedgerMetadata | None = None
        if what == "repairs":
            changed = current.with_replica(int(words[0]), words[1], words[2])
        elif what == "recovers":
            changed = current.in_recovery()
        elif what == "closes":
            changed = current.in_recovery().closed(int(words[0]), int(words[1]))
        else:
            assert what == "deletes"
        self.world.store(changed)
        return []

    def do_show(self) -> list[str]:
        writer = self.world.writer
        state = (
            f"lac {writer.last_add_confirmed} length {writer.length_at_lac}, pushed {writer.last_add_pushed}"
        )
        flags = [name for name in ("is_degraded", "has_ended") if getattr(writer, name)]
        return [f"{state}, pending {writer.pending_bytes} bytes", _metadata(writer.metadata), *flags]


def _names_and_first(words: Sequence[str]) -> tuple[str, int | None]:
    frames = [word for word in words if ".." in word]
    names = " ".join(word for word in words if ".." not in word)
    return names, int(frames[0].split("..")[0]) if frames else None


def describe(effects: Sequence[Effect]) -> list[str]:
    """Effects as lines; the same frame to several bookies is one line."""
    lines: list[str] = []
    for effect in effects:
        if not isinstance(effect, SendFrame):
            lines.append(_line(effect))
            continue
        what = _frame(effect.frame)
        if lines and lines[-1].startswith("send ") and lines[-1].endswith(f": {what}"):
            names = lines[-1].removesuffix(f": {what}")
            lines[-1] = f"{names} {effect.bookie}: {what}"
        else:
            lines.append(f"send {effect.bookie}: {what}")
    return lines


def _frame(frame: bytes) -> str:
    header = decode_header(frame)
    entries = list(frame_entry_ids(frame, header))
    lac = f"lac {header.last_add_confirmed}"
    if not entries:
        return f"only {lac}"
    if entries == list(range(entries[0], entries[-1] + 1)):
        return f"{entries[0]}..{entries[-1]} {lac}"
    return f"{' '.join(map(str, entries))} {lac}"


def _metadata(metadata: LedgerMetadata) -> str:
    fragments = ", ".join(f"from {f.first_entry}: {' '.join(f.bookies)}" for f in metadata.fragments)
    end = f" at {metadata.last_entry} length {metadata.length}" if metadata.is_closed else ""
    return f"{metadata.state.value}{end}, {fragments}"


def _line(effect: Effect) -> str:  # noqa: C901 - one case for each effect
    match effect:
        case Complete(token, first, last):
            return f"complete t{token} {first}..{last}"
        case Fail(token, error):
            return f"fail t{token}: {type(error).__name__}: {error}"
        case CasMetadata(_, metadata, version):
            return f"cas at version {version}: {_metadata(metadata)}"
        case ReadMetadata():
            return "read metadata"
        case PublishLac(bookies, row):
            return f"publish to {' '.join(bookies)}: lac {decode_lac_row(row).last_add_confirmed}"
        case SendForce(bookie):
            return f"force {bookie}"
        case Forced(token, lac):
            return f"forced t{token} up to {lac}"
        case Closed(token, metadata):
            return f"closed {'' if token is None else f't{token} '}: {_metadata(metadata)}".replace(" :", ":")
        case HandleEnded(error):
            return f"handle ends: {type(error).__name__}"
        case Degraded(missing):
            return f"degraded: without {' '.join(missing)}" if missing else "no longer degraded"
        case Quarantined(bookie, until_ms):
            return f"quarantine {bookie} until {until_ms} ms"
        case EnsembleChanged(first, bookies):
            return f"ensemble from {first}: {' '.join(bookies)}"
        case _:
            return repr(effect)


register(NAME, WriterMachine)
