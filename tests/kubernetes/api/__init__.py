"""The operator and its resources against a real Kubernetes API server."""
