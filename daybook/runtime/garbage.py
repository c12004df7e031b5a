"""When Python collects garbage, in a process that holds very many objects for long and has many entries in flight.

A full collection visits every object: 30 ms of CPU for the modules of a client, and 25 ms for each thousand open ledgers. Meanwhile no
entry moves. Python begins one once the objects that are new since the last make up a quarter; entries in flight count as such, so that
a client of 1,000 ledgers that writes 10,000 entries a second stops once a second.
"""

import gc
from typing import Final

THRESHOLDS: Final = (20_000, 10, 10)
"""Two million objects more than before, before a full collection is considered; with Python's own it is 70,000. A closed ledger
leaves 65 objects that only a collection frees."""


def collect_rarely() -> None:
    """Leave out what exists now from all collections, and let them be rare. For a process, once it has started."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
