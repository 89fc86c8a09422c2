"""The corpus: configs with a known fault and configs that are right, through the readers and every rule. See corpus/README.md."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mm2mgr.connectors import ConnectorType
from mm2mgr.errors import SpecError
from mm2mgr.expand import expand
from mm2mgr.formats import properties
from mm2mgr.json_values import to_json
from mm2mgr.lint.findings import SEVERITIES, Finding, Rule, rules_of
from mm2mgr.lint.reading import Surroundings, read_files
from mm2mgr.lint.rules import BY_ID, RULES, files, find, lint
from mm2mgr.lint.subject import Estate, KafkaFacts, LinkFacts, Spot, Subject, WorkerFacts
from mm2mgr.lint.tree import from_tree, invalid
from mm2mgr.render import render
from mm2mgr.spec.files import load
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.reach import CLUSTER_KEYS
from tests.examples import sampled
from tests.lint import made

HERE = Path(__file__).parent / "corpus"
REPOSITORY = Path(__file__).parents[2]
SECRET = "s3cr3t"  # every made-up secret of the corpus holds this mark
CONVERTERS = tuple(f"{part}.converter" for part in ("key", "value", "header"))
MACRO = re.compile(
    r"@(?P<type>source|checkpoint|heartbeat|pair) (?P<from>\S+) (?P<to>\S+)(?: without (?P<without>.+))?"
)
HEALTHY_CONNECTOR = {"m.properties": "name=m\n@source A B\ntopics=orders\n"}
HEALTHY_WORKER = {
    "bootstrap.servers": "w1:9092",
    "group.id": "connect",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
}
TREE = re.compile(r"^(owner|flows|brokers|sizing):", re.MULTILINE)


OF_MANY_RELEASES = ("KAFKA-13719", "KAFKA-15800", "KAFKA-19012")
"""Known bugs whatever the config: only cases whose text names one are about it."""
Look = Callable[["Case"], list[Finding]]


@dataclass(frozen=True)
class Case:
    """One document of the corpus; `theme` is its file."""

    theme: str
    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.theme}-{self.data['case']}"

    @property
    def origin(self) -> str:
        return str(self.data["from"])

    @property
    def expected(self) -> list[Mapping[str, str]]:
        return list(self.data.get("expect", ()))

    def texts(self, *, fixed: bool = False) -> dict[str, str]:
        """Return the files of the case; `fixed` has each old text of its `fixed` replaced by the new one."""
        texts = dict(self.data.get("files", HEALTHY_CONNECTOR if "healthy_worker_with" in self.data else {}))
        for old, new in self.data["fixed"].items() if fixed else ():
            assert any(old in text for text in texts.values()), f"{self.name}: nothing to fix at {old!r}"
            texts = {file: text.replace(old, new) for file, text in texts.items()}
        return {file: expanded(text, file.rpartition(".")[2]) for file, text in texts.items()}

    def surroundings(self) -> Surroundings:
        wire, worker = self.data.get("wire"), dict(self.data.get("worker", {}))
        if of_its_own := self.data.get("healthy_worker_with"):
            worker["properties"] = {**HEALTHY_WORKER, **of_its_own}
        worker |= {name: frozenset(worker[name]) for name in ("plugins", "others") if name in worker}
        version = self.data.get("version")
        return Surroundings(
            version=str(version) if version else None,
            worker=WorkerFacts(**worker),
            wire=LinkFacts(**wire) if wire else None,
            source=KafkaFacts(**self.data.get("source", {})),
            target=KafkaFacts(**self.data.get("target", {})),
        )


def expanded(text: str, form: str = "properties") -> str:
    """Return a text with its `@source A B`, … lines written out: class, aliases, addresses, converters."""
    written = {"properties": "{}={}", "json": '"{}": "{}",'}.get(form)
    return "\n".join(line for each in text.split("\n") for line in _lines(each, written)) if written else text


def _lines(line: str, written: str) -> Iterator[str]:
    if line.strip() == "@bytes":
        yield from (written.format(key, "org.apache.kafka.connect.converters.ByteArrayConverter") for key in CONVERTERS)
    elif (found := MACRO.fullmatch(line.strip())) and found["type"] == "pair":
        source, target = found["from"], found["to"]
        yield f"clusters = {source}, {target}"
        yield from (f"{alias}.bootstrap.servers = {alias.lower()}1:9092" for alias in (source, target))
        yield f"{source}->{target}.enabled = true"
    elif found:
        left_out = (found["without"] or "").split()
        yield from (written.format(key, value) for key, value in _healthy(found).items() if key not in left_out)
    else:
        yield line


def _healthy(found: re.Match[str]) -> dict[str, str]:
    source, target = (f"{found[side].lower()}1:9092" for side in ("from", "to"))
    return {
        "connector.class": f"org.apache.kafka.connect.mirror.Mirror{found['type'].capitalize()}Connector",
        "source.cluster.alias": found["from"],
        "source.cluster.bootstrap.servers": source,
        "target.cluster.alias": found["to"],
        "target.cluster.bootstrap.servers": target,
        "producer.override.bootstrap.servers": target,
        **dict.fromkeys(CONVERTERS, "org.apache.kafka.connect.converters.ByteArrayConverter"),
    }


def cases(kind: str) -> list[Case]:
    return [
        Case(file.stem, data)
        for file in sorted((HERE / kind).glob("*.yaml"))
        for data in yaml.load_all(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
        if data
    ]


FAULTY, VALID = cases("faulty"), cases("valid")


def sample_of(chosen: Sequence[Case], per_rule: int = 2) -> list[Case]:
    """Return the first cases of each rule, and of those that expect none every fourth: what the gate holds where `make test-matrix` holds all."""
    seen: Counter[str] = Counter()
    sample = [case for case in chosen if not case.expected][::4]
    for case in chosen:
        rules = {expect["rule"] for expect in case.expected}
        if any(seen[rule] < per_rule for rule in rules):
            sample.append(case)
            seen.update(rules)
    return sample


def of_tree(paths: list[Path]) -> list[Finding]:
    try:
        spec = load(paths)
        topology = expand(spec)
    except SpecError as error:
        return invalid(error)
    return lint(from_tree(topology, render(topology), spec))


def findings(case: Case, folder: Path, *, fixed: bool = False) -> list[Finding]:
    """Write the files of a case and return what lint says of them, silenced findings left out."""
    if tree := case.data.get("tree"):
        return [each for each in of_tree([REPOSITORY / tree]) if each.silenced is None and not beside(case, each)]
    paths = []
    for name, text in case.texts(fixed=fixed).items():
        paths.append(folder / name)
        paths[-1].parent.mkdir(exist_ok=True)
        paths[-1].write_text(text, encoding="utf-8")
    if all(TREE.search(path.read_text(encoding="utf-8")) for path in paths):
        found = of_tree(paths)
    else:
        found = lint(read_files(paths, case.surroundings()))
    return [each for each in found if each.silenced is None and not beside(case, each)]


def beside(case: Case, finding: Finding) -> bool:
    """Tell whether a finding is that of a bug that many releases have, and the case is about something else."""
    bug = finding.message.partition(" ")[0]
    return bug in OF_MANY_RELEASES and bug not in str(case.data)


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Look:
    """Return what lint says of a case, found once."""
    known: dict[str, list[Finding]] = {}

    def of(case: Case) -> list[Finding]:
        if case.name not in known:
            known[case.name] = findings(case, tmp_path_factory.mktemp("case"))
        return known[case.name]

    return of


def told(found: list[Finding]) -> str:
    return "\n".join(f"{each.rule} @ {each.spot}: {each.message} | fix: {each.fix}" for each in found) or "nothing"


def placed(finding: Finding, key: str) -> bool:
    """Tell whether a finding is at a key: by its own word, or because the line that it names holds the key."""
    if finding.spot.key == key:
        return True
    if not (finding.spot.file and finding.spot.line):
        return False
    return key in Path(finding.spot.file).read_text(encoding="utf-8").split("\n")[finding.spot.line - 1]


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)
def test_faulty(case: Case, look: Look) -> None:
    """Every fault is found, where it is and with its fix, and nothing besides."""
    found = look(case)
    asked = {expect["rule"] for expect in case.expected}
    grave = Counter(each.rule for each in found if each.severity != "info" or each.rule in asked)
    assert grave == Counter(expect["rule"] for expect in case.expected), told(found)
    for expect in case.expected:
        mine = [each for each in found if each.rule == expect["rule"]]
        if "key" in expect:
            assert any(placed(each, expect["key"]) for each in mine), told(mine)
        assert any(expect.get("fix", "") in each.fix for each in mine), told(mine)
        assert any(expect.get("severity", each.severity) == each.severity for each in mine), told(mine)
    order = [SEVERITIES.index(each.severity) - SEVERITIES.index(BY_ID[each.rule].severity) for each in found]
    assert min(order) >= 0, told(found)


@pytest.mark.parametrize("case", VALID, ids=lambda case: case.name)
def test_valid(case: Case, look: Look) -> None:
    """Nothing is said against a config that is right; hints of severity info are free, unless the case refuses them."""
    found = [each for each in look(case) if each.severity != "info" or not case.data.get("hints", True)]
    assert not found, told(found)


@pytest.mark.parametrize("case", [case for case in FAULTY if "fixed" in case.data], ids=lambda case: case.name)
def test_the_fix_works(case: Case, tmp_path: Path) -> None:
    """With the text that the fix asks for, neither the fault is told any more nor another one."""
    asked = {expect["rule"] for expect in case.expected}
    found = [each for each in findings(case, tmp_path, fixed=True) if each.severity != "info" or each.rule in asked]
    assert not found, told(found)


@pytest.mark.parametrize("case", FAULTY + VALID, ids=lambda case: case.name)
def test_no_secret_and_always_a_fix(case: Case, look: Look) -> None:
    for each in look(case):
        assert each.message, each.rule
        assert each.fix.strip(), each.rule
        assert SECRET not in f"{each}{to_json(each)}", each.rule


def as_json(text: str, file: str) -> str:
    """Return a connector's properties as the JSON that people send to Connect."""
    return json.dumps({key: entry.value for key, entry in properties.last(properties.read(text, file)).items()})


OF_ONE_DIALECT = {rule.id for rule in rules_of(files)}
CONNECTORS = [
    case
    for case in FAULTY + VALID
    if case.texts()
    and all(file.endswith(".properties") and "connector.class" in text for file, text in case.texts().items())
    and not OF_ONE_DIALECT & {expect["rule"] for expect in case.expected}
    and "mm2mgr: silence" not in str(case.texts())
]


@pytest.mark.parametrize("case", CONNECTORS, ids=lambda case: case.name)
def test_json_is_judged_like_properties(case: Case, look: Look, tmp_path: Path) -> None:
    paths = []
    for file, text in case.texts().items():
        paths.append(tmp_path / file.replace(".properties", ".json"))
        paths[-1].write_text(as_json(text, file), encoding="utf-8")
    found = [each for each in lint(read_files(paths, case.surroundings())) if not beside(case, each)]
    assert Counter(each.rule for each in found) == Counter(each.rule for each in look(case)), told(found)


EVERYWHERE = tuple(replace(rule, needs=(), reads=None) for rule in RULES)


@sampled("case", sample_of(FAULTY + VALID), FAULTY + VALID, ids=lambda case: case.name)
def test_a_rule_that_is_passed_over_would_find_nothing(case: Case, tmp_path: Path) -> None:
    """The keys that rules name to be quick hide no finding."""
    if estate := estate_of(case, tmp_path):
        assert lint(estate) == lint(estate, EVERYWHERE)


class Reads(dict[str, str]):
    """A config that notes which of its keys are read."""

    def __init__(self, config: Mapping[str, str], noted: set[str]) -> None:
        super().__init__(config)
        self.noted = noted

    def get(self, key: str, default: Any = None) -> Any:
        self.noted.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self.noted.add(key)
        return super().__getitem__(key)

    def items(self) -> Any:
        self.noted.update(self)
        return super().items()

    values = items


BESIDE_CONFIG = {"name", *(field.name for field in fields(Subject))} - {"form", "worker", "spot"}


class Watched(Subject):
    """A connector that notes which of its keys and facts a rule reads."""

    def __getattribute__(self, name: str) -> Any:
        if name in {"config", "type"}:
            return getattr(super().__getattribute__("__dict__")["connector"], name)
        if name in BESIDE_CONFIG and (noted := super().__getattribute__("__dict__").get("noted")) is not None:
            noted.add(f"its {name}")
        return super().__getattribute__(name)

    @classmethod
    def of(cls, subject: Subject) -> tuple[Watched, set[str]]:
        noted: set[str] = set()
        watched = cls(**{field.name: getattr(subject, field.name) for field in fields(subject)})
        vars(watched)["connector"] = replace(subject.connector, config=Reads(subject.config, noted))
        vars(watched).update(kind=subject.kind, exactly_once=subject.exactly_once, noted=noted)
        vars(watched)["_values"] = Reads({key: value.strip() for key, value in subject.config.items()}, noted)
        return watched, noted


def estate_of(case: Case, folder: Path) -> Estate | None:
    """Return what the connectors' files of a case hold, None for a tree."""
    paths = [folder / name for name in case.texts()]
    for path, text in zip(paths, case.texts().values(), strict=True):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text, encoding="utf-8")
    is_tree = all(TREE.search(path.read_text(encoding="utf-8")) for path in paths)
    return None if is_tree else read_files(paths, case.surroundings())


@pytest.fixture(scope="module")
def connectors(tmp_path_factory: pytest.TempPathFactory) -> list[Subject]:
    """Return every connector of the corpus but those of mm2.properties."""
    estates = (estate_of(case, tmp_path_factory.mktemp("case")) for case in FAULTY + VALID)
    return [each for estate in estates if estate for each in estate.subjects if each.form != "dedicated"]


def test_a_rule_without_a_hit_has_read_only_what_it_names(connectors: list[Subject]) -> None:
    """Of connectors that are equal in what a rule `reads`, one stands for all: no other value may decide."""
    checked = 0
    for subject in connectors:
        for rule in RULES:
            allowed = rule.reads(subject.kind) if rule.reads and rule.asks(subject.kind) else None
            watched, noted = Watched.of(subject)
            if allowed is not None and rule.check and not list(rule.check(watched)):
                checked += 1
                beside = {key for key in noted - set(allowed) if key in subject.config or key.startswith("its ")}
                assert not beside, (rule.id, subject.spot)
    assert checked > 10_000


def test_connectors_that_are_alike_do_not_hide_each_others_findings(connectors: list[Subject]) -> None:
    def told_of(rules: Iterable[Rule]) -> list[Finding]:
        quick = [replace(rule, over=None) for rule in rules if rule.id in naming]
        return [each for each, _ in find(estate, quick)]

    place, workers = Spot(connect="east"), WorkerFacts()
    estate = Estate(tuple(replace(each, spot=place, worker=workers) for each in connectors))
    naming = {rule.id for rule in RULES if rule.reads}
    told_quickly = told_of(RULES)
    assert len(told_quickly) > 300
    assert told_quickly == told_of(EVERYWHERE)
    mixed = told_of(random.Random(1).sample(RULES, len(RULES)))
    assert sorted(map(str, mixed)) == sorted(map(str, told_quickly))


OF_SHARES = ("share.acknowledgement.mode", "share.acquire.mode")  # a consumer refuses them whatever their value is
BESIDE_ITS_DEFAULT = {"partial-topic-creation", "security-incomplete", "known-bug"}
"""What is wrong with a key whatever its value (nobody reads it, it is not asked for, another one is missing), or with the release."""


@sampled("version", ["3.6.2", "4.3.1"], ["3.6.2", "3.9.1", "4.3.1"])
@pytest.mark.parametrize("type_", ["source", "checkpoint", "heartbeat"])
def test_a_key_at_its_default_is_never_wrong(type_: ConnectorType, version: str) -> None:
    known = truth_keys.load()
    prefixes = {"": type_, "producer.override.": "producer", "target.admin.": "admin"}
    if type_ == "source":
        prefixes["source.consumer."] = "consumer"
    for prefix, scope in prefixes.items():
        client = {"producer": "record_producer", "consumer": "source_consumer"}.get(scope)
        own = known.framework_defaults(client, version) if client else {}
        for name in (each for each in known.names(scope, version) if "<" not in each and each not in OF_SHARES):
            key = known.find(scope, name, version)
            if value := own.get(name, key.default if key else None):
                found = made.findings(
                    made.connector(type_, {prefix + name: value}, worker=WorkerFacts(version=version))
                )
                grave = [each for each in found if each.severity != "info" and each.rule not in BESIDE_ITS_DEFAULT]
                assert not grave, told(grave)


REACH_NOBODY = {
    "": ("producer", "consumer"),
    **dict.fromkeys(
        ("source.cluster.", "target.cluster.", "offset-syncs.producer.", "target.producer."), ("producer",)
    ),
    **dict.fromkeys(("source.cluster.consumer.", "target.consumer.", "consumer.override."), ("consumer",)),
    "admin.override.": ("admin",),
}


@pytest.mark.parametrize("prefix", REACH_NOBODY)
def test_every_client_key_that_reaches_nobody_is_told(prefix: str) -> None:
    known = truth_keys.load()
    names = {name for scope in REACH_NOBODY[prefix] for name in known.names(scope, "4.3.1")}
    for name in names - (CLUSTER_KEYS if prefix.endswith(".cluster.") else set(known.names("source", "4.3.1"))):
        assert any(each.spot.key == prefix + name for each in made.findings(made.source({prefix + name: "1"}))), name


WITHOUT_KEY = {
    *("invalid-declaration", "kafka-unknown", "renamed", "silence-unexplained", "checkpoint-without-syncs"),
    *("replication-factor", "known-bug", "link-unused"),
}
"""What is about a whole connector, its workers, a declaration or a comment."""


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)
def test_a_finding_names_its_key_also_where_it_is_missing(case: Case, look: Look) -> None:
    grave = [each for each in look(case) if each.severity != "info"]
    assert {each.rule for each in grave if not to_json(each).get("key")} <= WITHOUT_KEY


def test_cases_are_told_apart_and_complete() -> None:
    names = Counter(case.name for case in FAULTY + VALID)
    assert [name for name, times in names.items() if times > 1] == []
    for case in FAULTY + VALID:
        assert case.data.get("why"), case.name
        assert case.origin, case.name
        assert len({"files", "tree", "healthy_worker_with"} & case.data.keys()) == 1, case.name
    assert all(case.expected for case in FAULTY)


def test_every_rule_has_a_faulty_case() -> None:
    asked = {expect["rule"] for case in FAULTY for expect in case.expected}
    assert asked <= BY_ID.keys(), f"unknown rules: {asked - BY_ID.keys()}"
    assert BY_ID.keys() <= asked, f"rules without a case: {BY_ID.keys() - asked}"


def test_the_corpus_is_large_enough() -> None:
    """The promise: at least 100 faulty configs, 40 of them from public reports, and 60 that are right."""
    reported = [case for case in FAULTY if re.search(r"[\w./-]+#\d+", case.origin)]
    assert len(FAULTY) >= 100
    assert len(reported) >= 40
    assert len(VALID) >= 60
    assert len([case for case in FAULTY if "fixed" in case.data]) >= 30
