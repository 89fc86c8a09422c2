"""Whatever a template fills in is not judged, in any config of the corpus and at any key, and no fix changes it."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.lint.findings import rules_of
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import RULES, find, keys
from tests.examples import draw_examples

from .test_corpus import CONNECTORS, Case, as_json

ABOUT_KEYS = {"placeholder-unfilled", *(rule.id for rule in rules_of(keys))}
"""Rules about keys whatever their values are, and the one about placeholders."""
PARTS = ["{{ value }}", "{{ .Values.x }}:9092", "<VALUE>", "${VALUE}", "{% if x %}a{% endif %}", "a-{{ x }}, b"]


@draw_examples(200)
@given(case=st.sampled_from(CONNECTORS), at=st.integers(0, 60), part=st.sampled_from(PARTS))
def test_no_value_of_a_template_is_judged(case: Case, at: int, part: str) -> None:
    [(file, text), *_] = case.texts().items()
    config = json.loads(as_json(text, file))
    key = sorted(set(config) - {"connector.class", "name"})[at % (len(config) - 2)]
    config[key] = part
    estate = read_files([Path("m.json")], case.surroundings(), {"m.json": json.dumps(config).encode()})
    for finding, hit in find(estate, RULES):
        assert hit.key != key or finding.rule in ABOUT_KEYS, f"{key}={part}: {finding.rule} {finding.message}"
        assert not [edit for edit in hit.edits if edit.key == key and edit.value not in (None, part)], finding.rule
