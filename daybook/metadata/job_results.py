"""The results of jobs in the store: one node for each topic and job, beside the topic's policy.

A job writes them, in no transaction with anything else, and the operator shows them in the Topic's status. They end with the topic.
"""

from typing import Final

from daybook.core.errors import NoSuchTopicError
from daybook.core.topics.job_result import JobResult, check_job
from daybook.core.topics.name import TopicName
from daybook.metadata.layout import Layout, decode_name
from daybook.metadata.store.store import Create, MetadataStore, NodeExistsError, NoNodeError, Operation

_ATTEMPTS: Final = 3
"""The topic's directory of results may be created by another job, and be deleted with the topic."""


class JobResults:
    """The results of jobs in one cluster. Raises MetadataUnavailableError while the store does not answer."""

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        """Work on the results of `layout` in `store`."""
        self._store = store
        self._layout = layout

    async def write(self, name: TopicName, result: JobResult) -> None:
        """Replace the last result of the job for the topic. Raises NoSuchTopicError."""
        path, data = self._layout.job_result(name, result.job), result.to_json()
        for _ in range(_ATTEMPTS):
            try:
                await self._store.put(path, data, None)
            except NoNodeError:
                await self._create(name, path, data)
            else:
                return
        msg = f"topic {name} was deleted meanwhile: nobody needs what a job did for it"
        raise NoSuchTopicError(msg)

    async def _create(self, name: TopicName, path: str, data: bytes) -> None:
        """Begin the node, or find that another job was faster. Never creates the topic. Raises NoSuchTopicError."""
        directory = self._layout.job_results(name)
        operations: list[Operation] = [Create(path, data)]
        if await self._store.exists(directory) is None:
            operations.insert(0, Create(directory))
        try:
            await self._store.multi(operations)
        except NodeExistsError:
            return
        except NoNodeError as error:
            if await self._store.exists(self._layout.topic(name)) is None:
                msg = f"topic {name} does not exist: it begins with its first client"
                raise NoSuchTopicError(msg) from error

    async def read(self, name: TopicName, job: str) -> JobResult | None:
        """The last result of a job; None if it never left one. Raises MetadataError for data that cannot be read."""
        try:
            node = await self._store.get(self._layout.job_result(name, check_job(job)))
        except NoNodeError:
            return None
        return JobResult.from_json(node.value)

    async def jobs(self, name: TopicName) -> tuple[str, ...]:
        """The jobs that left a result for the topic, in order; none for a topic that does not exist."""
        try:
            nodes = await self._store.children(self._layout.job_results(name))
        except NoNodeError:
            return ()
        return tuple(sorted(map(decode_name, nodes)))
