"""What people and machines see of a plan holds no secret, however the secret was written; placeholders stay readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2mgr.comparison.ownership import Ownership
from mm2mgr.json_values import to_json
from mm2mgr.plan.changes import Plan
from mm2mgr.plan.draft import plan_cluster, with_deletes
from mm2mgr.plan.planfile import write_plan
from mm2mgr.secrets import MASK
from tests.plan.test_plan import live, running, wanted

KEYS = st.sampled_from(
    [
        "producer.override.ssl.key.password",
        "source.cluster.ssl.keystore.key",
        "target.cluster.ssl.truststore.password",
        "source.admin.sasl.oauthbearer.client.credentials.client.secret",
        "my.api.key",
    ]
)
# No letter that JSON escapes, so that finding the text is finding the secret.
SECRET = st.text("abcXYZ0123456789!#%&()*+,-./:;<=>?@[]^_|~ ", min_size=10, max_size=40).map(lambda text: f"S3{text}S3")
JAAS = st.sampled_from(
    [
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="{}";',
        "x.PlainLoginModule required username='u' password='{}';",
        'x.OAuthBearerLoginModule required clientId="u" clientSecret="{}" scope="s";',
        'x.PlainLoginModule required password = "{}" username="u";',
        'x.PlainLoginModule required user_bob="u" Password="{}";',
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(KEYS, JAAS, st.lists(SECRET, min_size=4, max_size=4, unique=True))
def test_no_secret_is_in_the_plan_or_its_file(tmp_path: Path, key: str, jaas: str, secrets: list[str]) -> None:
    jaas_key = "producer.override.sasl.jaas.config"
    new, old, new_jaas, old_jaas = secrets
    desired = [wanted("n", **{key: new, jaas_key: jaas.format(new_jaas)}), wanted("c", **{key: new})]
    found = live("n", **{key: old, jaas_key: jaas.format(old_jaas)}) | live("gone", **{key: old})
    part = plan_cluster(Ownership("team"), "w", desired, running(found))
    plan = Plan("team", (with_deletes(part, running(found)),))
    assert plan.counts() == {"create": 1, "update": 1, "delete": 1, "no-op": 0, "blocked": 0}
    write_plan(tmp_path / "plan.json", plan, ["clusters"], None, None)
    for text in (json.dumps(to_json(plan)), repr(plan), repr(desired), (tmp_path / "plan.json").read_text()):
        assert not [secret for secret in secrets if secret in text]
    assert plan.writes[0].config is not None  # while what is written is not masked
    assert new in {change.config.get(key) for change in plan.writes if change.config}


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("ssl.key.password", "${file:/x:y}", "${file:/x:y}"),
        ("ssl.key.password", "${file:/x:y}z", MASK),
        ("sasl.jaas.config", 'M required password="${file:/x:y}";', 'M required password="${file:/x:y}";'),
        ("sasl.jaas.config", 'M required username="u" password="p";', f'M required username="u" password="{MASK}";'),
        ("topics", "orders", "orders"),
        ("ssl.keystore.certificate.chain", "PUBLIC", "PUBLIC"),
    ],
)
def test_what_is_no_secret_stays_readable(key: str, value: str, shown: str) -> None:
    plan = plan_cluster(Ownership("team"), "w", [wanted("n", **{key: value})], {})
    assert {one["key"]: one["after"] for one in to_json(plan)["changes"][0]["keys"]}[key] == shown
