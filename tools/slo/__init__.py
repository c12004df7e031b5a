"""What losses cost, measured: `make slo` runs the tests that measure and writes docs/slo.md from what they found."""
