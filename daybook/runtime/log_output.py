"""The output of logs: one JSON object per line on standard error, or coloured text on a terminal.

Log lines of libraries that use `logging` (grpc, kazoo) and uncaught exceptions have the same form, so that a log
collector needs one parser. Only a process that calls `configure_logs` imports this module: structlog takes 0.1 s to import.
"""

import logging
import sys
import threading
from collections.abc import Mapping
from enum import StrEnum
from types import TracebackType
from typing import Final, TextIO

import structlog
from structlog.contextvars import bind_contextvars, bound_contextvars, merge_contextvars
from structlog.typing import EventDict, Processor

from daybook.runtime.logs import FIELDS, hand_over

__all__ = ["LogFormat", "bind_contextvars", "bound_contextvars", "configure_logs"]

QUIET: Final[Mapping[str, int]] = {
    "kazoo": logging.WARNING,
    "asyncio": logging.WARNING,
    "py4j": logging.WARNING,
}
"""Libraries that log too much at INFO."""


class LogFormat(StrEnum):
    """The form of log lines."""

    AUTO = "auto"  # console on a terminal, JSON elsewhere
    JSON = "json"
    CONSOLE = "console"


def configure_logs(
    level: str = "INFO",
    log_format: LogFormat = LogFormat.AUTO,
    stream: TextIO | None = None,
    *,
    context: Mapping[str, str] | None = None,
) -> None:
    """Send all logs of this process to `stream` (standard error), and uncaught exceptions, too.

    Every line, of every thread, contains `context` (component, id). Raises ValueError for an unknown level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        allowed = ", ".join(name for name in logging.getLevelNamesMapping() if name != "NOTSET")
        msg = f"{level!r} is not a log level: use one of {allowed}"
        raise ValueError(msg)
    target = stream or sys.stderr
    fixed = dict(context or {})
    chain: list[Processor] = [
        structlog.stdlib.ExtraAdder(),
        _take_over,
        merge_contextvars,
        lambda _logger, _method, event: {**fixed, **event},
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    handler = logging.StreamHandler(stream) if stream else _Stderr()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=chain,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(log_format, target),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    for name, floor in QUIET.items():
        logging.getLogger(name).setLevel(max(number, floor))
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=_FRONT,
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to the present standard error: rich replaces it while it shows progress, to print above the progress."""

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self.stream = sys.stderr
        super().emit(record)


def _hand_over(_logger: object, _method: str, event: EventDict) -> Mapping[str, object]:
    """Turn an event of structlog's own loggers into the arguments of `logging`."""
    return hand_over(event.pop("event"), event)


_FRONT: Final[list[Processor]] = [structlog.stdlib.filter_by_level, _hand_over]


def _take_over(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Replace the text by the fields that `hand_over` passed."""
    event.update(event.pop(FIELDS, {}))
    return event


def _renderers(log_format: LogFormat, stream: TextIO) -> list[Processor]:
    """The last processors of a log line."""
    if log_format is LogFormat.CONSOLE or (log_format is LogFormat.AUTO and stream.isatty()):
        return [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(sort_keys=True)]


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Log the exception that ends the process; an interrupt from the keyboard needs no stack trace."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger("uncaught").critical("an exception ends the process", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    """Log the exception that ends a thread."""
    if issubclass(arguments.exc_type, SystemExit):
        return
    error = arguments.exc_value or arguments.exc_type()
    thread = arguments.thread.name if arguments.thread else "unknown"
    logging.getLogger("uncaught").critical(
        "an exception ends a thread",
        exc_info=(arguments.exc_type, error, arguments.exc_traceback),
        extra={"thread_name": thread},
    )
