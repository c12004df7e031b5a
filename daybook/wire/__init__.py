"""What travels between clients and bookies: the gRPC service, the raw messages of its two fast methods, channels.

Only the core is below it. Certificates are read by daybook.runtime and passed in as gRPC credentials.
"""
