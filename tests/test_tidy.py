"""House rules (docs/style.md) that no linter knows, checked on the sources themselves."""

import ast
import gc
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.paths import ROOT

CODE_FOLDERS = (
    "daybook",
    "bookie-image",
    "broker-image",
    "operator",
    "spark-jobs",
    "tests",
    "bench",
    "tools",
)
TEXT_SUFFIXES = {"", ".cfg", ".json", ".md", ".proto", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")

FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 70

PACKAGES_AT_THE_TOP = {"daybook", "tests", "bench", "tools"}
"""Any other top-level folder would shadow something as a package: `operator` the standard library's module."""

BROAD = {"Exception", "BaseException"}

SLEEPS: dict[str, str] = {
    "bookie-image/daybook_bookie/identity/metadata_link.py": "the pause between attempts to register",
    "broker-image/daybook_broker/collecting.py": "the pause between cycles is due to the clock",
    "broker-image/daybook_broker/topics/registry.py": "the clock's tick is the event",
    "broker-image/daybook_broker/topics/topic_lists.py": "changes that come within a moment are one update",
    "broker-image/daybook_broker/topics/upkeep.py": "the pause between cycles is due to the clock",
    "daybook/local/zookeeper.py": "a server that starts can only be asked again",
    "daybook/cli/asked_bookies.py": "a client's view of the bookies has no event",
    "daybook/client/client.py": "the clock's tick is the event",
    "daybook/metadata/registration.py": "the pause between attempts to register",
    "operator/daybook_operator/leading.py": "a resync is due to the clock; a kind that is not served tells nobody when it is",
    "operator/daybook_operator/kube/lease.py": "the pace of renewals, and of looks at another's Lease",
    "operator/daybook_operator/main.py": "the clock's tick is the event",
    "spark-jobs/daybook_spark/audit/pace.py": "the limit of a bookie is due to the clock",
    "spark-jobs/daybook_spark/own_tasks.py": "Spark tells Python of no task's end",
    "spark-jobs/daybook_spark/asking.py": "an owner that is busy or moves can only be asked again",
    "tests/cluster/cgroups.py": "processes that were killed leave their cgroup a moment later",
    "tests/cluster/nodes.py": "daemons that start can only be asked again",
    "tests/cluster/sandbox.py": "the end of a process that is no child of ours",
    "tests/cluster/process.py": "a server that starts can only be asked again",
    "tests/process/chaos/topics/storm.py": "how long a fault lasts is drawn",
    "tests/unit/broker/kit.py": "what cycles do shows only in what the topic has",
    "tests/unit/metadata/test_claim.py": "that a process still waits takes time to show",
    "tests/unit/metadata/test_bookies.py": "that a registration, or the news of one, still waits takes time to show",
    "tests/model/sim/topics/owner.py": "its time is simulated: nobody waits",
    "tests/model/sim/shipped/caretaking.py": "the pace of simulated operators, in simulated time",
    "tests/model/sim/shipped/reading.py": "the pace of simulated users, in simulated time",
    "tests/model/sim/shipped/test_parts.py": "that simulated time passes is what is tested",
    "tests/model/sim/shipped/users.py": "the pace of simulated users, in simulated time",
    "tests/model/sim/shipped/writing.py": "the pace of simulated users, in simulated time",
    "tests/kubernetes/e2e/topics.py": "receipts are counted in another thread than the client's",
    "tests/kubernetes/e2e/workload.py": "the pace of writers and readers",
    "tests/kubernetes/e2e/world.py": "what a cluster does shows only in what it answers",
    "tests/process/integration/kit.py": "views and other processes, which have no event to wait for",
    "tests/process/integration/test_zookeeper_faults.py": "a pause is time that passes",
    "tests/process/integration/workload.py": "the pace of writers and readers",
    "tests/process/integration/test_restore_topics.py": "what other processes stored has no event",
    "tools/growth/topic_resources.py": "what rest costs is measured over a time",
    "tools/growth/writer.py": "the pace of a writer",
    "tools/slo/pulse.py": "the pace of a writer",
    "tests/unit/metadata/test_lost_replies.py": "that a write still waits takes time to show",
    "tests/unit/metadata/test_tasks.py": "that a lease outlives its first session time-out takes that long",
    "tests/unit/metadata/test_zookeeper.py": "a pause of the server has to last",
}
"""Files that may sleep, with the reason why there is no event to wait for."""

SHIPPED_FOLDERS = ("daybook", "bookie-image", "broker-image", "operator", "spark-jobs")

TESTED_ALONE: dict[str, str] = {
    "format/checksums.py: entry_crc": "the definition of an entry's checksum, against which the fast entry_crcs is tested",
}
"""Public names of daybook/core that nothing shipped uses, by file below daybook/core, with the reason why they are there."""

CERTAIN_FOLDERS = ("daybook/metadata", "daybook/autorecovery", "operator")
"""Where leases and sessions are kept; ruff refuses `time.monotonic` everywhere."""
OTHER_CLOCK = re.compile(r"\bloop(?:\(\))?\.time\(|asyncio\.timeout_at\(|\.call_at\(")

# split, so that this file does not find itself
MACHINE_PATH = re.compile(r"(?<![\w.>}-])/(?:ro" + r"ot|ho" + r"me|Us" + r"ers|wo" + r"rk)/|\.\./sha" + "red")
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
SILENCED = re.compile(r"#\s*(?:noqa|type: ignore)\b.*")
CITED_OTHERWISE = re.compile(
    r"\brules\s+(?:# *)?\d|\brule\s*\n\s*(?:# *)?\d|\brule \d+(?:, |,? and |,? or | to |/|–|-)\d{1,2}\b(?! [a-z])",
    re.IGNORECASE,
)
"""Citations of a rule that a search for "rule 46" does not find."""
REASONED = re.compile(r"#\s*(?:noqa: [A-Z]+\d+(?:, ?[A-Z]+\d+)*|type: ignore\[[\w, -]+\])(?: - |\s+# ?)\w.*")


@cache
def sources() -> tuple[Path, ...]:
    """Every Python file that people write."""
    return tuple(
        path
        for folder in CODE_FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not GENERATED.search(path.name)
    )


@cache
def tree(path: Path) -> ast.Module:
    """The file, parsed. Python before 3.11.5 miscounts its depth when a collection runs Python code meanwhile."""
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    finally:
        gc.enable()


def texts() -> Iterator[tuple[str, str]]:
    """Name and content of every text file of the project."""
    for path in sorted(ROOT.rglob("*")):
        name = path.relative_to(ROOT)
        hidden = any(part.startswith(".") and part != ".ci" for part in name.parts)
        if hidden or path.suffix not in TEXT_SUFFIXES or not path.is_file():
            continue
        if {"build", "dist", "out", "__pycache__"} & set(name.parts):
            continue
        yield str(name), path.read_text(encoding="utf-8")


@cache
def names_read() -> Counter[str]:
    """How often the shipped code reads each name: `name` by itself, `.name` as an attribute. Imports do not count."""
    found: Counter[str] = Counter()
    for path in sources():
        if path.relative_to(ROOT).parts[0] not in SHIPPED_FOLDERS:
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                found["." * isinstance(node, ast.Attribute) + _name(node)] += 1
            elif isinstance(node, ast.MatchClass):
                found.update("." + name for name in node.kwd_attrs)
    return found


def at(path: Path, line: int = 0) -> str:
    """A place that an editor can jump to."""
    return f"{path.relative_to(ROOT)}:{line}"


def test_files_are_short_enough_to_read_in_one_sitting() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path in sources()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_functions_fit_on_one_screen() -> None:
    long = [
        f"{at(path, node.lineno)}: {node.name}"
        for path in sources()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_every_module_says_why_it_exists() -> None:
    found = [at(path) for path in sources() if not ast.get_docstring(tree(path))]
    assert not found, "\n".join(found)


def test_only_the_packages_are_importable_from_the_root() -> None:
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert found <= PACKAGES_AT_THE_TOP


def test_nothing_is_left_unfinished_or_bound_to_a_machine() -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if UNFINISHED.search(line) or (MACHINE_PATH.search(line) and not line.startswith("#!"))
    ]
    assert not found, "\n".join(found)


def test_nothing_is_silenced_without_a_reason_beside_it() -> None:
    found = [
        f"{at(path, number)}: {match[0]}"
        for path in sources()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := SILENCED.search(line)) and "re.compile" not in line and not REASONED.search(line)
    ]
    assert not found, "\n".join(found)


def test_no_error_is_swallowed() -> None:
    found = []
    for path in sources():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ExceptHandler) and all(_says_nothing(each) for each in node.body):
                kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                found += [at(path, node.lineno) for kind in kinds if kind is None or _name(kind) in BROAD]
            if isinstance(node, ast.Call) and _name(node.func) == "suppress":
                found += [
                    at(path, node.lineno)
                    for kind in node.args
                    if _name(kind) in {"Exception", "BaseException"}
                ]
    assert not found, "\n".join(found)


def test_nobody_sleeps_where_an_event_can_be_awaited() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in sources()
        for node in ast.walk(tree(path))
        if path.parts[len(ROOT.parts)] != "bench"  # a bench paces its load
        and isinstance(node, ast.Call)
        and _name(node.func) == "sleep"
        and not _is_zero(node)
    }
    assert sorted(found - SLEEPS.keys()) == [], "wait for an event, or give the reason in SLEEPS"
    assert sorted(SLEEPS.keys() - found) == [], "these sleep no longer: remove them from SLEEPS"


def test_what_leases_and_sessions_rest_on_is_read_from_one_clock() -> None:
    """asyncio's clock stands still while the machine sleeps, and a session that ended meanwhile looks alive (rule 46)."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources()
        if str(path.relative_to(ROOT)).startswith(CERTAIN_FOLDERS)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OTHER_CLOCK.search(line)
    ]
    assert not found, "use daybook.runtime.clock:\n" + "\n".join(found)


def test_logs_go_through_the_runtime() -> None:
    """structlog's own `get_logger` prints to standard output where a program uses Daybook as a library."""
    found = [
        at(path, node.lineno)
        for path in sources()
        if "runtime" not in path.parts
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
        and node.attr == "get_logger"
        and _name(node.value) in {"structlog", "stdlib"}
    ]
    assert not found, "use daybook.runtime.logs.get_logger:\n" + "\n".join(found)


def test_only_public_parts_of_libraries_are_used() -> None:
    """A module whose name begins with one underscore may change with any release."""
    found = [
        f"{at(path, node.lineno)}: {module}"
        for path in sources()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
        if any(part.startswith("_") and not part.startswith("__") for part in module.split("."))
    ]
    assert not found, "\n".join(found)


def test_what_is_public_in_the_core_is_used_by_what_ships() -> None:
    """What only tests use is a second implementation of something, or dead. Members are told apart by name alone."""
    found = {
        f"{path.relative_to(ROOT / 'daybook' / 'core')}: {name}"
        for path in sources()
        if path.is_relative_to(ROOT / "daybook" / "core")
        for name in _public_names(tree(path))
        if not (names_read()["." + name.rpartition(".")[2]] or names_read()[name])
    }
    assert sorted(found - TESTED_ALONE.keys()) == [], "use it, delete it, or give a reason in TESTED_ALONE"
    assert sorted(TESTED_ALONE.keys() - found) == [], (
        "these are gone or in use: remove them from TESTED_ALONE"
    )


def test_links_in_the_documents_lead_somewhere() -> None:
    broken = [
        f"{name}: {target}"
        for name, text in texts()
        if name.endswith(".md")
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
        if "://" not in target and not (ROOT / name).parent.joinpath(target).exists()
    ]
    assert not broken, "\n".join(broken)


def test_one_search_finds_every_citation_of_a_rule() -> None:
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}"
        for name, text in texts()
        if name != str(Path(__file__).relative_to(ROOT))
        for match in CITED_OTHERWISE.finditer(text)
    ]
    assert not found, "write 'rule 45, rule 46', each with its number on the same line:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "is_caught"),
    [
        ("(rules 45 and 46)", True),
        ("rules 2, 3", True),
        ("rule 31 or 29", True),
        ("rule 31 to 37", True),
        ("is settled (rule\n    29)", True),
        ("(rule 45, rule 46)", False),
        ("rule 45, 3 bookies", False),
        ("the rules of rule 5", False),
    ],
)
def test_the_pattern_for_citations_can_tell(text: str, *, is_caught: bool) -> None:
    assert bool(CITED_OTHERWISE.search(text)) is is_caught


@pytest.mark.parametrize(
    ("text", "is_caught"),
    [
        ("open('/ho" + "me/ann/x')", True),
        ("/wo" + "rk/main", True),
        ("docs/wo" + "rk/plan", False),
        ("https://example.org/wo" + "rk/", False),
    ],
)
def test_the_pattern_for_machine_paths_can_tell(text: str, *, is_caught: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is is_caught


def _public_names(module: ast.Module) -> Iterator[str]:
    """The public names that a module defines, those of its classes' members with the class before them."""
    for owner, node in [("", each) for each in module.body] + [
        (f"{each.name}.", member)
        for each in module.body
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_")
        for member in each.body
    ]:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        defined = (
            [node.name]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            else [_name(each) for each in targets]
        )
        yield from (owner + name for name in defined if name and not name.startswith("_"))


def _name(node: ast.expr) -> str:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _says_nothing(node: ast.stmt) -> bool:
    """Whether the statement is `pass` or `...`."""
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...
    )


def _is_zero(call: ast.Call) -> bool:
    """Whether it is `sleep(0)`, which gives way and does not wait."""
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
