"""Fixtures of the tests of the command."""

import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from daybook.local.cluster import LocalCluster


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Restore logging: the command configures the logs of this process, which continues after it."""
    root = logging.getLogger()
    handlers, level, hooks = root.handlers[:], root.level, (sys.excepthook, threading.excepthook)
    configuration = structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook, threading.excepthook = hooks
    structlog.configure(**configuration)
    logging.captureWarnings(capture=False)


@pytest.fixture
def directory(cluster: LocalCluster) -> Path:
    """The directory of the cluster that tests share."""
    return cluster.directory
