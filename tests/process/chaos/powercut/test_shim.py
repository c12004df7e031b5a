"""The disk that forgets: what was synced is there after any cut, what was not may be gone, by sectors and by names."""

import errno
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.settings import StorageSettings
from daybook_bookie.store.store import Store

from tests.process.chaos.powercut.disk import Faults, WatchedDirectory
from tests.process.chaos.powercut.shim import NoCompilerError, build, variables

CUTS = range(40)


@pytest.fixture(scope="module")
def library() -> Path:
    try:
        return build()
    except NoCompilerError as error:
        pytest.skip(str(error))


class Machine:
    """A directory and the programs that write there."""

    def __init__(self, library: Path, directory: Path) -> None:
        self.library = library
        directory.mkdir()
        self.path = directory
        self.disk = WatchedDirectory(directory)
        self.disk.prepare()

    def run(self, program: str) -> str:
        """Run it in the directory, as a process that is killed at its end; what it printed."""
        text = textwrap.dedent(program) + "\nsys.stdout.flush(); os.kill(os.getpid(), 9)\n"
        done = subprocess.run(
            [sys.executable, "-c", "import os, sys, errno\n" + text],
            cwd=self.path,
            env=variables(self.library, [self.path]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == -9, done.stderr
        return done.stdout.strip()

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.path.iterdir()}

    def outcomes(self, program: str) -> list[dict[str, bytes]]:
        """What may be there after a power cut at the end of `program`, drawn with many seeds."""
        self.run(program)
        return [self.disk.survivors(random.Random(seed))[0] for seed in CUTS]


@pytest.fixture
def machine(library: Path, tmp_path: Path) -> Machine:
    return Machine(library, tmp_path / "disk")


SYNC_NAMES = "d = os.open('.', os.O_RDONLY | os.O_DIRECTORY); os.fsync(d)"


def test_what_was_synced_survives_every_cut(machine: Machine) -> None:
    found = machine.outcomes(
        f"f = os.open('a', os.O_RDWR | os.O_CREAT); os.pwrite(f, b'x' * 5000, 0); os.fdatasync(f); {SYNC_NAMES}"
    )
    assert all(files == {"a": b"x" * 5000} for files in found)


def test_a_synced_name_says_nothing_of_the_data(machine: Machine) -> None:
    found = machine.outcomes(
        f"f = os.open('a', os.O_RDWR | os.O_CREAT); os.pwrite(f, b'x' * 5000, 0); {SYNC_NAMES}"
    )
    assert {len(files["a"]) for files in found} == {0, 5000}
    assert b"x" * 5000 in {files["a"] for files in found}
    assert any(b"\0" in files["a"] and b"x" in files["a"] for files in found)


def test_a_name_that_was_not_synced_may_be_gone(machine: Machine) -> None:
    found = machine.outcomes("f = os.open('a', os.O_RDWR | os.O_CREAT); os.pwrite(f, b'x', 0); os.fsync(f)")
    assert [files for files in found if not files]
    assert [files for files in found if files == {"a": b"x"}]


def test_a_rename_is_one_step_and_may_be_undone(machine: Machine) -> None:
    found = machine.outcomes(
        f"""
        for name in 'ab':
            f = os.open(name, os.O_RDWR | os.O_CREAT); os.pwrite(f, name.encode(), 0); os.fsync(f)
        {SYNC_NAMES}
        os.rename('b', 'a')
        """
    )
    assert {"a": b"a", "b": b"b"} in found
    assert {"a": b"b"} in found
    assert all(files in ({"a": b"a", "b": b"b"}, {"a": b"b"}) for files in found)


def test_a_removed_file_may_come_back_and_its_number_is_not_given_again(machine: Machine) -> None:
    found = machine.outcomes(
        f"""
        f = os.open('a', os.O_RDWR | os.O_CREAT); os.pwrite(f, b'old', 0); os.fsync(f)
        {SYNC_NAMES}
        os.close(f); os.unlink('a')
        f = os.open('b', os.O_RDWR | os.O_CREAT); os.pwrite(f, b'new', 0); os.fsync(f)
        """
    )
    assert {"a": b"old"} in found
    assert all(files in ({"a": b"old"}, {}, {"b": b"new"}) for files in found)


def test_o_dsync_makes_its_own_write_durable_and_no_other(machine: Machine) -> None:
    found = machine.outcomes(
        f"""
        f = os.open('a', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 8192); os.fsync(f)
        {SYNC_NAMES}
        os.pwrite(f, b'x' * 4096, 4096)
        os.pwrite(os.open('a', os.O_WRONLY | os.O_DSYNC), b'y' * 4096, 0)
        """
    )
    assert all(files["a"][:4096] == b"y" * 4096 for files in found)
    assert any(b"x" not in files["a"] for files in found)


@pytest.mark.parametrize(
    "write",
    [
        "os.pwrite(f, b'x' * 9, 0)",
        "os.pwritev(f, [b'x' * 4, b'x' * 5], 0)",
        "os.write(f, b'x' * 9)",
        "os.writev(f, [b'x' * 4, b'x' * 5])",
        "os.posix_fallocate(f, 0, 9)",
        "os.ftruncate(f, 9)",
        "import ctypes; ctypes.CDLL(None).pwrite(f, b'x' * 9, 9, ctypes.c_long(0))",
        "import ctypes; ctypes.CDLL(None).fallocate(f, 0, ctypes.c_long(0), ctypes.c_long(9))",
    ],
)
def test_every_kind_of_write_is_seen(machine: Machine, write: str) -> None:
    found = machine.outcomes(f"f = os.open('a', os.O_RDWR | os.O_CREAT); {SYNC_NAMES}\n{write}")
    assert {len(files["a"]) for files in found} == {0, 9}


def test_what_a_killed_process_left_unsynced_stays_unsynced_until_the_next_one_syncs_it(
    machine: Machine,
) -> None:
    write = f"f = os.open('a', os.O_RDWR | os.O_CREAT); os.pwrite(f, b'x' * 9, 0); {SYNC_NAMES}"
    machine.run(write)
    found = machine.outcomes("f = os.open('a', os.O_RDWR); os.read(f, 9)")
    assert {len(files["a"]) for files in found} == {0, 9}
    found = machine.outcomes("f = os.open('a', os.O_RDWR); os.fsync(f)")
    assert all(files == {"a": b"x" * 9} for files in found)


def test_after_a_cut_the_directory_is_what_was_drawn_and_all_of_it_durable(machine: Machine) -> None:
    machine.run(f"f = os.open('a', os.O_RDWR | os.O_CREAT); os.pwrite(f, b'x' * 9000, 0); {SYNC_NAMES}")
    for seed in CUTS:
        drawn, _ = machine.disk.survivors(random.Random(seed))
        counts = machine.disk.cut(random.Random(seed))
        assert machine.files() == drawn
        if counts["lost sectors"] or len(drawn["a"]) < 9000:
            break
    else:
        raise AssertionError("no seed lost anything")
    assert machine.disk.survivors(random.Random(0))[0] == drawn


def test_an_overwritten_sector_is_the_old_one_or_the_new_one(machine: Machine) -> None:
    found = machine.outcomes(
        f"""
        f = os.open('a', os.O_RDWR | os.O_CREAT); os.pwrite(f, b'o' * 65536, 0); os.fsync(f)
        {SYNC_NAMES}
        os.pwrite(f, b'n' * 65536, 0)
        """
    )
    sectors = [files["a"][at : at + 512] for files in found for at in range(0, 65536, 512)]
    assert set(sectors) == {b"o" * 512, b"n" * 512}


@pytest.mark.parametrize(
    ("faults", "call"),
    [
        (Faults(write_errno=errno.EIO), "os.pwrite(f, b'x', 0)"),
        (Faults(write_errno=errno.ENOSPC), "os.pwritev(f, [b'x'], 0)"),
        (Faults(sync_errno=errno.EIO), "os.fdatasync(f)"),
        (Faults(sync_errno=errno.EIO), "os.fsync(os.open('.', os.O_RDONLY | os.O_DIRECTORY))"),
        (Faults(allocate_errno=errno.ENOSPC), "os.posix_fallocate(f, 0, 9)"),
    ],
)
def test_faults_are_what_the_program_gets(machine: Machine, faults: Faults, call: str) -> None:
    program = f"""
f = os.open('a', os.O_RDWR | os.O_CREAT)
try:
    {call}
except OSError as error:
    print(error.errno)
else:
    print(0)
"""
    assert machine.run(program) == "0"
    machine.disk.set_faults(faults)
    assert machine.run(program) == str(max(faults[:3]))


def test_a_full_disk_says_that_it_is_full_and_for_how_long(machine: Machine) -> None:
    for fault, is_full in ((Faults(write_errno=errno.ENOSPC), True), (Faults(write_errno=errno.EIO), False)):
        machine.disk.set_faults(fault)
        assert (machine.run("print(os.statvfs(os.getcwd()).f_bavail)") == "0") is is_full


def test_what_a_failed_sync_dropped_is_not_made_durable_by_the_next_one(machine: Machine) -> None:
    machine.run(f"f = os.open('a', os.O_RDWR | os.O_CREAT); {SYNC_NAMES}")
    machine.disk.set_faults(Faults(sync_errno=errno.EIO))
    machine.run(
        """
f = os.open('a', os.O_RDWR)
os.pwrite(f, b'x' * 9, 0)
try:
    os.fsync(f)
except OSError:
    control = os.open('../disk.shadow/control', os.O_RDWR)
    os.write(control, bytes(24))
    os.fsync(f)
else:
    sys.exit(1)
"""
    )
    assert b"" in [machine.disk.survivors(random.Random(seed))[0]["a"].rstrip(b"\0") for seed in CUTS]


def test_what_a_failed_sync_left_is_read_by_the_next_process_and_durable_only_if_it_writes_it_again(
    machine: Machine,
) -> None:
    machine.run(f"f = os.open('a', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 8192); os.fsync(f); {SYNC_NAMES}")
    machine.disk.set_faults(Faults(sync_errno=errno.EIO))
    machine.run(
        """
f = os.open('a', os.O_RDWR)
os.pwrite(f, b'x' * 8192, 0)
try:
    os.fsync(f)
except OSError:
    pass
else:
    sys.exit(1)
"""
    )
    machine.disk.set_faults(Faults())
    found = machine.outcomes("f = os.open('a', os.O_RDWR); os.fsync(f); print(os.read(f, 9))")
    assert {files["a"][:1] for files in found} == {b"\0", b"x"}, "its own sync wrote nothing"
    found = machine.outcomes(
        "f = os.open('a', os.O_RDWR); os.pwrite(f, os.pread(f, 4096, 0), 0); os.fsync(f)"
    )
    assert {files["a"][:4096] for files in found} == {b"x" * 4096}
    assert {files["a"][4096:4097] for files in found} == {b"\0", b"x"}


def test_rule_23_a_store_whose_newest_page_was_only_read_opens_after_the_next_power_cut(
    machine: Machine, tmp_path: Path
) -> None:
    """The process died in the write that names a commit: the next one finds the commit, and has to make it certain."""
    prelude = """
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.settings import StorageSettings
from daybook_bookie.store.store import Store
from pathlib import Path
from tests.unit.bookie.store.kit import frame
from tests.unit.bookie.store.kit import put

def opened(**options):
    return Store(Path.cwd(), RealDisk(Path.cwd()), StorageSettings(store_map_bytes=1 << 28), **options)
"""
    machine.run(f"{prelude}\nstore = opened(new=True)\nput(store, frame(7, [0]))")
    machine.disk.set_faults(Faults(dsync_kills=1))
    machine.run(f"{prelude}\nput(opened(), frame(7, [1]))")
    machine.disk.set_faults(Faults())
    for number, files in enumerate(machine.outcomes(f"{prelude}\nopened()")):
        left = tmp_path / f"left-{number}"
        left.mkdir()
        for name, data in files.items():
            (left / name).write_bytes(data)
        with Store(left, RealDisk(left), StorageSettings(store_map_bytes=1 << 28)) as store:
            assert store.ledgers()[7].intervals.count == 2
