"""The bookie's metrics. Names follow Apache BookKeeper's, so that its users find their way: docs/metrics.md.

Everything on the way of an entry is counted by message or by group, never by entry.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from daybook.runtime.buckets import LATENCY_BUCKETS_SECONDS, SIZE_BUCKETS_BYTES


class BookieMetrics:
    """All of them, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register them."""
        self.registry = registry
        self._make_write_metrics()
        self._make_read_metrics()
        self._make_state_metrics()
        self._make_background_metrics()

    def _make_write_metrics(self) -> None:
        self.add_entries = self._counter("add_entry_entries", "Entries accepted.")
        self.add_bytes = self._counter("add_entry_bytes", "Bytes of frames accepted.")
        self.add_frames = self._counter("add_entry_frames", "Frames accepted.")
        self.add_messages = self._counter("add_entry_messages", "Messages received on append streams.")
        self.lac_rows = self._counter("lac_rows", "LACs received without entries, in tables.")
        self.add_rejected = self._counter("add_entry_rejected", "Frames refused.", "code")
        self.add_seconds = self._seconds("add_entry_seconds", "From a message's arrival to its answer.")
        self.journal_sync_seconds = self._seconds("journal_sync_seconds", "Write and fdatasync of a group.")
        self.journal_group_bytes = Histogram(
            "daybook_bookie_journal_group_bytes",
            "Bytes of a group.",
            buckets=SIZE_BUCKETS_BYTES,
            registry=self.registry,
        )
        self.journal_groups = self._counter("journal_groups", "Groups written and synced.")
        self.journal_queue_bytes = self._gauge("journal_queue_bytes", "Bytes that wait for the journal.")
        self.received_bytes = self._gauge("received_bytes", "Bytes of messages that are being dealt with.")
        self.journal_bytes = self._gauge("journal_bytes", "Bytes in journal files.")
        self.calls_without_role = self._counter(
            "calls_without_role",
            "Calls that lacked the role they take (outcome: refused, allowed).",
            "call",
            "outcome",
        )
        self.attached = self._counter("attach", "Attachments of streams to ledgers.", "code")
        self.fences = self._counter("fence", "Fence requests and recovery reads.", "code")
        self.forces = self._counter("force", "Force requests.", "code")

    def _make_read_metrics(self) -> None:
        self.read_requests = self._counter("read_entry_requests", "Read requests.", "code")
        self.read_entries = self._counter("read_entry_entries", "Entries sent to readers.")
        self.read_bytes = self._counter("read_entry_bytes", "Bytes sent to readers.")
        self.read_seconds = self._seconds("read_entry_seconds", "A read request, to its last message.")
        self.read_damaged = self._counter(
            "read_entry_damaged", "Entries that a reader asked for and that are unreadable."
        )
        self.long_polls = self._gauge("read_lac_long_polls", "Long polls that wait.")

    def _make_state_metrics(self) -> None:
        self.server_status = self._gauge("server_status", "1 writable, 0 read-only.")
        self.streams = self._gauge("streams", "Append streams that are open.")
        self.ledgers = self._gauge("ledgers", "Ledgers known here.")
        self.disk_went_back = self._gauge(
            "disk_went_back", "1 if a disk was found older than it had been at this start (rule 58)."
        )
        self.limbo_ledgers = self._gauge("limbo_ledgers", "Ledgers that the bookie cannot vouch for.")
        self.metadata_rolled_back = self._gauge(
            "metadata_rolled_back", "1 while nothing is collected because ZooKeeper went back in time."
        )
        self.write_cache_bytes = self._gauge("write_cache_bytes", "Bytes in the write cache.")
        self.disk_used_ratio = self._gauge("disk_used_ratio", "Used space, 0 to 1.", "directory")
        self.registered = self._gauge("registered", "1 while registered in ZooKeeper.")

    def _make_background_metrics(self) -> None:
        self.flush_seconds = self._seconds("flush_seconds", "A flush of the write cache to the store.")
        self.flushed_bytes = self._counter("flushed_bytes", "Bytes flushed to the store.")
        self.gc_rounds = self._counter("gc_rounds", "Rounds of garbage collection.", "result")
        self.gc_ledgers = self._counter("gc_deleted_ledgers", "Ledgers deleted here.")
        self.gc_entries = self._counter(
            "gc_overreplicated_entries", "Entries removed that are no longer due here."
        )
        self.scrubbed_entries = self._counter("scrubbed_entries", "Entries checked by the scrubber.")
        self.scrub_rounds = self._counter("scrub_rounds", "Rounds of the scrubber.")
        self.damaged_entries = self._gauge("damaged_entries", "Entries known to be unreadable.")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"daybook_bookie_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"daybook_bookie_{name}", text, labels, registry=self.registry)

    def _seconds(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"daybook_bookie_{name}", text, buckets=LATENCY_BUCKETS_SECONDS, registry=self.registry
        )
