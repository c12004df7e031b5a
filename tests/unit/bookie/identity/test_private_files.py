"""Nobody but the bookie's user reads its data, however open its directories were before."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from daybook_bookie.disk.directory import DirectoryLock, make_private
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.store.storage import Storage

from tests.unit.bookie.store.kit import SMALL


@pytest.fixture(autouse=True)
def _open_handed() -> Iterator[None]:
    """Whatever the umask of the one who starts a bookie is."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, str]:
    """Of the directory and of all that is in it."""
    return {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in (directory, *directory.iterdir())}


def test_files_are_made_for_the_bookies_user_alone(tmp_path: Path) -> None:
    journal, store = tmp_path / "journal", tmp_path / "store"
    DirectoryLock(journal, store).close()
    Storage.open(RealDisk(journal), RealDisk(store), store, SMALL, new=True).close()
    found = {**modes(journal), **modes(store)}
    assert {found.pop("journal"), found.pop("store")} == {"0o700"}
    assert {"data.mdb", "lock.mdb"} < found.keys()
    assert set(found.values()) == {"0o600"}


def test_what_was_open_before_is_closed_at_the_start(tmp_path: Path) -> None:
    journal, store = tmp_path / "journal", tmp_path / "store"
    for directory in (journal, store):
        directory.mkdir(0o755)
        (directory / "file").touch(0o644)
    (store / "link").symlink_to(tmp_path)
    DirectoryLock(journal, store).close()
    assert modes(journal) == {"journal": "0o700", "file": "0o600"}
    assert modes(store).items() >= {"store": "0o700", "file": "0o600"}.items()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700, "as pytest made it"


def test_the_group_of_a_volume_that_kubernetes_manages_stays(tmp_path: Path) -> None:
    """With `fsGroupChangePolicy: OnRootMismatch` the kubelet walks all files unless the root of the volume lets its group in."""
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o2777)
    (volume / "data.mdb").touch(0o660)
    make_private(volume)
    assert modes(volume) == {"volume": "0o2770", "data.mdb": "0o600"}


def test_what_may_not_be_changed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    (tmp_path / "data.mdb").touch(0o640)
    monkeypatch.setattr(os, "chmod", refuse)
    make_private(tmp_path)
    assert "others may read this bookie's data" in caplog.text
    assert str(tmp_path / "data.mdb") in caplog.text
