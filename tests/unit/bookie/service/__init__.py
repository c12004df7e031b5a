"""A bookie's gRPC service: appends, fences, reads, control calls, admission."""
