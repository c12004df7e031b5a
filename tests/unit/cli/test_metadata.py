"""`daybook metadata …` on a real cluster."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from daybook.metadata.backup.file import open_export
from daybook.metadata.layout import split_id
from tests.paths import ROOT
from tests.unit.cli.kit import run, write

pytestmark = pytest.mark.integration


def test_an_export_has_what_persists(directory: Path, tmp_path: Path) -> None:
    ledger = write(directory, b"an entry")
    file = tmp_path / "metadata.gz"
    result = run("metadata", "export", file, "--dir", directory)
    assert result.exit_code == 0, result.stderr
    assert "nodes of cluster" in result.stdout
    with open_export(file) as export:
        nodes = dict(export.nodes())
    assert b'"CLOSED"' in nodes[f"/ledgers/{split_id(ledger)}"]
    assert {"/instance", "/idgen", "/bookies/cookies/bookie-0"} <= nodes.keys()
    assert not [path for path in nodes if path.startswith(("/bookies/available", "/bookies/claims"))]
    again = run("metadata", "export", file, "--dir", directory)
    assert (again.exit_code, "choose another name" in again.stderr) == (1, True)


def test_a_cluster_that_does_not_exist_has_no_export(directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "metadata.gz"
    result = run("metadata", "export", file, "--dir", directory, "--cluster", "another")
    assert (result.exit_code, "no cluster 'another'" in result.stderr) == (1, True)
    assert not file.exists()


@pytest.fixture
def export_container() -> dict[str, Any]:
    """The container of the example that exports on a schedule."""
    documents = yaml.safe_load_all((ROOT / "examples" / "metadata-export.yaml").read_text(encoding="utf-8"))
    (cron_job,) = (each for each in documents if each["kind"] == "CronJob")
    (container,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return dict(container)


def test_the_example_of_a_schedule_exports_and_keeps_the_newest(
    directory: Path, tmp_path: Path, export_container: dict[str, Any]
) -> None:
    exports = tmp_path / "exports"
    exports.mkdir()
    for day in range(1, 4):
        (exports / f"metadata-2020-01-0{day}-000000.gz").write_bytes(b"an old one")
    (exports / "notes").touch()
    given = {each["name"]: each["value"] for each in export_container["env"]}
    assert {"DAYBOOK_ZOOKEEPER", "DAYBOOK_CLUSTER", "EXPORTS", "KEPT"} == given.keys()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    here = {"PATH": path, "DAYBOOK_DIR": str(directory), "EXPORTS": str(exports), "KEPT": "2"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DAYBOOK_")}
    subprocess.run(export_container["command"], env={**environment, **here}, check=True, timeout=120)
    *kept, newest = sorted(each.name for each in exports.glob("*.gz"))
    assert kept == ["metadata-2020-01-03-000000.gz"]
    assert (exports / "notes").exists()
    with open_export(exports / newest) as export:
        assert "/instance" in {node.path for node in export.nodes()}


def test_the_example_of_a_schedule_fails_where_the_export_does(
    tmp_path: Path, export_container: dict[str, Any]
) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    here = {"PATH": path, "DAYBOOK_DIR": str(tmp_path), "EXPORTS": str(tmp_path), "KEPT": "0"}
    old = tmp_path / "metadata-2020-01-01-000000.gz"
    old.touch()
    done = subprocess.run(export_container["command"], env={**os.environ, **here}, check=False, timeout=120)
    assert done.returncode != 0
    assert old.exists(), "what there is stays while nothing new was exported"
