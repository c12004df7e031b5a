"""An S3 in this process, and a folder; each test has a place of its own in it."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """`host:port` of an S3 with the bucket `cold`."""
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"{host}:{port}"
        made = fs.S3FileSystem(
            access_key="test",
            secret_key="test",
            region="us-east-1",
            scheme="http",
            endpoint_override=endpoint,
            allow_bucket_creation=True,
        )
        made.create_dir("cold")
        yield endpoint
    finally:
        server.stop()


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of an empty place, whose credentials are in the environment."""
    if request.param == "local":
        return f"file://{tmp_path}/cold"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    endpoint = request.getfixturevalue("s3_endpoint")
    return f"s3://cold/{uuid.uuid4()}?region=us-east-1&scheme=http&endpoint_override={endpoint}"
