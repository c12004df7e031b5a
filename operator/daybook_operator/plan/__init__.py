"""What to do, as pure functions of what was observed: no I/O, no clock, no Kubernetes client."""
