"""The repair tasks as the operator has read them last."""

from daybook_operator.clusters.task_list import TaskList

from daybook.core.ids import LedgerId
from daybook.metadata.store.memory import Fault, FaultKind, MemoryServer, MemoryStore
from daybook.metadata.store.store import Create
from daybook.metadata.tasks import RepairTasks
from tests.unit.metadata.harness import LAYOUT, formatted


async def test_a_task_that_comes_during_a_read_is_found_by_the_next_one() -> None:
    server = MemoryServer()
    store = MemoryStore(server)
    tasks = RepairTasks(store, await formatted(store))
    changed: list[LedgerId] = []
    listed = TaskList(tasks, changed.append, lambda: None)
    first = await tasks.mark(1, reasons=["damage"], bookies=["b1"], now_ms=0)

    def another_comes() -> None:
        server.apply([Create(LAYOUT.task(2), first.value.to_json())], 0)
        listed.expire()

    after_the_listing = Fault(FaultKind.DROP_REPLY, "get", LAYOUT.task(1), then=another_comes)
    server.inject(after_the_listing)
    assert [task.value.ledger_id for task in await listed.read()] == [1]
    assert [task.value.ledger_id for task in await listed.read()] == [1, 2]
    assert changed == [1, 2]
    await store.close()


async def test_a_fresh_read_finds_what_came_since_the_last_one() -> None:
    store = MemoryStore(MemoryServer())
    tasks = RepairTasks(store, await formatted(store))
    listed = TaskList(tasks, lambda _: None, lambda: None)
    assert await listed.read() == ()
    made = await tasks.mark(1, reasons=["damage"], bookies=["b1"], now_ms=0)
    assert await listed.read(fresh=True) == (made,)
    await store.close()
