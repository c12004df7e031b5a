"""A reader of bytes of others, with good samples and the errors that it may answer with.

A reader goes on as its caller in the product would, up to where the bytes have become values: what got past the checks must
not fail later with an error that nobody expects.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.process.fuzz.mutations import Edit, mutate, unpack_edits


@dataclass(frozen=True, slots=True)
class Target:
    """A reader of bytes."""

    name: str
    samples: tuple[bytes, ...]
    read: Callable[[bytes], None]
    refusals: tuple[type[Exception], ...]
    """What it documents; anything else is a crash."""
    seal: Callable[[bytes], bytes] = bytes
    """Makes the checksums of damaged bytes right again, as far as they still have a shape."""
    mutate: Callable[[bytes, list[Edit]], bytes] = mutate

    def damaged(self, sample: int, edits: list[Edit], *, sealed: bool) -> bytes:
        """A sample after some edits."""
        data = self.mutate(self.samples[sample % len(self.samples)], edits)
        return self.seal(data) if sealed else data

    def takes(self, data: bytes) -> bool:
        """Whether the reader takes `data`; raises what it must not, and AssertionError for an unclear refusal."""
        try:
            self.read(data)
        except self.refusals as error:
            text = str(error)
        else:
            return True
        assert 10 < len(text) < 2000, f"say what happened and what to do, not {text[:3000]!r}"
        return False

    def input_of(self, data: bytes) -> bytes:
        """A coverage-guided fuzzer's bytes as input: as they are, or as edits of a sample."""
        if len(data) < 2 or data[0] % 3 == 0:
            return data[1:]
        return self.damaged(data[1], unpack_edits(data[2:]), sealed=data[0] % 3 == 1)
