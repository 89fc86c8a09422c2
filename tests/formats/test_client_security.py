"""What Strimzi's operator makes of `tls` and `authentication`; the right values are those of its own unit tests (1.2.0, OAuth 0.51.0)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.formats.recognise import ForeignFile, read_file
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import lint

CERTIFICATES = "tls: {trustedCertificates: [{secretName: ca, certificate: ca.crt}]}"
PASSWORD = "username: shaza, passwordSecret: {secretName: my-secret, password: pa55word}"
KEY = "certificateAndKey: {secretName: my-secret, certificate: my.crt, key: my.key}"
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="shaza" password="${strimzisecrets:ns/my-secret:pa55word}";'
PLAIN = SCRAM.replace("scram.Scram", "plain.Plain")
IAM = "software.amazon.msk.auth.iam.IAMLoginModule required;"
TRUST = {
    "ssl.truststore.certificates": "${strimzisecrets:ns/mm2-connect-tls-trusted-certs:ALIAS-ca.crt}",
    "ssl.truststore.type": "PEM",
}
OAUTH = (
    'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required oauth.client.id="mm2" '
    'oauth.token.endpoint.uri="https://idp/token" oauth.client.secret="${strimzidir:/opt/kafka/mm2-oauth/ALIAS/idp:secret}";'
)
CASES = {
    "": {"security.protocol": "PLAINTEXT"},
    "tls: {}": {"security.protocol": "SSL"},
    CERTIFICATES: {"security.protocol": "SSL", **TRUST},
    f"tls: {{}}, authentication: {{type: tls, {KEY}}}": {
        "security.protocol": "SSL",
        "ssl.keystore.certificate.chain": "${strimzisecrets:ns/my-secret:my.crt}",
        "ssl.keystore.key": "${strimzisecrets:ns/my-secret:my.key}",
        "ssl.keystore.type": "PEM",
    },
    f"authentication: {{type: plain, {PASSWORD}}}": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": PLAIN,
    },
    f"{CERTIFICATES}, authentication: {{type: scram-sha-512, {PASSWORD}}}": {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": SCRAM,
        **TRUST,
    },
    f"authentication: {{type: scram-sha-256, {PASSWORD}}}": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": SCRAM,
    },
    "authentication: {type: custom, config: {ssl.keystore.location: /mnt/keystore, not.allowed: foo}}": {
        "security.protocol": "PLAINTEXT",
        "ssl.keystore.location": "/mnt/keystore",
    },
    f"authentication: {{type: custom, sasl: true, config: {{sasl.mechanism: AWS_MSK_IAM, sasl.jaas.config: '{IAM}'}}}}": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": IAM,
    },
    "tls: {}, authentication: {type: oauth, clientId: mm2, tokenEndpointUri: 'https://idp/token', clientSecret: {secretName: idp, key: secret}}": {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": OAUTH,
        "sasl.login.callback.handler.class": "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
    },
}


def resource(source: str = "", target: str = "", *, config: str = "", is_v1: bool = False) -> str:
    """Return a resource with members of its source and of its target."""
    ends = {
        alias: f"{{alias: {alias}, bootstrapServers: '{alias}-1:9093'{f', {members}' if members else ''}}}"
        for alias, members in (("osl", source), ("rom", target))
    }
    connector = f"topicsPattern: orders, sourceConnector: {{tasksMax: 4, config: {{{config}}}}}"
    if is_v1:
        return f"""apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata: {{name: mm2, namespace: ns}}
spec:
  target: {ends["rom"]}
  mirrors:
    - {{source: {ends["osl"]}, {connector}}}
"""
    return f"""apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {{name: mm2, namespace: ns}}
spec:
  connectCluster: rom
  clusters:
    - {ends["osl"]}
    - {ends["rom"]}
  mirrors:
    - {{sourceCluster: osl, targetCluster: rom, {connector}}}
"""


def read(text: str) -> ForeignFile:
    return read_file(Path("mm2.yaml"), text.encode())


def found(text: str, folder: Path, *, severities: tuple[str, ...] = ("error", "warning")) -> list[Finding]:
    path = folder / "mm2.yaml"
    path.write_text(text)
    return [each for each in lint(read_files([path])) if each.severity in severities and each.rule != "known-bug"]


@pytest.mark.parametrize("is_v1", [False, True])
@pytest.mark.parametrize("members", CASES)
def test_connectors_have_the_security_that_the_operator_writes(members: str, is_v1: bool) -> None:
    [connector] = read(resource(members, members, is_v1=is_v1)).connectors
    for side, alias in (("source", "osl"), ("target", "rom")):
        prefix = f"{side}.cluster."
        own = {key.removeprefix(prefix): value for key, value in connector.config.items() if key.startswith(prefix)}
        ends = {"alias": alias, "bootstrap.servers": f"{alias}-1:9093"}
        assert own == ends | {key: value.replace("ALIAS", alias) for key, value in CASES[members].items()}


@pytest.mark.parametrize("members", CASES)
def test_workers_have_the_security_of_the_target(members: str) -> None:
    [connector] = read(resource("", members)).connectors
    assert connector.workers
    properties = connector.workers.properties
    for prefix in ("", "producer.", "consumer.", "admin."):
        for key, value in CASES[members].items():
            assert properties[prefix + key] == value.replace("ALIAS", "rom")
    assert "strimzisecrets" in properties["config.providers"]


def test_each_setting_is_at_the_line_of_its_origin() -> None:
    text = resource(CERTIFICATES, f"tls: {{}}, authentication: {{type: plain, {PASSWORD}}}")
    [connector] = read(text).connectors
    lines = text.splitlines()
    assert "alias: osl" in lines[connector.lines["source.cluster.ssl.truststore.certificates"].line - 1]
    assert "alias: rom" in lines[connector.lines["target.cluster.sasl.jaas.config"].line - 1]


@pytest.mark.parametrize("where", ["cluster", "connector"])
def test_what_config_says_wins_over_what_the_operator_makes(where: str) -> None:
    source = "tls: {}, config: {security.protocol: PLAINTEXT}" if where == "cluster" else "tls: {}"
    config = "" if where == "cluster" else "source.cluster.security.protocol: PLAINTEXT"
    [connector] = read(resource(source, config=config)).connectors
    assert connector.config["source.cluster.security.protocol"] == "PLAINTEXT"
    assert [entry.key for entry in connector.entries].count("source.cluster.security.protocol") == 1


def test_workers_of_a_kafka_connect_log_in_as_the_operator_writes_it() -> None:
    text = f"""apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaConnect
metadata: {{name: east, namespace: ns, annotations: {{strimzi.io/use-connector-resources: "true"}}}}
spec:
  bootstrapServers: rom-1:9093
  {CERTIFICATES}
  authentication: {{type: scram-sha-512, {PASSWORD}}}
  config: {{security.protocol: PLAINTEXT, config.providers: file, ssl.endpoint.identification.algorithm: ""}}
---
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaConnector
metadata: {{name: orders, labels: {{strimzi.io/cluster: east}}}}
spec:
  class: org.apache.kafka.connect.mirror.MirrorSourceConnector
  config: {{source.cluster.alias: osl}}
"""
    [connector] = read(text).connectors
    assert connector.workers
    properties = connector.workers.properties
    assert properties["producer.security.protocol"] == properties["security.protocol"] == "SASL_SSL"
    assert properties["producer.sasl.jaas.config"] == SCRAM
    certificates = "${strimzisecrets:ns/east-connect-tls-trusted-certs:ca.crt}"
    assert properties["admin.ssl.truststore.certificates"] == certificates
    assert properties["config.providers"] == "file,strimzienv,strimzifile,strimzidir,strimzisecrets"
    assert properties["ssl.endpoint.identification.algorithm"] == ""


PLAIN_LOGIN = f"authentication: {{type: plain, {PASSWORD}}}"
LOGIN = f"{CERTIFICATES}, authentication: {{type: scram-sha-512, {PASSWORD}}}"


def test_a_resource_with_logins_on_both_sides_is_right(tmp_path: Path) -> None:
    assert found(resource(LOGIN, LOGIN), tmp_path) == []


@pytest.mark.parametrize(
    ("text", "rule", "fix"),
    [
        (
            resource(LOGIN, config="producer.security.protocol: PLAINTEXT"),
            "unscoped-address",
            "remove producer.security.protocol",
        ),
        (
            resource(LOGIN, f"{CERTIFICATES}, {PLAIN_LOGIN}", config="source.consumer.sasl.mechanism: PLAIN"),
            "login-of-other-side",
            "source.consumer.sasl.mechanism=SCRAM-SHA-512",
        ),
        (resource(PLAIN_LOGIN), "login-unencrypted", "tls: {trustedCertificates: […]}"),
        (
            resource(f"authentication: {{type: tls, {KEY}}}"),
            "security-incomplete",
            "tls: {trustedCertificates: […]} in the cluster osl",
        ),
        (
            resource("authentication: {type: custom, config: {sasl.mechanism: PLAIN, sasl.jaas.config: '${x:y:z}'}}"),
            "security-incomplete",
            "authentication: {type: …}",
        ),
        (resource("authentication: {type: SCRAM-SHA-512}"), "operator-ignores", "write type: scram-sha-512"),
        (
            resource(target="authentication: {type: scram-sha-512, username: me}"),
            "operator-ignores",
            "write passwordSecret",
        ),
        (resource("tls: {}, authentication: {type: tls}"), "operator-ignores", "write certificateAndKey"),
        (
            resource("authentication: {type: custom, sasl: true, config: {ssl.truststore.location: /x}}"),
            "operator-ignores",
            "write ssl.truststore.location in the config of the cluster",
        ),
    ],
)
def test_rules_judge_what_the_operator_writes(text: str, rule: str, fix: str, tmp_path: Path) -> None:
    asked = [each for each in found(text, tmp_path) if each.rule == rule]
    assert asked
    assert all(fix in each.fix for each in asked), asked


def test_oauth_has_a_replacement_in_v1(tmp_path: Path) -> None:
    text = resource("authentication: {type: oauth}", is_v1=True)
    [finding] = [each for each in found(text, tmp_path) if each.rule == "operator-ignores"]
    assert "type: custom with sasl: true" in finding.fix
