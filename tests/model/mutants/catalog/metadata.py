"""Mutants of the metadata layer: each takes one rule out."""

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from daybook.core.errors import MetadataError, MetadataUnavailableError, NoSuchLedgerError
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata import bookies, creation, lease, ledgers, registration, tasks, tree
from daybook.metadata.store import kazoo_session, own_changes, read_ahead, resolving
from daybook.metadata.store.store import Operation, Put, Versioned
from daybook.runtime.clock import monotonic_s
from tests.model.mutants.catalog.swarms import LOST_ANSWERS
from tests.model.mutants.registry import around, instead_of, mutant

_ZOOKEEPER = "it is in the client of ZooKeeper; the simulator has a metadata service of its own"
by_slow_test = partial(mutant, slow=True, not_simulated=_ZOOKEEPER)
by_test = partial(mutant, not_simulated=_ZOOKEEPER)

LOST_REPLIES = "tests/unit/metadata/test_lost_replies.py"
LEDGERS = "tests/unit/metadata/test_ledgers.py"
CREATION = "tests/unit/metadata/test_creation.py"


@by_test(28, f"{LEDGERS}::test_rule_28_a_listing_that_cannot_be_completed_is_an_error_never_a_shorter_list")
@around(tree, "list_directory")
async def a_directory_that_cannot_be_listed_counts_as_empty(
    listed: Callable[..., Awaitable[tuple[str, ...]]], *arguments: Any
) -> tuple[str, ...]:
    """A listing error gives a shorter list."""
    try:
        return await listed(*arguments)
    except MetadataError:
        return ()
    except MetadataUnavailableError:
        return ()


@by_test(28, f"{LEDGERS}::test_rule_28_an_unreadable_ledger_ends_the_listing_and_a_deleted_one_does_not")
@around(ledgers.LedgerManager, "read")
async def a_ledger_that_cannot_be_read_counts_as_deleted(
    read: Any, self: Any, ledger_id: int, **named: Any
) -> Any:
    """A read error during a walk leaves the ledger out."""
    try:
        return await read(self, ledger_id, **named)
    except MetadataUnavailableError as error:
        raise NoSuchLedgerError(str(error)) from error


@by_slow_test(
    29,
    "tests/unit/metadata/test_bookies.py::test_rule_29_a_replacement_needs_the_old_registration_gone_and_is_used_once",
)
@instead_of(bookies.BookieDirectory, "refuse_if_registered")
async def a_registered_bookie_may_be_replaced(_self: Any, _bookie: str) -> None:
    """A replacement is authorised while the old bookie is still registered."""
    return


@by_slow_test(33, "tests/unit/metadata/test_tasks.py::test_rule_33_repair_is_switched_off_and_on_for_all")
@instead_of(tasks.RepairTasks, "disabled")
async def the_disable_flag_is_not_read(_self: Any) -> bool:
    """Workers continue although repair is switched off."""
    return False


@by_test(
    34,
    "tests/unit/metadata/test_tasks.py::test_rule_34_a_lease_is_over_as_soon_as_its_session_may_be",
    slow=True,
)
@instead_of(resolving.ResolvingStore, "session_may_have_ended")
async def a_lease_is_held_until_its_loss_is_reported(self: Any, session_id: int) -> None:
    """An owner continues after its session may have ended, until the loss is reported to it."""
    while self.session.session_id == session_id:
        await self.session_changed(self.session)


@by_test(
    35, "tests/unit/metadata/test_tasks.py::test_rule_35_a_ledger_set_aside_keeps_its_task_until_a_new_reason"
)
@instead_of(tasks.RepairTasks, "set_aside")
async def a_ledger_that_cannot_be_repaired_stays_due(
    _self: Any, _task: Any, *, until_ms: int, why: str
) -> None:
    """An unrecoverable ledger is not set aside."""
    return


@by_test(37, f"{LEDGERS}::test_rule_37_metadata_of_many_ledgers_is_read_a_bounded_number_at_a_time")
def all_ledgers_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing reads a whole page at once."""
    monkeypatch.setattr(read_ahead, "READS_IN_FLIGHT_MAX", math.inf)


@mutant(
    42, f"{LOST_REPLIES}::test_rule_42_a_create_whose_reply_was_lost_is_recognised_as_own", swarm=LOST_ANSWERS
)
@instead_of(own_changes.OwnChanges, "was_created")
async def own_creates_are_not_recognised(*_arguments: Any, **_more: Any) -> bool:
    """A retry mistakes its own create for another client's."""
    return False


@mutant(42, f"{LOST_REPLIES}::test_rule_42_another_clients_node_is_not_taken_for_own", swarm=LOST_ANSWERS)
@instead_of(own_changes.OwnChanges, "was_created")
async def any_node_found_by_a_retry_is_own(*_arguments: Any, **_more: Any) -> bool:
    """A retry mistakes another client's create for its own."""
    return True


@by_test(
    42, f"{LOST_REPLIES}::test_rule_42_a_lock_taken_by_another_task_of_the_same_session_is_not_taken_for_own"
)
def leases_carry_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two owners within one session write the same bytes."""
    monkeypatch.setattr(lease, "lease_data", lambda _holder: b'{"holder": "w", "token": "t"}')


@by_test(42, f"{LOST_REPLIES}::test_rule_42_a_sequence_node_is_made_once")
@instead_of(own_changes.OwnChanges, "sequence_node")
async def sequence_nodes_are_not_looked_for(*_arguments: Any) -> None:
    """A retry creates a second sequence node."""
    return


@mutant(
    42,
    "tests/unit/metadata/test_creation.py::test_rule_42_of_a_group_whose_reply_was_lost_only_what_others_changed_is_made_again",
    swarm=LOST_ANSWERS,
)
@instead_of(creation, "is_as_created")
async def groups_are_made_again_as_a_whole(*_arguments: Any) -> bool:
    """After a lost answer a group is made anew if another client has changed one ledger of it."""
    return False


@mutant(42, f"{LOST_REPLIES}::test_rule_42_another_clients_put_is_not_taken_for_own", swarm=LOST_ANSWERS)
@instead_of(own_changes.OwnChanges, "was_put")
async def any_new_version_is_the_own_put(*_arguments: Any) -> bool:
    """A retry mistakes another client's put for its own."""
    return True


@mutant(
    42,
    f"{LOST_REPLIES}::test_rule_42_a_put_whose_reply_was_lost_is_recognised_as_own",
    not_simulated="a machine that receives a conflict reads again, and finds its own change",
)
@instead_of(own_changes.OwnChanges, "was_put")
async def own_puts_are_not_recognised(*_arguments: Any) -> bool:
    """A retry mistakes its own put for another client's."""
    return False


@mutant(
    42, f"{LOST_REPLIES}::test_rule_42_a_multi_is_recognised_by_what_it_created_or_put", swarm=LOST_ANSWERS
)
@instead_of(own_changes.OwnChanges, "was_applied")
async def own_multis_are_not_recognised(*_arguments: Any) -> bool:
    """A retry mistakes its own multi for another client's."""
    return False


@by_test(42, f"{LOST_REPLIES}::test_rule_42_a_release_whose_reply_was_lost_leaves_the_next_holders_lock")
@instead_of(own_changes.OwnChanges, "was_replaced")
async def any_node_is_the_one_that_was_to_be_deleted(*_arguments: Any) -> bool:
    """The retry of a release deletes the lock of the next holder."""
    return False


@by_test(42, f"{LOST_REPLIES}::test_rule_42_an_owner_whose_session_ended_never_deletes_his_successors_node")
@around(resolving.ResolvingStore, "delete")
async def a_release_is_bound_to_no_session(
    delete: Any, self: Any, path: str, version: int | None = None, **_more: Any
) -> None:
    """A former owner deletes the present node, whoever owns it."""
    await delete(self, path, version)


@by_test(
    42,
    "tests/unit/metadata/test_bookies.py::test_rule_42_a_bookie_registers_again_after_its_session_expired",
    slow=True,
)
@instead_of(registration.Registration, "_keep")
async def a_bookie_registers_once(_self: Any) -> None:
    """A bookie whose session expired does not register again."""
    return


@mutant(
    46,
    "tests/unit/metadata/test_tasks.py::test_rule_46_a_lease_is_over_when_the_machine_was_suspended_past_its_session",
    not_simulated="no machine of the simulator sleeps",
)
def leases_are_judged_by_a_clock_that_sleeps_with_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease uses Python's monotonic clock, which excludes suspended time."""
    monkeypatch.setattr(lease, "monotonic_s", time.monotonic)


@by_test(
    46,
    "tests/unit/metadata/test_zookeeper.py::test_rule_46_a_session_is_certain_from_when_the_answered_request_was_sent",
)
@around(kazoo_session.SessionClient, "answered")
def a_session_is_counted_from_the_answer(answered: Any, self: Any, session_id: int, sent: float) -> None:
    """The session's life counts from the arrival of an answer, not from the sending of its request."""
    answered(self, session_id, monotonic_s())


@by_test(
    46,
    "tests/unit/metadata/test_zookeeper.py::test_rule_46_an_answered_ping_proves_no_more_than_its_own_sending",
)
@around(kazoo_session.SessionConnection, "_send_ping")
def any_answered_ping_is_the_latest(send: Any, self: Any, connect_timeout: float) -> None:
    """The answer to an early ping counts as the answer to the last one."""
    send(self, connect_timeout)
    under_way, latest = len(self._pings_sent), self._pings_sent[-1]
    self._pings_sent.clear()
    self._pings_sent.extend([latest] * under_way)


@by_slow_test(
    46,
    "tests/unit/metadata/test_zookeeper.py::test_rule_46_a_cut_off_owner_is_in_doubt_before_others_see_its_node_go",
)
def a_session_is_counted_on_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session's certain life is twice the granted time-out."""
    monkeypatch.setattr(kazoo_session, "SESSION_MARGIN", -1.0)


@mutant(
    53, f"{LEDGERS}::test_rule_53_an_open_ledger_is_attached_for_writing_once", slow=True, swarm=LOST_ANSWERS
)
@instead_of(ledgers.LedgerManager, "cas")
async def an_attach_is_written_whatever_the_version(
    self: Any, current: Any, new: LedgerMetadata, *, timeout_s: float | None = None
) -> Versioned[LedgerMetadata]:
    """An attach is a plain write instead of a compare-and-set."""
    path = self._layout.ledger(new.ledger_id)
    return Versioned(new, await self._store.put(path, new.to_json(), None, timeout_s=timeout_s))


_NEVER_BACK = "the simulator's metadata service never goes back in time"


@mutant(
    62,
    f"{CREATION}::test_rule_62_no_snapshot_has_a_counter_past_a_ledger_that_it_lacks",
    not_simulated=_NEVER_BACK,
)
@around(resolving.ResolvingStore, "multi")
async def ids_are_reserved_before_their_ledgers_begin(
    multi: Any, self: Any, operations: Sequence[Operation], **named: Any
) -> None:
    """The counter advances by a block of ids in a change of its own, and the ledgers of the block follow."""
    counter = operations[0]
    if isinstance(counter, Put) and counter.path.endswith("/idgen"):
        await self.put(counter.path, counter.data, counter.version)
        operations = operations[1:]
    await multi(self, operations, **named)


@mutant(
    62,
    f"{CREATION}::test_rule_62_no_ledger_is_created_at_or_below_one_that_its_creator_knows",
    not_simulated=_NEVER_BACK,
)
@around(creation.LedgerCreation, "create")
async def any_id_is_above_any_other(
    create: Any, self: Any, make: Any, *, above: int, request: str = ""
) -> Any:
    """What a creator knows of earlier ledgers is not compared with the counter."""
    return await create(self, make, above=min(above, -1), request=request)
