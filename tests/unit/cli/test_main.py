"""The command itself: fast help, completion, and usage errors."""

import subprocess
import sys

import pytest

from daybook.cli.lazy import LazyGroup
from tests.unit.cli.kit import COMMAND, run

HEAVY = ("grpc", "kazoo", "pydantic_settings", "google.protobuf", "structlog", "daybook.client")


def imported(*arguments: str, env: dict[str, str] | None = None) -> set[str]:
    """The modules that the command imports for `arguments`."""
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}


def test_help_imports_nothing_that_takes_long() -> None:
    modules = imported("--help")
    assert "daybook.cli.lazy" in modules
    assert not [name for name in HEAVY if name in modules]


def test_help_of_a_group_imports_nothing_that_takes_long() -> None:
    modules = imported("ledger", "--help")
    assert "daybook.cli.lines" in modules, "which the group itself imports"
    assert not [name for name in HEAVY if name in modules]


@pytest.mark.parametrize("name", LazyGroup.COMMANDS)
def test_every_command_has_help_with_its_line(name: str) -> None:
    told = run(name, "--help")
    assert told.exit_code == 0
    assert f"daybook {name}" in told.output or f"root {name}" in told.output
    listed = run("--help").output
    assert name in listed


def test_the_fixed_commands_exist() -> None:
    for group, names in {
        "ledger": ("create", "write", "read", "show", "list", "delete", "recover", "verify"),
        "bookie": ("list", "info", "start", "decommission", "replace", "scrub", "accept-rollback"),
    }.items():
        for name in names:
            told = run(group, name, "--help")
            assert told.exit_code == 0, (group, name)
            assert "--dir" in told.output, (group, name)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("daybook le", "ledger"),
        ("daybook ledger ver", "verify"),
        ("daybook ledger write --ack", "--ack-quorum"),
    ],
)
def test_a_shell_completes_commands_and_options(words: str, expected: str) -> None:
    env = {
        "_DAYBOOK_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", "from daybook.cli.main import app; app(prog_name='daybook')"],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert done.stdout.split() == [expected], done.stderr


def test_a_misspelled_command_is_corrected() -> None:
    told = run("ledgr")
    assert told.exit_code == 2
    assert "Did you mean 'ledger'" in told.stderr


def test_an_unknown_log_level_is_refused() -> None:
    told = run("--log-level", "LOUD", "ledger", "list")
    assert told.exit_code == 2
    assert "WARNING" in told.stderr


@pytest.mark.parametrize("words", [("audit", "--set-delay"), ("audit", "--delay"), ("recover", "--delay")])
@pytest.mark.parametrize("delay", ["inf", "nan", "-1", "2592001"])
def test_a_delay_that_nobody_can_wait_for_is_refused(words: tuple[str, str], delay: str) -> None:
    refused = run(*words, delay)
    assert refused.exit_code == 2, "as with every wrong option"
    assert "0 to 2592000 s (30 days)" in refused.stderr


def test_a_grace_without_an_end_is_refused() -> None:
    refused = run("recover", "1", "--grace", "inf", "--zookeeper", "127.0.0.1:1")
    assert refused.exit_code == 2
    assert "use a number of seconds" in refused.stderr


NOWHERE = ("--zookeeper", "127.0.0.1:1")


@pytest.mark.parametrize("command", ["show", "read", "write", "delete", "recover", "verify"])
def test_an_id_that_no_ledger_has_is_refused_with_the_range(command: str) -> None:
    refused = run("ledger", command, 2**63, *NOWHERE, env={"COLUMNS": "200"})
    assert refused.exit_code == 2, "as with every wrong argument"
    assert "9223372036854775808 is no ledger id: ids go from 0 to 9223372036854775807" in refused.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ledger", "read", 7, "--follow", "--last", 100), "leave out either --follow or --last"),
        (
            ("ledger", "write", 7, "--metadata", "a=b"),
            "keeps what it was created with: leave out --metadata,",
        ),
        (("ledger", "write", 7, "--ensemble-size", 3), "leave out --ensemble-size,"),
        (("ledger", "write", 7, "--write-quorum", 3, "--ack-quorum", 2), "out --write-quorum, --ack-quorum,"),
        (("recover", "--drain", "--delay", 5), "give --delay to `daybook audit`"),
        (("recover", "--serve", "--delay", 5), "give --delay to `daybook audit`"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(words: tuple[object, ...], expected: str) -> None:
    refused = run(*words, *NOWHERE, env={"COLUMNS": "200"})
    assert refused.exit_code == 2, "before anything is done"
    assert expected in refused.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ledger", "list", *NOWHERE, "--cluster", "a/b"), "'a/b' is not a valid cluster name: use up to 63"),
        (("topic", "seek", "t", "s", "5:", *NOWHERE), "'5:' is no position: use earliest, latest, a time"),
        (("topic", "seek", "t", "s", ":5", *NOWHERE), "':5' is no position: use earliest, latest, a time"),
    ],
)
def test_what_cannot_be_is_an_error_of_one_line(words: tuple[str, ...], expected: str) -> None:
    refused = run(*words, env={"COLUMNS": "200"})
    assert refused.exit_code == 1
    (line,) = refused.stderr.splitlines()
    assert expected in line
