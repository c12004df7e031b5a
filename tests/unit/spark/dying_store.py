"""A metadata store of a process that is killed: it carries out so many changes, and nothing after them."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

CHANGES: Final = frozenset({"create", "put", "delete", "multi"})


class Killed(BaseException):
    """The process is gone: no code of the product catches this."""


class DyingStore:
    """`store` for a process that is killed before its next change once it has made `changes` of them.

    Nothing that the process would still read or write happens afterwards.
    """

    def __init__(self, store: Any, changes: int) -> None:
        self._store = store
        self._left = changes
        self._is_dead = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._counted(name, found) if callable(found) else found

    def _counted(
        self, name: str, call: Callable[..., Coroutine[Any, Any, Any]]
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def counted(*arguments: Any, **options: Any) -> Any:
            if name in CHANGES:
                self._is_dead |= not self._left
                self._left -= 1
            if self._is_dead:
                raise Killed
            return await call(*arguments, **options)

        return counted
