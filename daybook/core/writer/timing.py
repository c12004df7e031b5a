"""When a writer wants a `Tick`: a client with thousands of writers gives one to those alone that have something to do.

Most writers wait for one of two moments: the LAC gets a frame of its own (rule 48), or what a bookie owes is old enough to
declare it failed. A writer that is in a state of its own (it changes metadata, misses bookies, keeps some in quarantine, or its
handle ended) gets every tick.
"""

from daybook.core.writer.ensemble import Ensemble
from daybook.core.writer.handle import OPEN
from daybook.core.writer.state import WriterState
from daybook.core.writer.window import BatchWindow


def next_tick_ms(state: WriterState, window: BatchWindow, ensemble: Ensemble) -> int | None:
    """The time before which no `Tick` has anything to do; None: none has, unless an event comes first."""
    if (
        state.update.is_pending
        or ensemble.reported_missing
        or ensemble.quarantine
        or state.handle is not OPEN
    ):
        return state.now_ms
    lac_due_ms, owed_since_ms = state.lac_due_ms, window.oldest_lag_ms
    if owed_since_ms is None:
        return lac_due_ms
    noticed_ms = owed_since_ms + state.policy.lag_noticed_ms
    return noticed_ms if lac_due_ms is None else min(lac_due_ms, noticed_ms)
