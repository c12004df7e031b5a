"""One namespace that refuses is no reason to know nothing of the others."""

from typing import Any

import pytest
from daybook_operator.kinds import RESOURCES
from daybook_operator.kube.api import ForbiddenError, KubeError, Object, UnavailableError
from daybook_operator.reconcile.inventory import Inventory
from daybook_operator.reconcile.listing import Listed, if_allowed, list_all, missing_kinds


class ApiServer:
    """Namespaces with one pool and one Ledger each; some refuse, some are gone."""

    def __init__(self, *, refuses: set[str], gone: set[str] | None = None) -> None:
        self.refuses = refuses
        self.gone = gone or set()
        self.asked: list[str] = []

    async def find(self, kind: str, namespace: str, name: str) -> Object | None:
        assert (kind, namespace) == ("Namespace", "")
        return None if name in self.gone else {"metadata": {"name": name}}

    async def listing(self, kind: str, namespace: str = "") -> list[Object]:
        self._refuse(namespace)
        return [{"kind": kind, "metadata": {"namespace": namespace, "name": kind.lower()}}]

    async def is_served(self, kind: str, namespace: str = "") -> bool:
        self.asked.append(namespace)
        self._refuse(namespace)
        return kind != "Topic"

    def _refuse(self, namespace: str) -> None:
        if namespace in self.refuses:
            raise ForbiddenError(f"cannot list in {namespace}")


def namespaces_of(objects: tuple[Any, ...]) -> list[str]:
    return [each["metadata"]["namespace"] for each in objects]


async def test_a_namespace_that_refuses_is_left_out_alone() -> None:
    server = ApiServer(refuses={"a", "gone"}, gone={"gone"})
    found = await list_all(server, ["a", "b", "c", "gone"], RESOURCES)
    assert [namespaces_of(found.objects[kind]) for kind in RESOURCES] == [["b", "c"]] * len(RESOURCES)
    assert found.refused == {"a"}, "what is in it may be there still; what was in the other is not"


async def test_nobody_who_answers_is_an_error() -> None:
    for namespaces in (["a"], []):
        with pytest.raises(ForbiddenError):
            await list_all(ApiServer(refuses={"a", ""}), namespaces, RESOURCES)


async def test_kinds_are_known_by_whoever_answers() -> None:
    kinds = ["BookiePool", "Topic"]
    server = ApiServer(refuses={"a"})
    assert await missing_kinds(server, ["a", "b"], kinds) == ["Topic"]
    assert server.asked == ["a", "b", "b"]
    with pytest.raises(KubeError):
        await missing_kinds(ApiServer(refuses={"a", "b"}), ["a", "b"], kinds)
    assert await missing_kinds(ApiServer(refuses=set()), [], kinds) == ["Topic"]


def test_what_was_known_of_a_namespace_that_refuses_stays_known() -> None:
    inventory = Inventory()
    for namespace in ("a", "b", "gone"):
        inventory.add_pool(namespace, "bk")
        inventory.note("Ledger", namespace, "orders", "bk", is_there=True)
    pool = {"kind": "BookiePool", "metadata": {"namespace": "c", "name": "bk"}}
    vanished = inventory.vanished(Listed({"BookiePool": (pool,), "Ledger": ()}, frozenset({"a"})))
    assert [(each.kind, each.namespace) for each in vanished] == [
        ("BookiePool", "b"),
        ("BookiePool", "gone"),
        ("Ledger", "b"),
        ("Ledger", "gone"),
    ]


async def test_an_api_server_that_is_away_is_no_namespace_that_is_gone() -> None:
    class Away(ApiServer):
        async def find(self, kind: str, namespace: str, name: str) -> Object | None:
            raise UnavailableError("no answer")

    found = await list_all(Away(refuses={"a"}), ["a", "b"], RESOURCES)
    assert found.refused == {"a"}


async def test_what_is_asked_for_the_sake_of_another_namespace_may_be_refused() -> None:
    server = ApiServer(refuses={"a"})
    assert await if_allowed(server.listing("Job", "a"), []) == []
    assert len(await if_allowed(server.listing("Job", "b"), [])) == 1
