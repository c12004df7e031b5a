"""What holds for a topic on its owner, read now and then.

Policies that contradict each other do not keep a topic from its clients: it is served with more copies than were asked for, never with
fewer (`daybook.core.topics.policy.applied`), and the log says so once.
"""

from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import Policy
from daybook.metadata.policies import PolicyManager
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger

log = get_logger(__name__)


class HeldPolicy:
    """The policy of one topic as it was read last."""

    __slots__ = ("_contradiction", "_name", "_policies", "_policy", "read_ms")

    def __init__(self, name: TopicName, policies: PolicyManager) -> None:
        """The broker's default, until it is read."""
        self._name = name
        self._policies = policies
        self._policy = policies.default
        self._contradiction = ""
        self.read_ms = 0
        """When it was read last, by the clock of `monotonic_ms`."""

    async def read(self) -> Policy:
        """Read what holds now. Raises NoSuchTopicError, MetadataError, MetadataUnavailableError, and PolicyError for a value that is wrong in itself."""
        policy, contradiction = await self._policies.applied(self._name)
        self.read_ms = monotonic_ms()
        if policy != self._policy:  # most topics share the default's object
            self._policy = policy
        if contradiction and contradiction != self._contradiction:
            log.warning(
                "policies contradict each other; the topic is served with more copies than they ask for",
                topic=str(self._name),
                why=contradiction,
                durability=policy.durability.value,
                degrade=policy.degrade.value,
                quorum=str(policy.quorum),
            )
        self._contradiction = contradiction
        return self._policy
