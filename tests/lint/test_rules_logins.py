"""JAAS strings as Kafka's own parser reads them: each was given to JaasContext.loadClientContext of 3.6.2 and 4.3.1."""

from __future__ import annotations

import pytest

from tests.lint import made

KEY = "source.cluster.sasl.jaas.config"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SASL = {"source.cluster.security.protocol": "SASL_SSL", "source.cluster.sasl.mechanism": "PLAIN"}


def syntax(jaas: str) -> list[str]:
    return [hit.message for hit in made.hits("jaas-syntax", made.source({**SASL, KEY: jaas}))]


@pytest.mark.parametrize(
    ("jaas", "words"),
    [
        (f'{PLAIN} required username="u" password="p"', "does not end with a semicolon"),
        (f"{PLAIN} required username=u password=p/s;", "its semicolon is not seen"),
        (f'{PLAIN} required username="u" password="p;', "its semicolon is not seen"),
        (f'{PLAIN} required username="u" password="p";;', "behind its semicolon"),
        (f"{PLAIN};", "no control flag"),
        (f'{PLAIN} mandatory username="u" password="p";', "no control flag"),
        (f'{PLAIN} required username="u", password="p";', "commas between its options"),
        (f"{PLAIN} required username=u password=12345;", "needs double quotes"),
        (f"{PLAIN} required username=u password=-d;", "needs double quotes"),
        (f"{PLAIN} required username=u password=p@ss;", "needs double quotes"),
        (f'{PLAIN} required username="u" password="p"q";', "needs double quotes"),
        (f'{PLAIN} required username="a\nb" password="p";', "needs double quotes"),
        (f'{PLAIN} required username=\\"u\\" password=\\"p\\";', "escaped once too often"),
        (f'"{PLAIN} required username="u" password="p";"', "class of a login module"),
        ('username="u" password="p";', "class of a login module"),
        (f'KafkaClient {{ {PLAIN} required username="u" password="p"; }};', "section of a JAAS file"),
    ],
)
def test_kafka_refuses_it(jaas: str, words: str) -> None:
    (message,) = syntax(jaas)
    assert words in message


@pytest.mark.parametrize(
    "jaas",
    [
        f"{PLAIN} Required username='u' password=p-s$d.e;",
        f'{PLAIN} required username="u"password="p\\"q" ;\n',
        f'{PLAIN} required // why\n username = "u" password = "p";',
        f"{PLAIN} required username=ü password=_d;",
        f"{PLAIN} required username=u password=${{env:P}};",
        "${file:/s:jaas}",
    ],
)
def test_kafka_takes_it(jaas: str) -> None:
    assert syntax(jaas) == []


def test_it_is_not_read_without_sasl() -> None:
    assert not made.hits("jaas-syntax", made.source({KEY: "x", "source.cluster.security.protocol": "SSL"}))


@pytest.mark.parametrize(
    "jaas", ["s3cr3t", "s3cr3t required", f"{PLAIN} s3cr3t", f"{PLAIN} required password=1s3cr3t", "a=s3cr3t;"]
)
def test_nothing_of_a_broken_string_is_shown(jaas: str) -> None:
    found = [each for each in made.findings(made.source({**SASL, KEY: jaas})) if each.rule.startswith("jaas")]
    assert found
    assert "s3cr3t" not in f"{found}"


@pytest.mark.parametrize(
    ("module", "mechanism", "fits"),
    [
        ("plain.PlainLoginModule", "PLAIN", True),
        ("plain.PlainLoginModule", "plain", False),
        ("plain.PlainLoginModule", "AWS_MSK_IAM", False),
        ("scram.ScramLoginModule", "PLAIN", True),
        ("scram.ScramLoginModule", "GSSAPI", False),
        ("scram.ScramLoginModule", "${env:M}", True),
    ],
)
def test_which_module_logs_in_with_which_mechanism(module: str, mechanism: str, fits: bool) -> None:
    jaas = f'org.apache.kafka.common.security.{module} required username="u" password="p";'
    subject = made.source({**SASL, "source.cluster.sasl.mechanism": mechanism, KEY: jaas})
    assert bool(made.hits("jaas-module", subject)) is not fits


def test_somebody_elses_handler_may_know_the_password() -> None:
    subject = made.source({**SASL, KEY: f"{PLAIN} required;", "source.cluster.sasl.client.callback.handler.class": "X"})
    assert not made.hits("jaas-module", subject)
    assert made.hits("jaas-module", made.source({**SASL, KEY: f"{PLAIN} required;"}))
