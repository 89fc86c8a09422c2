"""Compares Kafka and lint: `python -m tools.kafka_refusals.compare --pairs 100000 --whole 20000`."""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mm2mgr.connectors import Connector, ConnectorType
from mm2mgr.lint.findings import Rule
from mm2mgr.lint.rules import BY_ID, lint
from mm2mgr.lint.subject import Estate, Spot, Subject, WorkerFacts
from tools.kafka_refusals.cases import FOREIGN, TYPES, drawn, healthy, singles, with_foreign
from tools.kafka_refusals.kafka import WORKER, Oracle, Refused, asking

GOLDEN = Path(__file__).parents[2] / "tests" / "truth" / "refused.json"
ASKED = GOLDEN.with_name("asked.json")
RELEASES = ("3.6.2", "3.9.2", "4.0.2", "4.3.1")
# An error of these says that Kafka refuses something, and nothing else.
SAYING = (
    *("invalid-value", "missing-required", "idempotence-conflict", "delivery-below-request", "jaas-syntax"),
    *("policy-class", "store-type-missing", "exactly-once-isolation", "refused-by-code", "class-refused"),
    *("exactly-once-worker", "exactly-once-unsupported", "partial-topic-creation", "bad-address", "bad-pattern"),
    "interval-zero",
    "transform-needs-fields",
    *("exactly-once-transaction", "transform-incomplete", "plugin-settings"),
)
# These tell also of what Kafka refuses later, or of what other errors cover: they account for a refusal.
ALSO = (
    *("transactional-id", "jaas-module", "security-incomplete", "empty-topics"),
    *("checkpoint-without-syncs", "syncs-with-off", "override-insecure"),
)
# These also report what happens to records, which nobody sends here.
_OF_RECORDS = ("transform-needs-fields", "plugin-settings")
_FIRST = re.compile(r"the first record.* fails the task$|is skipped and lost$")


@dataclass(frozen=True)
class Difference:
    """A config about which Kafka and lint differ; not `judged` where lint is silent and Kafka refuses it only for a class of others."""

    release: str
    type: ConnectorType
    changes: Mapping[str, str]
    kafka: Refused
    lint: tuple[str, ...]
    judged: bool = True

    def __str__(self) -> str:
        changed = ", ".join(f"{key}={value!r}" for key, value in self.changes.items())
        kafka = "; ".join(f"{by}: {says}" for by, says in self.kafka) or "takes it"
        return f"{self.release} {self.type}: {changed}\n    Kafka: {kafka[:300]}\n    lint: {'; '.join(self.lint) or 'no error'}"


def rules() -> tuple[Rule, ...]:
    """Return the rules that speak of refusals."""
    return tuple(BY_ID[name] for name in (*SAYING, *ALSO) if name in BY_ID)


def subject(type_: ConnectorType, config: Mapping[str, str], release: str) -> Subject:
    """Return a connector on the workers that Kafka's classes are asked for."""
    worker = WorkerFacts(version=release, properties=WORKER, exactly_once=False, policy="All")
    return Subject(
        Connector(config.get("name", ""), type_, config=config), Spot(connect="c", connector="c"), worker=worker
    )


def errors(
    type_: ConnectorType, config: Mapping[str, str], release: str, every: Sequence[Rule]
) -> list[tuple[str, str]]:
    """Return the errors of lint that speak of refusals: rule and message."""
    found = lint(Estate((subject(type_, config, release),)), every)
    return [
        (each.rule, f"{each.rule}: {each.message}")
        for each in found
        if each.severity == "error" and not (each.rule in _OF_RECORDS and _FIRST.search(each.message))
    ]


def differences(
    kafka: Oracle, release: str, drawn_cases: Iterable[tuple[ConnectorType, Mapping[str, str]]], every: Sequence[Rule]
) -> Iterator[Difference | None]:
    """Yield for each case a difference, or None where Kafka and these rules agree."""
    remaining = iter(drawn_cases)
    while batch := list(islice(remaining, 200)):
        configs = [(type_, {**healthy(type_), **changes}) for type_, changes in batch]
        answers = kafka.refused(configs)
        for (type_, changes), (_, config), answer in zip(batch, configs, answers, strict=True):
            told = errors(type_, config, release, every)
            sure = any(rule in SAYING for rule, _ in told)
            agree = bool(answer) is sure or (answer and told)
            judged = bool(agree or told) or _is_refused_without_others(kafka, type_, changes)
            yield (
                None if agree else Difference(release, type_, changes, answer, tuple(text for _, text in told), judged)
            )


def _is_refused_without_others(kafka: Oracle, type_: ConnectorType, changes: Mapping[str, str]) -> bool:
    """Tell whether Kafka refuses a config also without the classes of others: its message may name none of them."""
    others = {key for key, value in changes.items() if FOREIGN in value}
    if any(key.startswith(("transforms.", "predicates.")) for key in others):
        others |= {key for key in changes if key.startswith(("transforms", "predicates"))}
    own = {key: value for key, value in changes.items() if key not in others}
    return not others or bool(kafka.refused([(type_, {**healthy(type_), **own})])[0])


def cases(release: str, seed: int, pairs: int, whole: int) -> Iterator[tuple[ConnectorType, Mapping[str, str]]]:
    """Draw pairs (and triples, one in five), then connectors with up to fifteen changed keys; in some a class of somebody else."""
    chance, others = random.Random(f"{seed} {release}"), random.Random(f"{seed} {release} others")
    for number in range(pairs + whole):
        type_ = chance.choice(TYPES)
        keys = chance.choice((2, 2, 2, 2, 3)) if number < pairs else chance.randint(4, 15)
        changes = drawn(chance, type_, release, keys)
        yield type_, with_foreign(others, type_, release, changes) if others.random() < 0.02 else changes


def every_single(release: str) -> Iterator[tuple[ConnectorType, Mapping[str, str]]]:
    """Return each key with each value."""
    for type_ in TYPES:
        yield from ((type_, changes) for changes in singles(type_, release))


def write_golden(seed: int, number: int) -> None:
    """Write what Kafka's classes say of some cases of each release, for tests without a JVM; equal ones once."""
    lines: dict[str, None] = {}
    for release in RELEASES:
        every = cases(release, seed, number * 3 // 4, number // 4)
        drawn_cases = [(type_, changes) for type_, changes in every if FOREIGN not in str(changes)]
        with asking(release) as kafka:
            answers = kafka.refused([(type_, {**healthy(type_), **changes}) for type_, changes in drawn_cases])
        for (type_, changes), answer in zip(drawn_cases, answers, strict=True):
            refused = [f"{by}: {_short(says)}" for by, says in answer]
            case = {"kafka": release, "type": type_, "changes": changes, "refused": refused[0] if refused else ""}
            lines[json.dumps(case)] = None
    GOLDEN.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def answer_asked() -> None:
    """Ask Kafka's classes again about the cases that people wrote, and write the answers beside them.

    `refused` is what the newest release says where every one says the same, else what each of those that refuse says.
    """
    asked = json.loads(ASKED.read_text(encoding="utf-8"))
    answers: list[dict[str, str]] = [{} for _ in asked]
    for release in RELEASES:
        with asking(release) as kafka:
            configs = [(case["type"], {**healthy(case["type"]), **case["changes"]}) for case in asked]
            for found, answer in zip(answers, kafka.refused(configs), strict=True):
                if answer:
                    by, says = answer[0]
                    found[release] = f"{by}: {_short(says)}"
    for case, found in zip(asked, answers, strict=True):
        case["refused"] = found[RELEASES[-1]] if len(found) == len(RELEASES) else found or ""
    ASKED.write_text("[\n" + ",\n".join(map(json.dumps, asked)) + "\n]\n", encoding="utf-8")


def _short(says: str) -> str:
    return says.rpartition(" < ")[2][:160]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print differences and counts; 1 where there is one."""
    parser = argparse.ArgumentParser(prog="python -m tools.kafka_refusals.compare")
    parser.add_argument("--kafka", action="append", metavar="RELEASE", help="only this release (repeatable)")
    parser.add_argument("--pairs", type=int, default=100_000, help="of all releases together")
    parser.add_argument(
        "--whole", type=int, default=20_000, help="connectors with many changes, of all releases together"
    )
    parser.add_argument("--singles", action="store_true", help="each key with each value, instead")
    parser.add_argument("--golden", type=int, metavar="N", help="write the answers to N cases of each release, instead")
    parser.add_argument("--asked", action="store_true", help="ask again about the cases of asked.json, instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=30, help="how many differences of a release to print")
    options = parser.parse_args(arguments)
    if options.golden:
        write_golden(options.seed, options.golden)
        return 0
    if options.asked:
        answer_asked()
        return 0
    releases = options.kafka or RELEASES
    total = 0
    for release in releases:
        started, counts = time.monotonic(), Counter[str]()
        share = len(releases)
        of_release = (
            every_single(release)
            if options.singles
            else cases(release, options.seed, options.pairs // share, options.whole // share)
        )
        with asking(release) as kafka:
            for found in differences(kafka, release, of_release, rules()):
                counts["cases"] += 1
                if found and not found.judged:
                    counts["not judged"] += 1
                elif found:
                    counts["differences"] += 1
                    if counts["differences"] <= options.show:
                        print(found, flush=True)
        total += counts["differences"]
        print(
            f"Kafka {release}, seed {options.seed}: {counts['cases']} configs, {counts['differences']} differences, "
            f"{counts['not judged']} not judged, {time.monotonic() - started:.0f} s",
            flush=True,
        )
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
