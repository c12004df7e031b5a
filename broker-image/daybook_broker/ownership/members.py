"""The registered brokers and the leader, as they were last read: what lookups and the leader's choices rest on."""

import asyncio
from contextlib import aclosing

from daybook.metadata.brokers import BrokerDirectory, BrokersView


class Members:
    """A view that `follow` keeps up to date."""

    def __init__(self, directory: BrokerDirectory) -> None:
        """Nobody is known yet."""
        self._directory = directory
        self._event = asyncio.Event()
        self.view = BrokersView({}, None)

    async def follow(self) -> None:
        """Keep the view up to date, for ever. Raises MetadataError for a registration that cannot be read."""
        async with aclosing(self._directory.watch()) as views:  # type: ignore[type-var]  # it is a generator
            async for self.view in views:
                self._event.set()
                self._event = asyncio.Event()

    async def changed(self) -> None:
        """Return when the view changes next."""
        await self._event.wait()
