"""How the kernel schedules the threads of a bookie or a broker: in short slices, since each works for microseconds and others wait for it.

An append passes a broker, two threads of a bookie and a sync of the disk. On a busy machine each of these wakes beside a process that
computes; the kernel protects that process to the end of its slice, and notices the end at its next tick: milliseconds.
A thread with a shorter slice interrupts one with a longer slice as soon as its share of the CPU allows; the share stays the same.
"""

import ctypes
import os
import platform
import struct
from typing import Final

SLICE_NS: Final = 100_000
"""The shortest that Linux grants."""
_SYSTEM_CALLS: Final = {"x86_64": 314, "aarch64": 274}
"""sched_setattr, which neither Python nor an older C library offers."""
_ATTRIBUTES: Final = struct.Struct("<IIQiIQQQ")
"""struct sched_attr: size, policy, flags, nice, priority, runtime (ns), deadline, period."""


def ask_for_short_slices() -> bool:
    """Ask for this thread and those that it starts; False where the kernel cannot be asked, or refuses.

    Linux before 6.12 takes the request and does nothing.
    """
    number = _SYSTEM_CALLS.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0)
