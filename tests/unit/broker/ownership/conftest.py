"""Tests of this folder run on either store."""

from tests.unit.metadata.conftest import opener

__all__ = ["opener"]
