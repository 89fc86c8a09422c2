"""Kafka key names that the declaration must know: keys for the access to a cluster, and prefixes that people must not
write.

Source: MirrorClientConfig.CLIENT_CONFIG_DEF of Kafka (the only names that `source.cluster.` and `target.cluster.`
pass).
"""

from __future__ import annotations

# Prefix -> names behind it.
_SECURITY = {
    "security": ("protocol",),
    "ssl": ("cipher.suites", "enabled.protocols", "engine.factory.class", "key.password", "protocol", "provider"),
    "ssl.endpoint.identification": ("algorithm",),
    "ssl.keymanager": ("algorithm",),
    "ssl.keystore": ("certificate.chain", "key", "location", "password", "type"),
    "ssl.secure.random": ("implementation",),
    "ssl.trustmanager": ("algorithm",),
    "ssl.truststore": ("certificates", "location", "password", "type"),
    "sasl": ("client.callback.handler.class", "jaas.config", "mechanism"),
    "sasl.kerberos": ("kinit.cmd", "min.time.before.relogin", "service.name"),
    "sasl.kerberos.ticket.renew": ("jitter", "window.factor"),
    "sasl.login": ("callback.handler.class", "class", "connect.timeout.ms", "read.timeout.ms"),
    "sasl.login.refresh": ("buffer.seconds", "min.period.seconds", "window.factor", "window.jitter"),
    "sasl.login.retry.backoff": ("max.ms", "ms"),
    "sasl.oauthbearer": ("clock.skew.seconds", "header.urlencode", "scope", "token.endpoint.url"),
    "sasl.oauthbearer.assertion": ("algorithm", "file", "private.key.file", "private.key.passphrase", "template.file"),
    "sasl.oauthbearer.assertion.claim": ("aud", "exp.seconds", "iss", "jti.include", "nbf.seconds", "sub"),
    "sasl.oauthbearer.client.credentials": ("client.id", "client.secret"),
    "sasl.oauthbearer.expected": ("audience", "issuer"),
    "sasl.oauthbearer.jwks.endpoint": ("refresh.ms", "retry.backoff.max.ms", "retry.backoff.ms", "url"),
    "sasl.oauthbearer.jwt": ("retriever.class", "validator.class"),
    "sasl.oauthbearer.scope": ("claim.name",),
    "sasl.oauthbearer.sub": ("claim.name",),
}
SECURITY_KEYS = frozenset(f"{prefix}.{name}" for prefix, names in _SECURITY.items() for name in names)

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# Prefix people know from connector JSON -> the block of a flow that stands for it.
PREFIX_BLOCKS = {
    "producer.override.": "record_producer",
    "source.consumer.": "source_consumer",
    "source.producer.": "offset_syncs_producer",
    "target.producer.": "offset_syncs_producer",
    "target.consumer.": "target_consumer",
    "source.admin.": "source_admin",
    "target.admin.": "target_admin",
    "source.cluster.": "the cluster's own entry under clusters:",
    "target.cluster.": "the cluster's own entry under clusters:",
    "consumer.override.": "source_consumer",
    "admin.override.": "target_admin",
    "consumer.": "source_consumer",
    "producer.": "record_producer",
    "admin.": "source_admin or target_admin",
}
CONNECTOR_KEYS_LIKE_PREFIXES = frozenset({"admin.timeout.ms", "consumer.poll.timeout.ms"})

# Connector keys that mm2mgr itself writes -> where people say it instead.
OWNED_CONNECTOR_KEYS = {
    "name": "names come from the aliases and the flow",
    "connector.class": "each connector type has its template",
    "tasks.max": "write tasks: {max: N}",
    "topics": "write topics: {include: [...]}",
    "topics.exclude": "write topics: {exclude: [...]}",
    "groups": "write checkpoints: {groups: {include: [...]}}",
    "groups.exclude": "write checkpoints: {groups: {exclude: [...]}}",
    "source.cluster.alias": "aliases are the keys under clusters:",
    "target.cluster.alias": "aliases are the keys under clusters:",
    "replication.policy.class": "write replication_policy:",
    "replication.policy.separator": "write separator:",
    "offset-syncs.topic.location": "write offset_syncs: {location: source|target}",
    "emit.offset-syncs.enabled": "write offset_syncs: {enabled: true|false}",
    "emit.checkpoints.enabled": "write checkpoints: true|false",
    "emit.heartbeats.enabled": "write heartbeats: true|false",
    "heartbeats.replication.enabled": (
        "one source connector of each pair carries the heartbeats; write heartbeats: true|false"
    ),
    "sync.group.offsets.enabled": "write checkpoints: {group_offsets: true|false}",
    "sync.topic.configs.enabled": "write sync: {topic_configs: true|false}",
    "sync.topic.acls.enabled": "write sync: {topic_acls: true|false}",
    "config.properties.exclude": "write sync: {exclude_properties: [...]}",
    "replication.factor": "write replication_factor: under clusters:",
    "offset-syncs.topic.replication.factor": "write replication_factor: under clusters:",
    "checkpoints.topic.replication.factor": "write replication_factor: under clusters:",
    "heartbeats.topic.replication.factor": "write replication_factor: under clusters:",
    "refresh.topics.interval.seconds": "write refresh_interval:",
    "refresh.groups.interval.seconds": "write refresh_interval:",
    "emit.checkpoints.interval.seconds": "write checkpoints: {interval: ...}",
    "sync.group.offsets.interval.seconds": "write checkpoints: {interval: ...}",
    "emit.heartbeats.interval.seconds": "write heartbeats: {interval: ...}",
    "key.converter": "MirrorMaker's records are bytes and any other converter alters them",
    "value.converter": "MirrorMaker's records are bytes and any other converter alters them",
    "header.converter": "MirrorMaker's records are bytes and any other converter alters them",
    "enabled": "pause the connector in Connect, or take the flow out of the tree",
    "replication.policy.internal.topic.separator.enabled": "not supported: internal topics follow separator:",
    "refresh.topics.enabled": "new topics are always looked for; write refresh_interval: to do it less often",
    "refresh.groups.enabled": "new groups are always looked for; write refresh_interval: to do it less often",
    "errors.tolerance": "a record that is skipped is a record that is lost",
    "exactly.once.support": "write delivery: exactly_once",
}

_IN_JAAS = (
    "it is a key of librdkafka; Java takes user and password in sasl.jaas.config:"
    ' \'org.apache.kafka.common.security.plain.PlainLoginModule required username="USER"'
    ' password="${file:/path:key}";\' (for SCRAM org.apache.kafka.common.security.scram.ScramLoginModule)'
)
_PEM = "it is a key of librdkafka; Java reads PEM files with"
_NOT_NEEDED = "it is a key of librdkafka, and Java needs none such: remove it"
# Keys of librdkafka (clients in C, Python, Go, .NET) -> what Java's clients have instead.
LIBRDKAFKA_KEYS = {
    "sasl.username": _IN_JAAS,
    "sasl.password": _IN_JAAS,
    **dict.fromkeys(
        ("username", "password", "user", "sasl.user"), _IN_JAAS.removeprefix("it is a key of librdkafka; ")
    ),
    "sasl.mechanisms": "it is a key of librdkafka; Java's is sasl.mechanism",
    "ssl.ca.location": f"{_PEM} ssl.truststore.location and ssl.truststore.type: PEM",
    "ssl.ca.pem": f"{_PEM} ssl.truststore.certificates and ssl.truststore.type: PEM",
    "ssl.certificate.location": (
        f"{_PEM} ssl.keystore.location (key and certificate in one file) and ssl.keystore.type: PEM"
    ),
    "ssl.key.location": f"{_PEM} ssl.keystore.location (key and certificate in one file) and ssl.keystore.type: PEM",
    "ssl.certificate.pem": f"{_PEM} ssl.keystore.certificate.chain and ssl.keystore.type: PEM",
    "ssl.key.pem": f"{_PEM} ssl.keystore.key and ssl.keystore.type: PEM",
    "enable.ssl.certificate.verification": (
        "it is a key of librdkafka; Java always checks certificates: trust the right one with ssl.truststore.location"
    ),
    "metadata.broker.list": "it is a key of librdkafka; write bootstrap_servers under clusters:",
    "enable.partition.eof": _NOT_NEEDED,
    "queued.max.messages.kbytes": "it is a key of librdkafka; Java's fetch.max.bytes limits what is fetched at once",
    "queued.min.messages": _NOT_NEEDED,
    "queue.buffering.max.ms": "it is a key of librdkafka; Java's is linger.ms",
    "queue.buffering.max.kbytes": "it is a key of librdkafka; Java's is buffer.memory, in bytes",
    "queue.buffering.max.messages": "it is a key of librdkafka; Java's is buffer.memory, in bytes",
    "batch.num.messages": "it is a key of librdkafka; Java's is batch.size, in bytes",
    "message.send.max.retries": "it is a key of librdkafka; Java's is retries",
    "message.timeout.ms": "it is a key of librdkafka; Java's is delivery.timeout.ms",
    "request.required.acks": "it is a key of librdkafka; Java's is acks",
    "compression.codec": "it is a key of librdkafka; Java's is compression.type",
    "fetch.message.max.bytes": "it is a key of librdkafka; Java's is max.partition.fetch.bytes",
    "socket.keepalive.enable": _NOT_NEEDED,
    "statistics.interval.ms": "it is a key of librdkafka; Java's clients report through JMX",
    "log_level": _NOT_NEEDED,
}
