"""What a broker refuses, and how the protocol calls it.

Each error carries a text for the person who reads the client's log: what happened, and what to do. The code decides what the client
does by itself: after ServiceNotReady it looks the topic up again and repeats the request.
"""

from typing import Final

from daybook.core.errors import (
    BacklogFullError,
    DaybookError,
    EntryTooLargeError,
    MetadataError,
    MetadataUnavailableError,
    NoSuchTopicError,
    NotEnoughBookiesError,
    NotEnoughReplicasError,
    NotOwnerError,
    QuorumError,
    RecoveryFailedError,
    TopicExistsError,
    TopicFullError,
    TopicNameError,
    TopicTerminatedError,
)
from daybook.wire.pulsar.errors import EntryChecksumError, PulsarError
from daybook.wire.pulsar.pulsar_pb2 import ServerError


class NotAllowedError(DaybookError):
    """The client asks for what this broker does not do, or not in this state."""


class AuthenticationError(DaybookError):
    """The client has not shown who it is."""


class AuthorizationError(DaybookError):
    """The client's role may not do this."""


class AlreadyRunningError(DaybookError):
    """What is asked for is being done already."""


class TooManyError(DaybookError):
    """A limit is reached (of connections, topics, subscriptions, requests)."""


class NotReadyError(DaybookError):
    """The topic cannot be served yet, or not any more: the client looks it up again."""


class NoSuchSubscriptionError(DaybookError):
    """The topic has no such subscription."""


class NoSuchConsumerError(DaybookError):
    """The connection has no such consumer."""


class ConsumerBusyError(DaybookError):
    """Other consumers have the subscription: one that is exclusive, of another type, or as many as may be."""


class ProducerBusyError(DaybookError):
    """Other producers have the name, or the topic: an exclusive one, or as many as may be."""


class ProducerFencedError(DaybookError):
    """Another exclusive producer has the topic: this one never publishes again."""


class IncompatibleSchemaError(DaybookError):
    """A schema that this broker does not take."""


class QuotaExceededError(DaybookError):
    """The backlog of the topic is as large as its quota; the client receives this at once."""


class QuotaHeldError(DaybookError):
    """The same, where the client's producer waits until there is room."""


_CODES: Final[tuple[tuple[type[DaybookError], ServerError], ...]] = (
    (NotAllowedError, ServerError.NotAllowedError),
    (AuthenticationError, ServerError.AuthenticationError),
    (AuthorizationError, ServerError.AuthorizationError),
    (TooManyError, ServerError.TooManyRequests),
    (NotReadyError, ServerError.ServiceNotReady),
    (NoSuchSubscriptionError, ServerError.SubscriptionNotFound),
    (NoSuchConsumerError, ServerError.ConsumerNotFound),
    (ConsumerBusyError, ServerError.ConsumerBusy),
    (ProducerBusyError, ServerError.ProducerBusy),
    (ProducerFencedError, ServerError.ProducerFenced),
    (IncompatibleSchemaError, ServerError.IncompatibleSchema),
    (QuotaExceededError, ServerError.ProducerBlockedQuotaExceededException),
    (QuotaHeldError, ServerError.ProducerBlockedQuotaExceededError),
    (TopicNameError, ServerError.InvalidTopicName),
    (NoSuchTopicError, ServerError.TopicNotFound),
    (TopicExistsError, ServerError.NotAllowedError),
    (NotOwnerError, ServerError.ServiceNotReady),
    (TopicTerminatedError, ServerError.TopicTerminatedError),
    (TopicFullError, ServerError.ProducerBlockedQuotaExceededException),
    (MetadataUnavailableError, ServerError.ServiceNotReady),
    (MetadataError, ServerError.MetadataError),
    (NotEnoughBookiesError, ServerError.PersistenceError),
    (NotEnoughReplicasError, ServerError.PersistenceError),
    (RecoveryFailedError, ServerError.PersistenceError),
    (QuorumError, ServerError.PersistenceError),
    (BacklogFullError, ServerError.TooManyRequests),
    (EntryTooLargeError, ServerError.NotAllowedError),
    (EntryChecksumError, ServerError.ChecksumError),
    (PulsarError, ServerError.NotAllowedError),
)
"""The first class that fits counts."""


def server_error(error: DaybookError) -> ServerError:
    """The protocol's name of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ServerError.UnknownError)
