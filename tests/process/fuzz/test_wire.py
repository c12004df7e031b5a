"""A real bookie process under hostile clients: one round of each attack; `make fuzz` makes many."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.process.fuzz.wire import ALL_ATTACKS, Process, withstand
from tests.unit.bookie.stream_kit import GrpcPipe, Stream


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(tmp_path_factory.mktemp("bookie"))
    yield process
    if process.process.poll() is None:
        process.process.kill()
        process.process.wait()


@pytest.mark.parametrize("name", ALL_ATTACKS)
def test_a_bookie_serves_others_while_it_is_attacked(bookie: Process, name: str) -> None:
    assert withstand(bookie, name, Random(name)) > 0


def test_after_all_of_it_the_bookie_ends_in_order(bookie: Process) -> None:
    Stream(GrpcPipe(bookie.stub), "another one finds room").close()
    assert bookie.end() == 0, bookie.log[-3000:]
