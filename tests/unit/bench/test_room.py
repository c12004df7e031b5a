"""A bench takes no figures on a disk that is so full that bookies may refuse writes: a rate of 0 would look like one."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.sides import WorkloadError, check_room


@pytest.mark.parametrize(("used", "is_full"), [(80, False), (91, True)])
def test_a_full_disk_gives_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: int, *, is_full: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(used=used, free=100 - used))
    if is_full:
        with pytest.raises(WorkloadError, match="91% full"):
            check_room(tmp_path)
    else:
        check_room(tmp_path)
