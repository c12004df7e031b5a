"""The client: the machines of the core over real streams."""
