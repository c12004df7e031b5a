"""The core: frames, metadata, quorums and the machines, each driven by hand."""
