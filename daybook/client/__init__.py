"""The client: carries out what the machines of the core ask for, over gRPC streams and the metadata store."""
