"""The buckets of histograms, the same in all parts, so that their latencies can be compared.

They are apart from `metrics` because parts that only count import them: a process that shows its counts to nobody needs no Prometheus.
"""

from typing import Final

LATENCY_BUCKETS_SECONDS: Final = (
    *(0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
SIZE_BUCKETS_BYTES: Final = tuple(float(4**power) for power in range(3, 13))
"""64 bytes to 16 MiB."""
