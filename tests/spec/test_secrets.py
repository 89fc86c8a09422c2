"""No secret in an error: whatever is wrong with a tree, its passwords, JAAS strings, keys and tokens are not repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2mgr.errors import SpecError
from mm2mgr.expand import expand
from mm2mgr.spec.files import load
from tests.spec.trees import BASE, FLOW, complaints

SECRET = "hunter2-hunter2"
JAAS = f'org.x.ScramLoginModule required username="u" password="{SECRET}";'


@pytest.mark.parametrize(
    "text",
    [
        BASE.replace("9092]}", f"9092], security: '{JAAS}'}}"),
        BASE.replace("9092]}", f"9092], security: {{sasl.jaas.config: ['{JAAS}']}}}}"),
        BASE.replace("9092]}", f"9092], security: {{protocol: '{JAAS}'}}}}"),
        BASE.replace("9092]}", f"9092], security: ['{JAAS}']}}"),
        BASE.replace("9092]}", f"9092], access: '{JAAS}'}}"),
        BASE.replace("kafka: b", f"kafka: b, auth: {SECRET}"),
        BASE.replace("kafka: b", f"kafka: b, auth: {{basic: {SECRET}}}"),
        BASE.replace("kafka: b", f"kafka: b, auth: {{bearer: [{SECRET}]}}"),
        BASE.replace("kafka: b", f"kafka: b, auth: {{basic: {{username: u, password: [{SECRET}]}}}}"),
        BASE.replace("kafka: b", f"kafka: b, auth: {{bearer: {SECRET}, basic: {{username: u, password: {SECRET}}}}}"),
        BASE.replace("http://localhost:8083", f"http://user:{SECRET}@localhost:8083"),
        BASE.replace("a1:9092", f"user:{SECRET}@a1:9092"),
        BASE + FLOW + f"    record_producer: {{ssl.key.password: [{SECRET}]}}\n",
        BASE + FLOW + f"    record_producer: {{ssl.key.pasword: {{x: {SECRET}}}}}\n",
        BASE + FLOW + f"    source_connector: {{topics: '{JAAS}'}}\n",
        BASE + FLOW + f"    record_producer: '{JAAS}'\n",
        BASE + FLOW + f"    pairs: '{JAAS}'\n",
    ],
)
def test_the_error_says_where_but_not_what(tmp_path: Path, text: str) -> None:
    found = complaints(tmp_path, x=text)
    assert all(one.startswith("x.yaml:") for one in found)
    assert SECRET not in "\n".join(found)


PLACES = (
    ("clusters", "a", "security"),
    ("clusters", "a", "security", "sasl.jaas.config"),
    ("clusters", "a", "security", "sasl.jaas.confg"),
    ("clusters", "a", "access", "security", "ssl.keystore.key"),
    ("connect", "w", "auth", "basic", "password"),
    ("connect", "w", "auth", "bearer"),
    ("flows", "f", "record_producer", "ssl.key.password"),
    ("flows", "f", "source_connector", "my.api.key"),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    st.sampled_from(PLACES),
    st.sampled_from(["'{}'", "'user:{}@host'", "[{}]", "{{x: {}}}", "[[{}]]"]),
    st.text("abcdefXYZ0123456789-_+/=", min_size=12, max_size=40).map(lambda text: f"s3cr{text}"),
)
def test_a_secret_of_any_shape(tmp_path: Path, path: tuple[str, ...], shape: str, secret: str) -> None:
    text = shape.format(secret)
    for key in reversed(path):
        text = f"{{{key}: {text}}}"
    # Nothing else of the tree is complete, so each of these is wrong somewhere.
    tree = (BASE + FLOW).replace("  a:", "  c:").replace("  w:", "  v:").replace("  f:", "  g:")
    (tmp_path / "x.yaml").write_text(tree)
    (tmp_path / "y.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        expand(load([tmp_path]))
    assert secret not in caught.value.message
