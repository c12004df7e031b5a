"""A bench takes no figures on a disk that is so full that bookies may refuse writes: a rate of 0 would look like one."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.sides import WorkloadError, check_room


@pytest.mark.parametrize(("used", "is_full"), [(80, False), (91, True)])
def test_a_full_disk_gives_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: int, *, is_full: bool
) -> None:
    stat = SimpleNamespace(f_frsize=4096, f_blocks=250, f_bfree=250 - used, f_bavail=100 - used)
    monkeypatch.setattr(os, "statvfs", lambda _: stat)
    if is_full:
        with pytest.raises(WorkloadError, match="91% full"):
            check_room(tmp_path)
    else:
        check_room(tmp_path)
