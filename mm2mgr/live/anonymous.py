"""Made-up names in place of those of an estate, so that a snapshot can be given to strangers.

Names are replaced word by word: what is between `.`, `_`, `-` and other signs. A word has the same replacement
everywhere, so a pattern mostly matches the names it matched. Words of Kafka and of mm2mgr stay, such as `mm2`, `source`
or `heartbeats`, and so do numbers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from typing import Any

from mm2mgr import defaults
from mm2mgr.assignment_text import ASSIGNMENT_KEY, digest
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.questions import ConfigValidation, TextsByKey
from mm2mgr.live.snapshot import Question, Snapshot
from mm2mgr.secrets import JAAS_SHOWN, mask, mask_config
from mm2mgr.spec.scalars import check_pattern, is_name, matcher
from mm2mgr.truth import keys as truth_keys

Named = tuple[str, str]  # Connect cluster, connector
_UNITS = (
    r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)?"  # a time
    r"|(?P<class>(?<![\w.-])(?:org\.apache\.kafka|java\.(?:lang|util|net|io|nio|security)|javax\.(?:net|security))\."
    r"(?:[a-z]\w*\.)*[A-Z][\w$]*)"  # that everybody has
)
_NAMES = (
    r"|(?P<address>\b\d{1,3}(?:\.\d{1,3}){3}\b|(?<![\w:.])(?:(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}"
    r"|[0-9a-fA-F:]*::[0-9a-fA-F:.]*)(?:%\w+)?(?![\w:]))"
    r"|(?P<word>[^\W_]+)"
)
_TOKEN = re.compile(_UNITS + _NAMES)
_PATTERN_TOKEN = re.compile(
    _UNITS
    + r"|\(\?[a-zA-Z-]*[:)]|\\(?:[pP]\{\w+\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)"
    + r"|\[\^?(?:\\.|\w-\w|[^\w\s\]]|\w(?!\w))+\]"
    + _NAMES
)
# One backslash before a letter is that of `ACME\alice`, unless another sign shows that it is a pattern.
_IS_PATTERN = re.compile(r"^(?!User:)(?=\S*(?:[*+?{|^$]|\\[^A-Za-z]))\S*$")
_IS_AMOUNT = re.compile(r"\d+(?:\.\d+)?\s?(?:ms|s|sec|m|min|h|d|%|[kmgt]?i?b(?:it)?)?(?:\s?/\s?s|ps)?", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")
# What names somebody or something in a text that a machine wrote.
_SHAPES = [
    re.compile(shape)
    for shape in (
        r"(?<![\w.-])(?!\w+\.(?:java|scala):\d+\))[\w.-]+(?=:\d{2,5}\b|/\d+\.\d+\.|/<unresolved>)",  # a host
        r"UnknownHostException: [\w.-]+",
        r"(?<![\w.])(?:~|\.\.?|\b[A-Za-z]:)?[/\\][^\s\"'<>|,;()]+",  # a path, also that of a URL
        r"(?<![\w./-])[\w.-]+/[\w./-]*\.(?:ya?ml|json|jks|pem|p12|properties|conf|keytab)\b",
        r"\bUser:\w+=(?:\\.|[^,\]\n\"'\\])*(?:, ?\w+=(?:\\.|[^,\]\n\"'\\])*)*|\bUser:[^\s\]\"']+",
        rf"\b(?:{'|'.join(sorted(JAAS_SHOWN))})\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s;,]+)",
        r"\bat (?!(?:org\.(?:apache|eclipse|glassfish)|javax?|jdk|sun|kafka|scala|com\.(?:sun|fasterxml))\.)"
        r"[\w.$]+(?=\.[\w$<>]+\()",  # a class of a stack trace
    )
]
_TEXTS = frozenset(["trace", "message", "hint", "errors", "unread"])
"""The fields that hold texts of machines; all other texts may consist of names."""
SENTENCE_WORDS = frozenset(
    _WORD.findall("""
    a an and any are as at be because been but by can could did do does for from had has have if in into is it its may
    more no not now of off on only or other so some such than that the their them then there these they this to
    too until up was we were what when where which while will with without
    """)
)
_REFERENCES = frozenset(["kafka", "run_on", "owner"])
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprtvz" for vowel in "aeiou"]
_PUBLIC = """
    " mm2 mm2mgr internal heartbeats heartbeat checkpoints checkpoint offset offsets syncs sync consumer
    source sink target assigned journal silence history lease watch entry config configs status kafka cluster
    connect connector flow lane topic topics group groups local RUNNING PAUSED STOPPED FAILED UNASSIGNED RESTARTING
    DESTROYED yes no open literal prefixed allow deny User ANONYMOUS CN OU O C L ST STREET DC UID http https
    com org net java javax PLAIN SCRAM SHA SASL SSL PLAINTEXT GSSAPI OAUTHBEARER TLSv1 PEM JKS PKCS12 ccs ce cp SNAPSHOT
    true false null none all latest earliest compact delete file env dir directory hidden begun done failed
    create update adopt partition worker default identity transformation predicate id when who commit command
    from pair then created partial carried needs move gives behind
    owner flows action reason keys key state outcome error before after apply reconcile pause resume stop
    restart Describe DescribeConfigs Read Write Create Alter AlterConfigs Delete ClusterAction IdempotentWrite
    All required requisite sufficient optional password BEGIN END CERTIFICATE subject of the client certificate name
    behind this login MirrorSource MirrorSourceConnector MirrorCheckpoint MirrorCheckpointConnector MirrorHeartbeat
    MirrorHeartbeatConnector AssignedMirrorSource AssignedMirrorSourceConnector assignment digest rates unlisted hold
"""


def words_of(value: object) -> Iterator[str]:
    """Yield the words of all strings in plain values, of keys too."""
    if isinstance(value, str):
        yield from _WORD.findall(value)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from words_of(key)
            yield from words_of(part)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from words_of(part)


def kafka_words() -> frozenset[str]:
    """Return the words that stay: those of Kafka's config keys and defaults, and of what is in names for everybody."""
    table = truth_keys.load()
    keys = (key for scope in truth_keys.SCOPES for name in table.names(scope) for key in table.history(scope, name))
    public = {text for key in keys for text in (key.name, key.valid, key.default or "")}
    return frozenset(words_of([_PUBLIC, *JAAS_SHOWN, *public, *defaults.GROUPS_EXCLUDE, *defaults.TOPICS_EXCLUDE]))


class MadeUpNames:
    """The replacement of each word of an estate; it depends on `salt`, so that nobody finds a word by trying."""

    def __init__(self, salt: bytes, public: Collection[str]) -> None:
        self._salt = salt
        self._public = public
        self._private: set[str] = set()
        self._classes: set[str] = set()
        self._addresses: dict[str, str] = {}
        self._whole: dict[str, str] = {}
        self._assignments: dict[str, str] = {}

    def collect(self, value: object, *, is_text: bool = False, is_key: bool = False) -> None:
        """Take up the words of names in a value; of a text that a machine wrote, those of users, hosts and paths."""
        if isinstance(value, str):
            names = [match[0] for shape in _SHAPES for match in shape.finditer(value)] if is_text else [value]
            ignored = SENTENCE_WORDS if re.search(r"\s", value) else ()
            for match in (match for name in names for match in _tokens(name)):
                if match["class"] and is_key:
                    self._classes.add(match["class"])
                    self._private.update(_WORD.findall(match["class"]))
                elif (word := match["word"]) and (
                    (is_key and word == value) or not (_IS_AMOUNT.fullmatch(word) or word in ignored)
                ):
                    self._private.add(word)
        elif isinstance(value, Mapping):
            self._collect_assignment(value.get(ASSIGNMENT_KEY))
            for key, part in value.items():
                self.collect(key, is_key=True)
                self.collect(part, is_text=is_text or (key == "error" and "outcome" in value))
        elif isinstance(value, Mm2mgrError):
            self.collect([value.message, value.hint], is_text=True)
        elif is_dataclass(value) and not isinstance(value, type):
            for field in fields(value):
                if field.compare:
                    part = _without_secrets(getattr(value, field.name), field.repr)
                    self.collect(part, is_text=is_text or field.name in _TEXTS)
        elif isinstance(value, list | tuple | set | frozenset):
            for part in value:
                is_amount = isinstance(part, str) and _IS_AMOUNT.fullmatch(part) is not None
                self.collect(part, is_text=is_text, is_key=is_amount and isinstance(value, list))

    def _collect_assignment(self, assignment: object) -> None:
        if isinstance(assignment, str):
            self._assignments[digest(assignment)] = assignment

    @cached_property
    def _replacements(self) -> dict[str, str]:
        """The made-up word of each word, in the same order: which of several flows goes first may depend on it."""
        private = sorted(word for word in self._private if word not in self._public and not word.isdecimal())
        length, number, replacements = 3, -1, dict[str, str]()
        while len(_SYLLABLES) ** length < 8 * len(private):
            length += 1
        step = len(_SYLLABLES) ** length // max(1, len(private))
        for place, word in enumerate(private):
            salted = hashlib.sha256(self._salt + word.encode()).digest()
            number = max(number + 1, place * step + int.from_bytes(salted[:8]) % step)
            while (made_up := _made_up_word(number, length)) in self._private or made_up in self._public:
                number += 1
            replacements[word] = made_up
        return replacements

    @cached_property
    def _in_any_case(self) -> dict[str, str]:
        return {word.lower(): made_up for word, made_up in self._replacements.items()}

    def is_public(self, key: str) -> bool:
        """Tell whether a key is one of mm2mgr's own, not a name."""
        return all(word in self._public for word in _WORD.findall(key)) and key not in _REFERENCES

    def _word(self, word: str) -> str:
        if word in self._public:
            return word
        spelt_otherwise = word if word in SENTENCE_WORDS else self._in_any_case.get(word.lower(), word)
        return self._replacements.get(word, spelt_otherwise)

    def text(self, text: str) -> str:
        """Return a text with made-up names; the digest of an assignment becomes that of the assignment with them."""
        if text in self._assignments:
            return digest(self.text(self._assignments[text]))
        return self._whole.get(text) or "".join(self._replace_words(text))

    def _replace_words(self, text: str) -> Iterator[str]:
        end = 0
        for match in _tokens(text):
            yield text[end : match.start()]
            end = match.end()
            if match["address"]:
                yield self._address(match["address"])
            elif match["word"] or match[0] in self._classes:
                yield _WORD.sub(lambda word: self._word(word[0]), match[0])
            else:
                yield match[0]
        yield text[end:]

    def _address(self, address: str) -> str:
        number = len(self._addresses) + 1
        documented = f"2001:db8::{number:x}" if ":" in address else f"198.18.{number // 256 % 256}.{number % 256}"
        return self._addresses.setdefault(address, documented)

    def translate(self, pattern: str, names: Iterable[str]) -> bool:
        """Tell whether a pattern matches the made-up names that it should; else it becomes a list of them."""
        names = list(names)
        if is_name(pattern):
            return True
        matched: list[str] = []
        try:
            matches = matcher([pattern], [])
            matched = list(filter(matches, names))
            matches_now = matcher([check_pattern(self.text(pattern))], [])
            if all(matches(name) == matches_now(self.text(name)) for name in names):
                return True
        except (re.error, ValueError, OverflowError, RecursionError):
            pass  # neither Python nor Java reads it: the names say what it matched
        # Other signs of names, such as a comma, may be none of a pattern: each is any sign there.
        made_up = sorted(
            {re.sub(r"[^\w-]", lambda sign: "[.]" if sign[0] == "." else ".", self.text(n)) for n in matched}
        )
        self._whole[pattern] = "|".join(made_up) or f"nothing-of-{hashlib.sha256(self._salt).hexdigest()[:8]}"
        return False

    def align(self, declared: Mapping[Named, Mapping[str, str]], made_up: Mapping[Named, Mapping[str, str]]) -> None:
        """Let values of declared configs become those of the made-up tree: lists in them are in another order."""
        for (connect, connector), config in declared.items():
            new = mask_config(made_up.get((self.text(connect), self.text(connector)), {}))
            for key, value in mask_config(config).items():
                if key in new and self.text(value) != new[key]:
                    self._whole[value] = new[key]

    def value(self, value: Any) -> Any:  # noqa: PLR0911  one per shape
        """Return a value of the same type with made-up names; secrets are masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mm2mgrError):
            return Mm2mgrError(self.text(value.message), hint=value.hint and self.text(value.hint))
        if isinstance(value, Mapping):
            return {self.value(key): self.value(part) for key, part in value.items()}
        if is_dataclass(value) and not isinstance(value, type):
            stored = (field for field in fields(value) if field.compare and field.init)
            return replace(
                value,
                **{
                    field.name: self.value(_without_secrets(getattr(value, field.name), field.repr)) for field in stored
                },
            )
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.value, value))
        if isinstance(value, list | tuple | frozenset):
            return type(value)(map(self.value, value))
        return value


def _without_secrets(value: Any, is_shown: bool) -> object:
    """Return a field's value without secrets; what is not in its repr may be a config."""
    is_config = isinstance(value, Mapping) and all(isinstance(part, str) for part in value.values())
    return mask_config(value) if is_config and not is_shown else value


def _tokens(text: str) -> Iterator[re.Match[str]]:
    return (_PATTERN_TOKEN if _IS_PATTERN.match(text) else _TOKEN).finditer(text)


def _made_up_word(number: int, length: int) -> str:
    syllables: list[str] = []
    for _ in range(length):
        number, place = divmod(number, len(_SYLLABLES))
        syllables.insert(0, _SYLLABLES[place])
    return "".join(syllables)


def anonymous_tree(raw: Mapping[str, object], names: MadeUpNames) -> dict[str, object]:
    """Return what a tree declares with made-up names, secrets masked."""
    return {names.text(key): _anonymous_entry(key, part, names) for key, part in raw.items()}


def _anonymous_entry(key: str, value: object, names: MadeUpNames) -> object:
    if isinstance(value, dict):
        return {
            names.value(inner): _anonymous_entry(inner if isinstance(inner, str) else "", part, names)
            for inner, part in value.items()
        }
    if isinstance(value, list):
        return [
            names.text(mask(key, part)) if isinstance(part, str) else _anonymous_entry(key, part, names)
            for part in value
        ]
    is_amount = isinstance(value, str) and names.is_public(key) and _IS_AMOUNT.fullmatch(value)
    return names.text(mask(key, value)) if isinstance(value, str) and not is_amount else value


def anonymous_snapshot(snapshot: Snapshot, names: MadeUpNames) -> Snapshot:
    """Return a snapshot with made-up names, secrets masked."""
    answers: dict[Question[object], object] = {}
    for question, answer in snapshot.answers.items():
        asked = names.value(question.as_stored())
        if isinstance(question, ConfigValidation):
            config = mask_config(dict(question.config))
            asked = ConfigValidation.from_config(asked.cluster, config if _is_probe(question) else names.value(config))
        if isinstance(question, TextsByKey) and not isinstance(answer, Mm2mgrError):
            answers[asked] = {names.text(key): _json_text(text, names.value) for key, text in answer.items()}
        else:
            answers[asked] = names.value(answer)
    return replace(snapshot, answers=answers)


def collect_names(snapshot: Snapshot, names: MadeUpNames) -> None:
    """Take up the names in all questions and answers."""
    for question, answer in snapshot.answers.items():
        names.collect(question.cluster if _is_probe(question) else question.as_stored())
        is_text = isinstance(question, TextsByKey) and not isinstance(answer, Mm2mgrError)
        names.collect([_parse(text) for text in answer.values()] if is_text else answer)
        if is_text:
            names.collect(list(answer))


def _is_probe(question: Question[object]) -> bool:
    """Tell whether a validation is that of mm2mgr's own config, which has no names of the estate."""
    return isinstance(question, ConfigValidation) and "mm2mgr-probe" in dict(question.config).values()


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _json_text(text: str, change: Callable[[object], Any]) -> str:
    value = _parse(text)
    return change(text) if isinstance(value, str) and value == text else json.dumps(change(value), ensure_ascii=False)
