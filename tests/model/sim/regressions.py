"""Seeds that once raised an alarm, why, and what had to be repaired: the shipped code, or the simulator.

An alarm of the simulator's own is one of a check that asked for too much, or of a simulated process that behaves differently
from the real one. Both look alike until somebody has read the trace, so both are kept, and described on
docs/reliability.md.
"""

from typing import Final, NamedTuple


class Regression(NamedTuple):
    """What a seed found."""

    why: str
    in_product: bool = False
    """Whether it was what ships that had to be repaired."""
    commit: str = ""
    """Where it was found, if the run is on record."""


_LONG_RUN: Final = "497aed1"

REGRESSIONS: Final = {
    968: Regression(
        "a frame that one bookie refused waited without end for another that was missing (rule 21)",
        in_product=True,
    ),
    471: Regression("a reader met a second answer for a piece that was complete (rule 18)", in_product=True),
    65337: Regression(
        "a bookie whose journal had no room never listed its entries again, though its store had all of it"
    ),
    78434: Regression(
        "a commit that happened, and was reported as failed, counted as a journal that forgets (rule 23)"
    ),
    1121: Regression(
        "a replica that is damaged in the store and sound in the journal was never removed as over-replicated"
    ),
    197496: Regression(
        "a worker tried the same plan without end, although another plan could repair the gap"
    ),
    153809: Regression(
        "an entry that is damaged in the store counted as held while the journal had it, and two more were damaged"
    ),
    166378: Regression("the same, and two disks were lost beside it"),
    38758: Regression(
        "a removal was stored, its flush cut short, and what a repair wrote meanwhile was not synced"
    ),
    330987: Regression(
        "a worker that lost its lock was asked to stop a repair that had finished in the same instant (rule 34)",
        commit=_LONG_RUN,
    ),
    332290: Regression(
        "an open ledger lacked one bookie in one audit and another in the next: its grace period was over (rule 31)",
        commit=_LONG_RUN,
    ),
    372804: Regression(
        "an entry that no repair had brought back, between two sound ones: the real store refused those as well, and the simulated store did not (rule 26)",
        in_product=True,
        commit=_LONG_RUN,
    ),
    477877: Regression(
        "a bookie whose journal refused what a flush had already stored never listed its entries again",
        commit=_LONG_RUN,
    ),
    596573: Regression(
        "a writer that changed its ensemble where the fragment begins was fenced without a grace period of its own (rule 31)",
        in_product=True,
        commit=_LONG_RUN,
    ),
    624372: Regression("the same as 330987", commit=_LONG_RUN),
    653621: Regression(
        "an auditor that was paused did not see that a bookie had been registered for a moment",
        commit=_LONG_RUN,
    ),
    680037: Regression(
        "two bookies were damaged, each while it was not in an ensemble with the other, and a writer then named both",
        commit=_LONG_RUN,
    ),
    428: Regression(
        "a full audit reported that everything was replicated, while a bookie that was to be decommissioned lacked entries (rule 47)",
        in_product=True,
    ),
    6015002: Regression(
        "a writer had replaced a bookie, whose disk was lost afterwards, and named it again: what the bookie had acknowledged before no longer counted (rule 17)"
    ),
    6032735: Regression(
        "a bookie that had received nothing of a ledger without entries was taken for dead and registered again: its answer that it is not in limbo did not count"
    ),
    6024984: Regression(
        "a bookie was replaced while an operator drained it, and the simulated operator then stopped the process that had been replaced and waited without end"
    ),
    6026901: Regression("the same, and the replacement crashed more than once beside it"),
    6000001: Regression(
        "the only timer of a simulated process was due less than a nanosecond after its turn of the loop, which ran without it: the process slept without end"
    ),
    1203: Regression(
        "a fence that came after a deletion: the real cache keeps nothing of it, the simulator's copy of the cache kept the ledger"
    ),
    6184871: Regression(
        "a drain told a bookie to be read-only, whose name another process took over before it had registered so: the drain waited without end",
        in_product=True,
    ),
    6208383: Regression(
        "two bookies in limbo of an open ledger took turns in its ensemble: each change began the time anew for which appends wait for a quorum",
        in_product=True,
    ),
    6047057: Regression("the same as 6015002"),
    6163560: Regression(
        "a drain took a bookie that was away for a moment for read-only, so a writer named it after the listing; the simulated operator, who was told that it is drained, left it stopped with what it had",
        in_product=True,
    ),
    6076098: Regression("the same as 1203, seen on the simulated disk, whose journal still had that fence"),
    6071778: Regression(
        "a successor restarted while it was named and got its copies again, and the repair ended without a read of the metadata after them (rule 56)",
        in_product=True,
    ),
    6084664: Regression(
        "the simulated collector did not list a fence that came while an earlier deletion was being stored"
    ),
    350: Regression(
        "an owner that lost its topic cancelled the deletion of a ledger that no list names, so nobody deleted it (rule 38)",
        in_product=True,
    ),
    11586: Regression(
        "the same of a cursor's ledger, which its owner had created and could not name any more",
        in_product=True,
    ),
    31537: Regression(
        "a ledger of a topic was recovered before its creator asked again for the answer that was lost, and stayed: a limitation that is known (rule 42)"
    ),
    10149: Regression(
        "an owner that could not read a cursor's newest record took an older one and persisted nothing, and the next owner could read it (rule 40)"
    ),
    6102223: Regression(
        "a new journal file whose name a failed sync of the directory had not made durable was replayed and needed by the store, and a power cut removed it (rule 25)",
        in_product=True,
    ),
    6111349: Regression(
        "the owner of a cursor gave up the deletion of its ledger, which another client recovered, because the close before it failed",
        in_product=True,
    ),
    6098982: Regression(
        "the only bookie that Qa 1 counts on lost its disk while the creation of a topic's ledger was under way, so nobody could say where that ends: the atlas bounded lost disks in runs with processes that ship, and not in those with topics"
    ),
    6126596: Regression(
        "the last reads began before two bookies could register, because the sessions of the processes that had crashed before them lasted still (rule 57)"
    ),
    6149882: Regression(
        "an owner was not unloaded in time and did not know whether the list names its newest ledger: it may not delete that, and the next owner's collection does (rule 28)"
    ),
    6155397: Regression(
        "the session of a paused bookie expired after the end of the faults had ended the pause early, just before a drill began"
    ),
    6212552: Regression(
        "an unload that was not finished in time abandoned a ledger whose close was still waited for, and Python 3.14 reported the close's failure as one that nobody handles; older Pythons have another history",
        in_product=True,
    ),
}
"""By seed, in the order in which they were found."""
