"""A real broker process under hostile clients: some seconds of each way; `make fuzz` takes longer."""

from collections.abc import Iterator
from random import Random

import pytest

from daybook.local.cluster import LocalCluster
from tests.process.fuzz.pulsar_frames import ATTACKS
from tests.process.fuzz.pulsar_greetings import GREETINGS
from tests.process.fuzz.pulsar_wire import Target, attacked_broker, withstand

SECONDS = 0.7


@pytest.fixture(scope="module")
def target(cluster: LocalCluster) -> Iterator[Target]:
    with attacked_broker(cluster) as started:
        yield started


@pytest.mark.parametrize("name", [*ATTACKS, *GREETINGS])
async def test_a_broker_serves_others_while_it_is_attacked(target: Target, name: str) -> None:
    counts = await withstand(target, [name], Random(name), SECONDS)
    assert counts[name] > 0
