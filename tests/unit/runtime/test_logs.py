"""Every log line has the same form, whichever library logs it."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from daybook.runtime.log_output import LogFormat, bound_contextvars, configure_logs
from daybook.runtime.logs import get_logger


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Restore pytest's handlers and hooks."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level, sys.excepthook)
    levels = {name: logging.getLogger(name).level for name in ("kazoo", "asyncio")}
    yield
    root.handlers[:], level, sys.excepthook = before
    root.setLevel(level)
    for name, number in levels.items():
        logging.getLogger(name).setLevel(number)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    """The JSON lines of `stream`."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_our_lines_are_json_with_fields_and_context() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream, context={"bookie": "b1"})
    with bound_contextvars(ledger_id=7):
        get_logger("sample").info("fenced", entry_id=3, name="a field that logging has, too")
    (line,) = lines(stream)
    assert line.pop("timestamp")
    assert line == {
        "event": "fenced",
        "level": "info",
        "logger": "sample",
        "bookie": "b1",
        "ledger_id": 7,
        "entry_id": 3,
        "name": "a field that logging has, too",
    }


def test_lines_of_libraries_have_the_same_form() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream, context={"bookie": "b1"})
    logging.getLogger("grpc").warning("%d streams", 3, extra={"peer": "p"})
    logging.getLogger("kazoo.client").info("too much")
    (line,) = lines(stream)
    assert line["event"] == "3 streams"
    assert (line["logger"], line["level"], line["peer"], line["bookie"]) == ("grpc", "warning", "p", "b1")


def test_structlog_itself_has_the_same_form() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    structlog.stdlib.get_logger("other").bind(peer="p").warning("slow", seconds=2)
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["peer"], line["seconds"]) == ("slow", "other", "p", 2)


def test_an_exception_is_one_line() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    try:
        _ = 1 // 0
    except ZeroDivisionError:
        get_logger("sample").exception("failed")
    (line,) = lines(stream)
    assert "ZeroDivisionError" in str(line["exception"])


def test_console_lines_are_for_people() -> None:
    stream = io.StringIO()
    configure_logs(log_format=LogFormat.CONSOLE, stream=stream)
    get_logger("sample").warning("disk is full", free_bytes=0)
    assert "disk is full" in stream.getvalue()
    assert "free_bytes=0" in stream.getvalue()


def test_the_level_applies_and_a_wrong_one_is_refused() -> None:
    stream = io.StringIO()
    configure_logs("error", stream=stream)
    get_logger("sample").warning("not shown")
    assert not stream.getvalue()
    with pytest.raises(ValueError, match=r"'loud' is not a log level: use one of .*WARNING"):
        configure_logs("loud")


def test_without_configuration_the_program_decides(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        get_logger("sample").info("100% done", part=1)
        get_logger("sample").debug("not shown")
    assert caplog.messages == ["100% done part=1"]
    assert caplog.records[0].filename == "test_logs.py", "the place of a line is that of its caller"


def test_uncaught_exceptions_of_process_and_threads_are_logged() -> None:
    script = """
import threading
from daybook.runtime.log_output import LogFormat, configure_logs
configure_logs(log_format=LogFormat.JSON)
thread = threading.Thread(target=lambda: 1 // 0, name="journal")
thread.start()
thread.join()
raise KeyError("gone")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    in_thread, in_process = map(json.loads, done.stderr.splitlines())
    assert (in_thread["event"], in_thread["thread_name"]) == ("an exception ends a thread", "journal")
    assert "ZeroDivisionError" in in_thread["exception"]
    assert "KeyError: 'gone'" in in_process["exception"]
    assert done.returncode == 1
