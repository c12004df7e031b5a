"""An operator that is SIGKILLed before its n-th external write: `python -m tests.kubernetes.api.dying_operator run`.

DAYBOOK_TEST_KILL_BEFORE is n, from 1; each effect is noted in the file DAYBOOK_TEST_EFFECTS before it is carried out, so
that the list of them is what a plan really did and not what a test believes. Only effects whose text matches the
pattern DAYBOOK_TEST_ABOUT count, since others happen beside them. DAYBOOK_TEST_STEPS=1 takes a status that follows a
status, and an event, for no write of their own: the first is only news of what others did, and the second is told again
until a status remembers it.
"""

import json
import os
import re
import signal
from pathlib import Path

from daybook_operator.main import app
from daybook_operator.plan.effects import Effect, Report, SetStatus
from daybook_operator.reconcile.performer import Performer

LAST = int(os.environ["DAYBOOK_TEST_KILL_BEFORE"])
NOTES = Path(os.environ["DAYBOOK_TEST_EFFECTS"])
ABOUT = re.compile(os.environ["DAYBOOK_TEST_ABOUT"])
STEPS = os.environ.get("DAYBOOK_TEST_STEPS") == "1"

_perform = Performer.perform
_count = 0
_before: type[Effect] | None = None


async def perform(self: Performer, effect: Effect) -> None:
    """Note it, die if its turn has come, or carry it out."""
    if ABOUT.search(repr(effect)) and not (STEPS and isinstance(effect, Report)):
        note(effect)
    await _perform(self, effect)


def note(effect: Effect) -> None:
    """Note it, and die if its turn has come."""
    global _count, _before
    if not (STEPS and isinstance(effect, SetStatus) and _before is SetStatus):
        _count += 1
    _before = type(effect)
    dies = _count == LAST
    with NOTES.open("a", encoding="utf-8") as notes:
        record = {"kind": type(effect).__name__, "effect": repr(effect), "done": not dies}
        notes.write(json.dumps(record) + "\n")
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)


Performer.perform = perform  # type: ignore[method-assign] # this is what the file is for
app()
