"""The API server, as the operator uses it.

In reading order:

    api      read, server-side apply, delete, evict, events
    watches  kopf as the reflector: list, watch, begin again
    queue    which object is due, when, and never twice at once
    lease    which of several operators leads
"""
