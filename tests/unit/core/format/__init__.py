"""The bytes of frames, blocks and intervals."""
