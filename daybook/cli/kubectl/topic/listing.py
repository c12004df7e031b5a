"""All topics: what each broker has in memory, and what Topic resources name."""

from typing import Any

from daybook.cli.kubectl.api import Api
from daybook.cli.kubectl.topic.observe import topic_of
from daybook.cli.kubectl.topic.pods import PodAdmin
from daybook.cli.kubectl.topic.views import list_record
from daybook.client.broker_admin import AdminError
from daybook.client.broker_topics import pages
from daybook.client.topic_reports import TopicReport
from daybook.core.topics.name import TopicName
from daybook.metadata.partitions import partition_of


def list_all(
    api: Api, namespace: str, admin: PodAdmin, within: str = ""
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The topics in order of their names, of one `TENANT/NAMESPACE` if it is given; and why brokers did not answer.

    Raises ApiError if the Topic resources cannot be listed.
    """
    found: dict[str, tuple[str, TopicReport]] = {}
    failures: dict[str, str] = {}
    for broker in admin.urls:
        try:
            for page in pages(admin, broker):
                found |= {report.topic: (page.broker.broker, report) for report in page.topics}
        except AdminError as error:
            failures[broker] = str(error)
    resources = {topic_of(each): each for each in api.listing("Topic", namespace)}
    served = {_whole(name) for name in found}
    records = [
        list_record(name, owner, report, resources.get(_whole(name)))
        for name, (owner, report) in found.items()
    ]
    records += [list_record(name, "", None, each) for name, each in resources.items() if name not in served]
    prefix = f"persistent://{within}/" if within else ""
    return sorted(
        (each for each in records if each["topic"].startswith(prefix)), key=lambda each: str(each["topic"])
    ), failures


def _whole(name: str) -> str:
    """The partitioned topic that a topic is a partition of, or the topic itself."""
    found = partition_of(TopicName.parse(name))
    return name if found is None else str(found[0])
