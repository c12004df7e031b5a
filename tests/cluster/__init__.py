"""Real Kubernetes for the tests: its programs, a control plane alone, and a cluster of several nodes."""
