"""Which modules mypyc is to compile for the images, and how: one list, and a program that turns wheels into compiled ones.

An entry in a frame of its own costs the client and each bookie a few dozen calls of small functions and methods, and Python's
interpreter is most of what they cost (docs/performance.md). So the modules that run for each frame are compiled in the images'
wheels, and nowhere else: from a source tree or a package index everything is plain Python, and so are all tests but those of
`make test-compiled` (docs/adr/0012-compiled-modules.md).

A module belongs in the list if it runs for each frame, waits for nothing or seldom, and passes its tests and the simulator's seeds as
it is. One that waits while it handles an exception stays out (suspensions.py). The list stays short: each module costs seconds of every
build of the images. A class is compiled with its base classes, since what a pure one declares stays in a dict. Modules that call each
other are compiled together, since a call between compiled modules costs a fraction of one that passes Python's own protocol.
"""

from typing import Final

MODULES: Final[dict[str, tuple[str, ...]]] = {
    "daybook": (
        # what frames, blocks and tables are made of, on both ends
        "daybook/core/format/block.py",
        "daybook/core/format/checksums.py",
        "daybook/core/format/frame.py",
        "daybook/core/format/intervals.py",
        "daybook/core/format/lac_table.py",
        "daybook/core/format/payloads.py",
        "daybook/core/stream.py",
        # the bookie's decisions
        "daybook/core/bookie/ledger.py",
        "daybook/core/bookie/machine.py",
        # the writer's, and what it says
        "daybook/core/effects.py",
        "daybook/core/lac_rows.py",
        "daybook/core/ledger/update.py",
        "daybook/core/machine.py",
        "daybook/core/quorum.py",
        "daybook/core/writer/closing.py",
        "daybook/core/writer/ensemble.py",
        "daybook/core/writer/forcing.py",
        "daybook/core/writer/policy.py",
        "daybook/core/writer/queue.py",
        "daybook/core/writer/reactions.py",
        "daybook/core/writer/replacement.py",
        "daybook/core/writer/state.py",
        "daybook/core/writer/timing.py",
        "daybook/core/writer/view.py",
        "daybook/core/writer/window.py",
        "daybook/core/writer/writer.py",
        # the client's way from an append to a message, and back from an answer
        "daybook/client/admission.py",
        "daybook/client/driver/callbacks.py",
        "daybook/client/driver/conditions.py",
        "daybook/client/driver/driver.py",
        "daybook/client/driver/flush_queue.py",
        "daybook/client/driver/timers.py",
        "daybook/client/ledger.py",
        "daybook/client/pending.py",
        "daybook/client/transport/frame_sender.py",
        # a topic's entries, and what Pulsar's clients send and get for each
        "daybook/core/topics/events.py",
        "daybook/core/topics/extent.py",
        "daybook/core/topics/list_orders.py",
        "daybook/core/topics/managed_ledger.py",
        "daybook/core/topics/open_ledger.py",
        "daybook/core/topics/pending.py",
        "daybook/wire/message_buffer.py",
        "daybook/wire/pulsar/by_hand.py",
        "daybook/wire/pulsar/frames.py",
        "daybook/wire/pulsar/message_count.py",
        "daybook/wire/pulsar/producer_entry.py",
    ),
    "daybook_bookie": (
        "daybook_bookie/journal/format.py",
        "daybook_bookie/store/flushing.py",
        "daybook_bookie/store/generation.py",
        "daybook_bookie/store/stored_ledger.py",
        "daybook_bookie/store/write_cache.py",
    ),
    "daybook_broker": (
        "daybook_broker/connection/connection.py",
        "daybook_broker/topics/producer.py",
        "daybook_broker/topics/publishing.py",
        "daybook_broker/topics/tail_cache.py",
        "daybook_broker/topics/turn.py",
        "daybook_broker/totals.py",
    ),
}
"""By distribution, as a wheel names it: the modules' files."""


def names(files: tuple[str, ...]) -> list[str]:
    """As they are imported."""
    return [file.removesuffix(".py").replace("/", ".") for file in files]
