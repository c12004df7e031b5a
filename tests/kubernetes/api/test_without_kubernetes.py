"""Where Kubernetes cannot be had the tests fail and say what to do; they are left out only where that is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.binaries import ASSETS, WITHOUT
from tests.paths import ROOT

ONE_TEST = "tests/kubernetes/api/test_harness.py::test_what_kubectl_says_reaches_the_test"


def _run(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run one test that needs Kubernetes, with an empty cache and a Go that builds nothing."""
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho the module proxy is away; exit 1\n", encoding="utf-8")
    go.chmod(0o755)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    for inherited in (ASSETS, WITHOUT):
        environment.pop(inherited, None)
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", ONE_TEST]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_they_fail_and_say_what_to_do(tmp_path: Path) -> None:
    done = _run(tmp_path)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "Building etcd" in done.stderr, "progress is shown although pytest captures"
    for words in ("the module proxy is away", f"{WITHOUT}=1", ASSETS):
        assert words in done.stdout


def test_they_are_left_out_if_asked(tmp_path: Path) -> None:
    done = _run(tmp_path, **{WITHOUT: "1"})
    assert done.returncode == pytest.ExitCode.OK
    assert "1 skipped" in done.stdout
    assert "Building" not in done.stderr
