"""What there is in the namespaces that the operator manages, each asked for itself.

A namespace may refuse: it was deleted with the role in it, or its role is not made yet. That is a fact about this namespace
alone. What was known of one that refuses stays known, unless the namespace is gone.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from daybook.runtime.logs import get_logger
from daybook_operator.kube.api import ForbiddenError, KubeError, Object

_LOG: Final = get_logger(__name__)

T = TypeVar("T")


class Lister(Protocol):
    """What is needed of the API server; see `kube.Kube`."""

    async def find(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object, or None."""

    async def listing(self, kind: str, namespace: str = "") -> list[Object]:
        """All objects of a kind."""

    async def is_served(self, kind: str, namespace: str = "") -> bool:
        """Whether the API server knows the kind."""


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects of each kind. `refused` are namespaces of which nothing is known now, though they may be there."""

    objects: Mapping[str, tuple[Object, ...]]
    refused: frozenset[str] = frozenset()


async def list_all(kube: Lister, namespaces: Sequence[str], kinds: Sequence[str]) -> Listed:
    """List `kinds` in every one of `namespaces`; none: in all there are, at once. Raises KubeError if none answered."""
    asked = tuple(namespaces) or ("",)
    answers = await asyncio.gather(*(_list(kube, each, kinds) for each in asked), return_exceptions=True)
    found: list[Mapping[str, list[Object]]] = []
    refused: dict[str, KubeError] = {}
    for namespace, answer in zip(asked, answers, strict=True):
        if isinstance(answer, KubeError):
            refused[namespace] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.append(answer)
    if not found:
        raise next(iter(refused.values()))
    gone = await asyncio.gather(*(_is_gone(kube, each) for each in refused))
    for (namespace, why), is_gone in zip(refused.items(), gone, strict=True):
        _LOG.warning("a namespace could not be listed", namespace=namespace, is_gone=is_gone, why=str(why))
    return Listed(
        {kind: tuple(each for answer in found for each in answer[kind]) for kind in kinds},
        frozenset(each for each, is_gone in zip(refused, gone, strict=True) if not is_gone),
    )


async def if_allowed(request: Awaitable[T], otherwise: T) -> T:
    """The result of a request to another namespace; `otherwise` where that refuses."""
    try:
        return await request
    except ForbiddenError as error:
        _LOG.debug("a namespace refuses", why=str(error))
        return otherwise


async def missing_kinds(kube: Lister, namespaces: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """The kinds that the API server does not know, by the first namespace that answers. Raises KubeError if none does."""
    asked = tuple(namespaces) or ("",)
    for number, namespace in enumerate(asked):
        try:
            return [kind for kind in kinds if not await kube.is_served(kind, namespace)]
        except KubeError:
            if number == len(asked) - 1:
                raise
    raise AssertionError(asked)


async def _list(kube: Lister, namespace: str, kinds: Sequence[str]) -> Mapping[str, list[Object]]:
    return {kind: await kube.listing(kind, namespace) for kind in kinds}


async def _is_gone(kube: Lister, namespace: str) -> bool:
    """Whether a namespace that refuses is certainly not there."""
    try:
        return bool(namespace) and await kube.find("Namespace", "", namespace) is None
    except KubeError:
        return False
