"""What is asked of live clusters before a plan is judged: validations of configs, ids and quotas of Kafka clusters.

Placeholders are never sent, because config providers resolve them during validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import login_user
from mm2mgr.kafka.quotas import ProducerQuotas
from mm2mgr.live.questions import ClusterId, ConfigValidation, Quotas
from mm2mgr.live.snapshot import Steps
from mm2mgr.topology import Topology


def refusals(connect: str, config: Mapping[str, str]) -> Steps[dict[str, str]]:
    """Return why the worker that answers would refuse a config, by key: also for plugins that it lacks.

    Keys with a placeholder are left out, and not judged. What stops a validation at once stops a write, too: then the
    key is that of the class, or "". Raises Mm2mgrError when the worker does not tell.
    """
    sent = {key: value for key, value in config.items() if "${" not in value}
    if not sent.get("connector.class"):
        return {}
    question = ConfigValidation.from_config(connect, sent)
    snapshot = yield [question]
    try:
        answer = snapshot[question]
    except Mm2mgrError as error:
        if "Failed to find any class that implements Connector" in error.message:
            return {"connector.class": f"the worker has no plugin {sent['connector.class']}"}
        _, stopped, reason = error.message.partition("org.apache.kafka.common.config.ConfigException: ")
        if not stopped:
            raise
        return {"": reason}
    return {key: " ".join(reasons) for key, reasons in answer.errors.items() if key not in config.keys() - sent.keys()}


def cluster_ids(
    topology: Topology, aliases: Iterable[str], *, ask: bool = True
) -> Steps[tuple[dict[str, str], dict[str, str]]]:
    """Return cluster ids by alias, and why those are unknown that are; clusters without a declared id are asked if they
    are to be.
    """
    declared = {alias: topology.clusters[alias].model.cluster_id for alias in dict.fromkeys(aliases)}
    asked = [ClusterId(alias) for alias, cluster_id in declared.items() if ask and not cluster_id]
    snapshot = yield asked
    ids, unknown = {alias: cluster_id for alias, cluster_id in declared.items() if cluster_id}, dict[str, str]()
    for question in asked:
        answer = snapshot.get(question)
        if isinstance(answer, Mm2mgrError):
            unknown[question.cluster] = answer.message
        else:
            ids[question.cluster] = answer
    return ids, unknown


def quotas_of(topology: Topology, aliases: Iterable[str]) -> Steps[dict[str, ProducerQuotas | str]]:
    """Read producers' quotas of declared Kafka clusters; of one that does not report them, why not."""
    questions = [Quotas(alias) for alias in sorted(topology.clusters.keys() & set(aliases))]
    snapshot = yield questions
    answers = ((question.cluster, snapshot.get(question)) for question in questions)
    return {alias: each.one_line if isinstance(each, Mm2mgrError) else each for alias, each in answers}


def user_of(alias: str, jaas: str) -> tuple[str, str]:
    """Return the user of a login, as far as its placeholders have values on this machine, and why there is none."""
    try:
        return login_user(alias, jaas), ""
    except Mm2mgrError as error:
        return "", f"it is for the client id alone: {error.message}"
