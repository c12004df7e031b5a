"""Until when this broker's session certainly lives: rule 46, by a clock that counts the time for which a machine is suspended."""

from daybook.metadata.store.store import MetadataStore, StoreClosedError
from daybook.runtime.clock import monotonic_s, timeout_at


class OwnSession:
    """The session in which this broker is registered and has its leases; `session_id` is 0 while it is not registered."""

    def __init__(self, store: MetadataStore) -> None:
        """Nothing is registered yet."""
        self._store = store
        self._certain_until = 0.0
        self.session_id = 0

    def begin(self, session_id: int) -> None:
        """The broker is registered in this session."""
        self.session_id = session_id
        self._certain_until = 0.0

    def end(self) -> None:
        """The session is over."""
        self.session_id = 0
        self._certain_until = 0.0

    @property
    def is_certain(self) -> bool:
        """Whether the session certainly lives now. It is cheap: receipts and lookups ask each time."""
        now = monotonic_s()
        if now < self._certain_until:
            return True
        session = self._store.session
        if not self.session_id or session.session_id != self.session_id:
            return False
        self._certain_until = session.alive_until
        return now < self._certain_until

    async def over(self) -> None:
        """Return when the store reports another session, or none. Until then the session may come back."""
        try:
            while (seen := self._store.session).session_id == self.session_id:
                await self._store.session_changed(seen)
        except StoreClosedError:
            return

    async def out_of_touch(self, for_s: float) -> None:
        """Return once there is no connection to ZooKeeper, and the session may have been over for `for_s` seconds."""
        while True:
            seen = self._store.session
            if seen.connected:
                await self._store.session_changed(seen)
                continue
            try:
                async with timeout_at(seen.alive_until + for_s):
                    await self._store.session_changed(seen)
            except TimeoutError:
                return

    async def in_touch(self) -> None:
        """Return once there is a connection to ZooKeeper."""
        while not (seen := self._store.session).connected:
            await self._store.session_changed(seen)
