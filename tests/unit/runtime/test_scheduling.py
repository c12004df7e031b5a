"""A process's threads ask the kernel for short slices, and keep their policy and niceness."""

import ctypes
import os
import platform
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from daybook.runtime.scheduling import SLICE_NS, ask_for_short_slices

SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
KERNEL = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])


def attributes() -> tuple[int, int, int]:
    """Policy, niceness and slice (ns) of this thread."""
    buffer = ctypes.create_string_buffer(48)
    assert ctypes.CDLL(None).syscall(SCHED_GETATTR[platform.machine()], 0, buffer, len(buffer), 0) == 0
    _, policy, _, nice, _, slice_ns, _, _ = struct.unpack("<IIQiIQQQ", buffer.raw)
    return policy, nice, slice_ns


@pytest.mark.skipif(KERNEL < (6, 12), reason="Linux has slices for each thread since 6.12")
def test_a_thread_and_those_that_it_starts_get_short_slices_and_keep_the_rest() -> None:
    seen: list[tuple[int, int, int]] = []

    def ask() -> bool:
        granted = ask_for_short_slices()
        child = threading.Thread(target=lambda: seen.append(attributes()))
        child.start()
        child.join()
        seen.append(attributes())
        return granted

    before = attributes()
    with ThreadPoolExecutor(1) as pool:  # what was asked for lasts as long as the thread
        assert pool.submit(ask).result()
    assert seen == [(before[0], before[1], SLICE_NS)] * 2
    assert attributes() == before
    assert before[0] == os.SCHED_OTHER


def test_a_machine_whose_system_calls_are_unknown_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "elsewhere")
    assert not ask_for_short_slices()
