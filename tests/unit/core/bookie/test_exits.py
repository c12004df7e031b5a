"""The exit codes of a bookie's process are a contract: each means one thing, and none is somebody else's."""

from daybook.core.bookie import exits

TAKEN = {0, 2, 130, 141}
"""Success, wrong usage, Ctrl-C, a broken pipe: what every command means by them (docs/operations/command.md)."""


def test_every_end_of_a_bookie_has_an_exit_code_of_its_own() -> None:
    codes = [value for name, value in vars(exits).items() if name.startswith("EXIT_") and value]
    assert len(codes) == len(set(codes)) > 1
    assert not TAKEN & set(codes)
    assert all(0 < code < 126 for code in codes), "from 126 on a shell means something else"
