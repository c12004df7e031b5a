"""Loggers: an event is a constant phrase, and keyword arguments are its fields.

They log through `logging`, so every module may have one at no cost: `log_output` decides the form of the lines, in processes that
configure it. In a program that uses Daybook as a library and does not, that program's own handlers and levels apply.
"""

import logging
from collections.abc import MutableMapping
from typing import Any, Final

__all__ = ["FIELDS", "Logger", "get_logger", "hand_over"]

FIELDS: Final = "event_fields"
"""The attribute of a record of `logging` that has the event and its fields."""
_CALLER: Final = 3
"""How far up the stack the line is that logs."""


class Logger:
    """Logs events with fields. The fields `exc_info` and `stack_info` are those of `logging`."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        """`name` is the module's `__name__`."""
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: Any) -> None:
        """For who examines this very part."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """What an operator wants to know a week later."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """What somebody should check."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        """What somebody must act on."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """An error, with the stack of the exception that is handled."""
        self._log(logging.ERROR, event, {"exc_info": True, **fields})

    def critical(self, event: str, /, **fields: Any) -> None:
        """What ends the process."""
        self._log(logging.CRITICAL, event, fields)

    def _log(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, stacklevel=_CALLER, **hand_over(event, fields))


def get_logger(name: str) -> Logger:
    """A logger called `name` (a module's `__name__`)."""
    return Logger(name)


def hand_over(event: str, fields: MutableMapping[str, Any]) -> dict[str, Any]:
    """The arguments of `logging` for an event: readable text for any handler, and the fields for Daybook's own."""
    passed: dict[str, Any] = {key: fields.pop(key) for key in ("exc_info", "stack_info") if key in fields}
    text = " ".join([event, *(f"{key}={value!r}" for key, value in fields.items())])
    return {"msg": text, "extra": {FIELDS: {"event": event, **fields}}, **passed}
