"""A process is stopped once, and every waiting thread and task notices it."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from daybook.runtime.signals import StopEvent, exit_on_sigterm, stop_on_signals


def test_a_signal_wakes_threads_and_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as stop:
        assert not stop.wait(0)
        woken: list[bool] = []
        thread = threading.Thread(target=lambda: woken.append(stop.wait(30_000)))
        thread.start()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(30_000)
        thread.join(30)
        assert woken == [True]
        assert stop.reason == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_signal_wakes_every_task_of_a_loop() -> None:
    with stop_on_signals() as stop:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(stop.wait_async())
            tasks.create_task(stop.wait_async())
        assert stop.reason == "SIGINT"


def test_the_first_reason_stays() -> None:
    stop = StopEvent()
    stop.set("the journal failed")
    stop.set("SIGTERM")
    assert stop.wait(0)
    assert stop.reason == "the journal failed"
    stop.close()


def test_a_cancelled_wait_leaves_no_descriptor_behind() -> None:
    async def main() -> None:
        before = len(os.listdir("/proc/self/fd"))
        task = asyncio.create_task(stop.wait_async())
        await asyncio.wait([task], timeout=0)
        task.cancel()
        await asyncio.wait([task])
        assert len(os.listdir("/proc/self/fd")) == before

    stop = StopEvent()
    asyncio.run(main())
    stop.close()


def test_a_second_signal_ends_the_process_at_once() -> None:
    script = """
import os, signal
from daybook.runtime.signals import stop_on_signals
with stop_on_signals() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    stop.wait()
    print("stopping", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.stdout, done.returncode) == ("stopping\n", -signal.SIGTERM), done.stderr


def test_an_exit_on_sigterm_passes_what_cleans_up() -> None:
    before = signal.getsignal(signal.SIGTERM)
    cleaned: list[bool] = []

    def work() -> None:
        exit_on_sigterm()
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            cleaned.append(True)

    try:
        with pytest.raises(SystemExit) as ended:
            work()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (ended.value.code, cleaned) == (143, [True])
