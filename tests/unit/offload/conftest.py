"""The places that tests of files run on; each test has one of its own."""

from pathlib import Path

import pytest

from tests.fixtures.object_store import S3


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URI of an empty place."""
    if request.param == "local":
        return f"file://{tmp_path}/cold"
    s3: S3 = request.getfixturevalue("s3")
    return s3.place()
