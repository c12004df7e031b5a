"""An operator that is SIGKILLed before its n-th effect: `python -m tests.operator.api.dying_operator run`.

DAYBOOK_TEST_KILL_BEFORE is n, from 1; each effect is noted in the file DAYBOOK_TEST_EFFECTS before it is carried out, so
that the list of them is what a plan really did and not what a test believes. Only effects whose text matches the
pattern DAYBOOK_TEST_ABOUT count, since others happen beside them.
"""

import os
import re
import signal
from pathlib import Path

from daybook_operator.main import app
from daybook_operator.plan.effects import Effect
from daybook_operator.reconcile.performer import Performer

LAST = int(os.environ["DAYBOOK_TEST_KILL_BEFORE"])
NOTES = Path(os.environ["DAYBOOK_TEST_EFFECTS"])
ABOUT = re.compile(os.environ["DAYBOOK_TEST_ABOUT"])

_perform = Performer.perform
_count = 0


async def perform(self: Performer, effect: Effect) -> None:
    """Note it, die if its turn has come, or carry it out."""
    if ABOUT.search(repr(effect)):
        note(effect)
    await _perform(self, effect)


def note(effect: Effect) -> None:
    """Note it, and die if its turn has come."""
    global _count
    _count += 1
    with NOTES.open("a", encoding="utf-8") as notes:
        notes.write(f"{type(effect).__name__}\n")
    if _count == LAST:
        os.kill(os.getpid(), signal.SIGKILL)


Performer.perform = perform  # type: ignore[method-assign] # this is what the file is for
app()
