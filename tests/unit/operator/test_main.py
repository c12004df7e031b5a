"""What the process says in its last line when one of its parts ends."""

import asyncio
from typing import Any

import pytest
from daybook_operator import main
from daybook_operator.kube.lease import LeaderLease, LeadershipLostError
from daybook_operator.leading import Leading
from daybook_operator.metrics import LabelledRegistries, OperatorMetrics
from daybook_operator.settings import OperatorSettings

from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.runtime.metrics import new_registry


@pytest.mark.parametrize("lost", [LeadershipLostError("not renewed"), KeyError("a bug")])
async def test_the_first_error_in_words_ends_the_process_and_a_bug_is_reported_whole(
    monkeypatch: pytest.MonkeyPatch, lost: Exception
) -> None:
    """On every Python: before 3.11.4 an error that `except*` raises came in a group, which no caller expects."""

    async def nothing(*_: Any) -> None:
        return

    async def lose(_: LeaderLease) -> None:
        raise lost

    async def lead(_: Leading) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(LeaderLease, "acquire", nothing)
    monkeypatch.setattr(LeaderLease, "release", nothing)
    monkeypatch.setattr(LeaderLease, "hold", lose)
    monkeypatch.setattr(Leading, "__init__", lambda *_: None)
    monkeypatch.setattr(Leading, "run", lead)
    settings = OperatorSettings(zookeeper="zk:2181")
    working = main._work(
        None,  # type: ignore[arg-type] # nobody is asked
        settings,
        AutoRecoverySettings(),
        OperatorMetrics(new_registry()),
        LabelledRegistries("cluster"),
        main.Standing(settings),
    )
    with pytest.raises((LeadershipLostError, ExceptionGroup)) as ended:
        await working
    assert isinstance(ended.value, LeadershipLostError) is isinstance(lost, LeadershipLostError)
