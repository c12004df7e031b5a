"""The operator's plans and its parts, without a server."""
