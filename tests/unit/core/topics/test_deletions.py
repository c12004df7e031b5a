"""The deletions of ledgers that nothing names any more: a few at a time, in order, and again after a pause."""

from daybook.core.machine import RequestIds
from daybook.core.topics.deletions import TOGETHER_MAX, Deletions
from daybook.core.topics.events import DeleteLedger


def begun(count: int) -> tuple[Deletions, list[DeleteLedger]]:
    """So many deletions, and what is asked for."""
    deletions, out = Deletions(RequestIds(), 1_000), list[DeleteLedger]()
    deletions.begin(list(range(count)), out)
    return deletions, out


def test_thousands_of_ledgers_are_deleted_a_few_at_a_time_and_in_order() -> None:
    deletions, out = begun(3 * TOGETHER_MAX)
    assert len(out) == TOGETHER_MAX
    for done, effect in enumerate(out, 1):
        assert deletions.is_pending
        deletions.done(effect.request_id, out)
        assert len(out) == min(TOGETHER_MAX + done, 3 * TOGETHER_MAX)
    assert [effect.ledger_id for effect in out] == list(range(3 * TOGETHER_MAX))
    assert not deletions.is_pending


def test_what_fails_is_repeated_after_the_pause_and_does_not_hold_the_others_up() -> None:
    deletions, out = begun(TOGETHER_MAX + 2)
    assert deletions.failed(out[0].request_id, 0)
    assert not deletions.failed(out[0].request_id, 0), "it is not under way any more"
    for effect in out[1:]:
        deletions.done(effect.request_id, out)
    for effect in out[TOGETHER_MAX:]:
        deletions.done(effect.request_id, out)
    assert [effect.ledger_id for effect in out] == list(range(TOGETHER_MAX + 2))
    deletions.tick(999, out)
    assert deletions.is_pending
    deletions.tick(1_000, out)
    assert [effect.ledger_id for effect in out[TOGETHER_MAX + 2 :]] == [0]
    deletions.done(out[-1].request_id, out)
    assert not deletions.is_pending
