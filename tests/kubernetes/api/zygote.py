"""Forks operators: what takes two seconds of a core is importing them, and a test that kills one starts it many times.

It imports, then reads one JSON object a line: {"module", "environment", "log"}; the child runs the module as
`python -m module run` would. It answers {"started": pid}, and tells {"ended": pid, "code": …} of each that ends, in the
form of `subprocess`. When its input ends it kills what is left. Nothing runs here but this loop: no thread is forked.
"""

import json
import os
import runpy
import select
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

import daybook_operator.main  # noqa: F401 - this is what is to be imported once

_POLL_S: Final = 1.0


def main() -> None:
    """Serve until the input ends."""
    told, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(tell)
    signal.signal(signal.SIGCHLD, _heard)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the tests, which end this one
    children: set[int] = set()
    try:
        while True:
            ready, _, _ = select.select([sys.stdin.fileno(), told], [], [], _POLL_S)
            if told in ready:
                os.read(told, 1024)
            _reap(children)
            if sys.stdin.fileno() in ready:
                line = sys.stdin.readline()
                if not line:
                    return
                children.add(_start(json.loads(line)))
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)


def _heard(_number: int, _frame: FrameType | None) -> None:
    """The pipe has the news."""


def _reap(children: set[int]) -> None:
    for pid in sorted(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            children.remove(pid)
            _say({"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _start(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        _be(order)
    _say({"started": pid})
    return pid


def _be(order: dict[str, Any]) -> None:
    """Become the operator. Does not return."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = os.open(Path(order["log"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, to in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(number, to)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [order["module"], "run"]
    code = 1
    try:
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as error:  # noqa: BLE001 - what ends a process is told, whatever it is
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _say(answer: dict[str, int]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


main()
