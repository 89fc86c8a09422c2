"""`lint` reads a tree, files and Connect clusters into one estate, and runs the rules over it; it writes nothing.

`explain` says what a key does, what a rule is about, or what each client of a flow gets; it contacts nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict, TypeVar
from urllib.parse import urlsplit

from mm2mgr.connectors import ConnectorType
from mm2mgr.defaults import Origin
from mm2mgr.errors import InvalidArgument, Mm2mgrError, SpecError
from mm2mgr.formats.connectors import FoundConnector, Note
from mm2mgr.json_values import to_json
from mm2mgr.lint.findings import SEVERITIES, Finding, Rule, Severity
from mm2mgr.lint.fixing import patch
from mm2mgr.lint.reading import Surroundings, fill_in, is_tree, join_estates, read_files, read_worker
from mm2mgr.lint.rules import BY_ID, RULES
from mm2mgr.lint.rules import lint as run_rules
from mm2mgr.lint.subject import Estate, KafkaFacts, LinkFacts, Subject, WorkerFacts
from mm2mgr.lint.unjudged import NotJudged, not_judged
from mm2mgr.operations.workspace import Workspace
from mm2mgr.secrets import mask
from mm2mgr.spec.scalars import check_url
from mm2mgr.text import few, nearest
from mm2mgr.timing import wait_for
from mm2mgr.truth.bugs import BY_BUG, Bug
from mm2mgr.truth.explain import Explanation
from mm2mgr.truth.explain import explain as explain_key
from mm2mgr.truth.keys import Keys, kafka_version, load
from mm2mgr.truth.reach import Setting, configured_clients

if TYPE_CHECKING:
    from mm2mgr.connect.target import ConnectTarget
    from mm2mgr.connectors import Connector
    from mm2mgr.link_forecast import LinkForecast
    from mm2mgr.live.snapshot import Steps

Answer = TypeVar("Answer")
Document = dict[str, object]
USER, PASSWORD = "MM2MGR_CONNECT_USER", "MM2MGR_CONNECT_PASSWORD"


@dataclass(frozen=True)
class LintReport:
    """All findings, silenced ones too (they have the reason), what was read, and what could not be judged.

    `unread`: Connect clusters that were not; `notes`: what was left out of files and folders. As JSON it has silenced
    findings only where `shows_silenced`.
    """

    findings: tuple[Finding, ...]
    connectors: int
    looked_at: tuple[str, ...]
    unread: tuple[Mm2mgrError, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()
    shows_silenced: bool = False
    notes: tuple[Note, ...] = ()
    json_keys = "summary findings=shown_documents not_judged"

    @property
    def loud(self) -> list[Finding]:
        """The findings that are not silenced."""
        return [finding for finding in self.findings if finding.silenced is None]

    def fails(self, on: Severity | Literal["never"] = "error") -> bool:
        """Tell whether an input could not be read, or a finding is as severe as `on`."""
        return bool(self.unread) or any(finding.severity in as_severe_as(on) for finding in self.loud)

    @property
    def listed_findings(self) -> Sequence[Finding]:
        return self.findings if self.shows_silenced else self.loud

    @property
    def summary(self) -> Document:
        return {
            **{f"{word}s": sum(finding.severity == word for finding in self.loud) for word in SEVERITIES},
            "silenced": len(self.findings) - len(self.loud),
            "connectors": self.connectors,
            "looked_at": self.looked_at,
            "unread": [error.message for error in self.unread],
            "notes": [str(note) for note in self.notes],
        }

    @property
    def shown_documents(self) -> list[Document]:
        return [with_patch(finding) for finding in self.listed_findings]


def as_severe_as(on: Severity | Literal["never"]) -> tuple[Severity, ...]:
    """Return this severity and the worse ones; none for `never`."""
    return () if on == "never" else SEVERITIES[: SEVERITIES.index(on) + 1]


def with_patch(finding: Finding) -> Document:
    """Return the JSON of a finding, with its fix as JSON Patch of the connector's config."""
    return {**to_json(finding), "patch": patch(finding, finding.hit) if finding.hit else []}


def lint_rules() -> tuple[Rule, ...]:
    """Return every rule, in the order of the documentation."""
    return RULES


@dataclass(frozen=True)
class LintOptions:
    """What `lint` and `fix` read beside files, what they take for known, and which rules they leave out.

    `kafka` is the version to judge by, whatever the workers run; `worker` their properties file; `brokers`,
    `rtt_seconds` and `bytes_per_second` fill in what the tree does not have. `report` gets the line that a version is
    judged by when it is not a known one. `connects` are names in the tree or URLs, whose credentials come from
    $MM2MGR_CONNECT_USER and $MM2MGR_CONNECT_PASSWORD. With them the brokers that the connectors name are asked for
    cluster id and number of brokers, unless `ask_brokers` is false; without, no network is used.
    """

    kafka: str | None = None
    worker: Path | None = None
    rtt_seconds: float | None = None
    bytes_per_second: float | None = None
    brokers: int | None = None
    ignore: Sequence[str] = ()
    report: Callable[[OtherLine], None] = lambda event: None
    connects: Sequence[str] = ()
    ask_brokers: bool = True
    timeout_seconds: float = 30.0

    @property
    def rules(self) -> list[Rule]:
        """The rules but those to ignore; InvalidArgument for a name that is none."""
        for name in self.ignore:
            if name not in BY_ID:  # a misspelt one would silently ignore nothing
                near = nearest(name, BY_ID)
                hint = f"; nearest: {near[0]}" if near else "; see mm2mgr lint --rules"
                raise InvalidArgument("ignore", f"there is no rule '{name}'{hint}")
        return [rule for rule in RULES if rule.id not in self.ignore]

    def surroundings(self) -> Surroundings:
        """Return what the options say about files."""
        if self.bytes_per_second is not None and self.rtt_seconds is None:
            raise InvalidArgument("bytes_per_second", "needs rtt_seconds: the bytes in flight depend on both")
        version = workers_version(self.kafka, self.report) if self.kafka is not None else None
        cluster = KafkaFacts(brokers=self.brokers)
        wire = None if self.rtt_seconds is None else LinkFacts(self.rtt_seconds, self.bytes_per_second)
        workers = read_worker(self.worker) if self.worker else WorkerFacts()
        return Surroundings(version=version, worker=workers, wire=wire, source=cluster, target=cluster)


def lint(workspace: Workspace, files: Sequence[Path] = (), options: LintOptions = LintOptions()) -> LintReport:
    """Run the rules over files, trees and Connect clusters together; over the workspace's tree when none is named.

    A Connect cluster that cannot be read is in the report, unless it is all there is to read.
    """
    rules = options.rules
    read = read_inputs(workspace, files, options, options.surroundings())
    findings = [finding for finding in read.invalid if finding.rule not in options.ignore]
    findings += run_rules(read.estate, rules)
    findings += run_rules(Estate(read.other), [rule for rule in rules if rule.check])
    open_ = not_judged(read.estate.known_lines_only, {rule.id for rule in rules})
    notes = read.estate.notes
    return LintReport(tuple(findings), len(read.estate.subjects), read.looked_at, read.unread, open_, notes=notes)


@dataclass(frozen=True)
class Inputs:
    """What was read. `other` are connectors that run with another config than the declared one; `invalid` is a broken
    tree."""

    estate: Estate
    other: tuple[Subject, ...]
    invalid: tuple[Finding, ...]
    unread: tuple[Mm2mgrError, ...]
    looked_at: tuple[str, ...]


def read_inputs(
    workspace: Workspace, paths: Sequence[Path], options: LintOptions, surroundings: Surroundings
) -> Inputs:
    """Read trees, files and Connect clusters into one estate; the workspace's tree where none is named."""
    trees = tuple(path for path in dict.fromkeys(paths) if is_tree(path))
    files = [path for path in dict.fromkeys(paths) if path not in trees]
    if trees:
        workspace = replace(workspace, files=trees)
    elif not files and not options.connects:
        trees = workspace.files
    targets = _targets(workspace, options.connects)
    declared, invalid = _tree(workspace, surroundings) if trees else ((), ())
    live, unread = _live(workspace, targets, options.timeout_seconds) if targets else ([], {})
    if len(unread) == 1 and not trees and not files and not live:
        raise next(iter(unread.values()))
    estates, other = join_estates(
        [*declared, *([read_files(files, surroundings, workspace.contents)] if files else [])],
        [fill_in(estate, surroundings) for estate in live],
    )
    estate = Estate(
        tuple(subject for part in estates for subject in part.subjects),
        tuple(file for part in estates for file in part.files),
        complete=all(part.complete for part in estates) and not (unread or invalid),
        logins=tuple(login for part in estates for login in part.logins),
        unused_links=tuple(link for part in estates for link in part.unused_links),
        limits=tuple(limit for part in estates for limit in part.limits),
        notes=tuple(note for part in estates for note in part.notes),
    )
    if live and options.ask_brokers and workspace.snapshot is None:
        from mm2mgr.lint.workers import ask_brokers
        from mm2mgr.live.reach import Limits
        from mm2mgr.live.read import Clusters, run_steps

        of_tree = bool(declared) or any("://" not in name for name in options.connects)
        clusters = workspace.topology.clusters if of_tree else {}
        count = len(estate.subjects)
        steps = ask_brokers((*estate.subjects, *other), clusters.values())
        asked, _ = wait_for(run_steps(steps, Clusters(kafkas=clusters), Limits()))
        estate, other = replace(estate, subjects=asked[:count]), asked[count:]
    looked_at = (*map(str, (*trees, *files)), *(name for name in targets if name not in unread))
    return Inputs(estate, other, invalid, tuple(unread.values()), looked_at)


def _tree(workspace: Workspace, surroundings: Surroundings) -> tuple[tuple[Estate, ...], tuple[Finding, ...]]:
    from mm2mgr.lint.tree import from_tree, invalid

    try:
        return (
            fill_in(
                from_tree(workspace.topology, workspace.connectors, workspace.spec, workspace.contents), surroundings
            ),
        ), ()
    except SpecError as error:
        return (), tuple(invalid(error))


def _live(
    workspace: Workspace, targets: Mapping[str, ConnectTarget], timeout_seconds: float
) -> tuple[list[Estate], dict[str, Mm2mgrError]]:
    from mm2mgr.lint.workers import read_estate_of

    answers, unread = _ask_each(workspace, targets, timeout_seconds, read_estate_of)
    return list(answers.values()), unread


def running_connectors(
    workspace: Workspace, connects: Sequence[str], timeout_seconds: float = 30.0
) -> tuple[dict[str, list[FoundConnector]], dict[str, Mm2mgrError]]:
    """Return every MirrorMaker connector on Connect clusters, by name in the tree or URL, whoever owns it.

    Brokers that they name are asked for their cluster id. The errors are those of Connect clusters that
    could not be read. For credentials of a URL see `LintOptions`.
    """
    from mm2mgr.lint.workers import read_running_connectors

    targets = _targets(workspace, connects)
    return _ask_each(workspace, targets, timeout_seconds, read_running_connectors)


def _ask_each(
    workspace: Workspace,
    targets: Mapping[str, ConnectTarget],
    timeout_seconds: float,
    read: Callable[[str], Steps[Answer]],
) -> tuple[dict[str, Answer], dict[str, Mm2mgrError]]:
    from mm2mgr.live.reach import Limits
    from mm2mgr.live.read import Clusters, run_steps
    from mm2mgr.live.snapshot import or_error, side_by_side

    clusters = Clusters({target.name: target for target in targets.values()})
    names = list(clusters.connects)
    steps = side_by_side(*(or_error(read(name)) for name in names))
    answers, _ = wait_for(run_steps(steps, clusters, Limits(connect_seconds=timeout_seconds), workspace.snapshot))
    by_target = dict(zip(names, answers, strict=True))
    by_name = {name: by_target[target.name] for name, target in targets.items()}
    unread = {name: answer for name, answer in by_name.items() if isinstance(answer, Mm2mgrError)}
    return {name: answer for name, answer in by_name.items() if not isinstance(answer, Mm2mgrError)}, unread


def _targets(workspace: Workspace, names: Sequence[str]) -> dict[str, ConnectTarget]:
    """Return each Connect cluster once, whether it is named as in the tree, by a URL, or by both."""
    targets: dict[str, ConnectTarget] = {}
    for name in sorted(names, key=lambda name: "://" in name):  # a name brings its credentials
        target = _target(workspace, name)
        if all(set(target.urls).isdisjoint(other.urls) for other in targets.values()):
            is_taken = any(target.name == other.name for other in targets.values())  # two paths of one gateway
            targets[name] = replace(target, name=name) if is_taken else target
    return targets


def _target(workspace: Workspace, name: str) -> ConnectTarget:
    from mm2mgr.connect.target import BasicAuth, ConnectTarget
    from mm2mgr.live.endpoints import connect_target

    if "://" in name:
        try:
            check_url(name)
        except ValueError as error:
            words = str(error).replace("auth: {basic: {username: …, password: …}}", f"${USER} and ${PASSWORD}")
            raise InvalidArgument("connect", f"{'should be ' * words.startswith('a ')}{words}") from error
        user, password = os.environ.get(USER), os.environ.get(PASSWORD)
        if bool(user) != bool(password):
            raise Mm2mgrError(f"only one of ${USER} and ${PASSWORD} is set", hint="set both, or none")
        return ConnectTarget(_host(name), (name,), BasicAuth(user, password) if user and password else None)
    if re.search(r":/|:\d+(/|$)", name):
        address = name.rpartition(":/")[2].lstrip("/")
        raise InvalidArgument("connect", f"a URL begins with http:// or https://: write http://{address}")
    connects = workspace.topology.connects
    if name not in connects:
        near = nearest(name, connects)
        meant = f"did you mean {near[0]}? " if near else ""
        hint = f"{meant}there are: {', '.join(connects)}; or give a URL: http://…"
        raise Mm2mgrError(f"the tree has no Connect cluster '{name}'", hint=hint)
    if workspace.snapshot is not None:  # nobody is asked: no credentials are needed
        return ConnectTarget(name, tuple(connects[name].model.url))
    return connect_target(connects[name])


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "--connect"
    except ValueError:
        return "--connect"


_TYPES: tuple[ConnectorType, ...] = ("source", "checkpoint", "heartbeat")


@dataclass(frozen=True)
class OtherLine:
    """A Kafka version is none of the known `lines` (such as 3.9), and judged by one of them."""

    version: str
    judged_by: str
    lines: tuple[str, ...]


class ClientSetting(TypedDict):
    """One setting of a client, masked; `written_as` is the key that sets it, None for a default."""

    key: str
    value: str
    origin: str
    written_as: str | None


class ClientSettings(TypedDict):
    """The settings of one client; `below` are prefixes of the workers' properties that outrank what Connect sets."""

    client: str
    kind: str
    side: str
    below: list[str]
    values: list[ClientSetting]


class ConnectorClients(TypedDict):
    """What each client of a connector gets; of a flow's source connector also what its link allows.

    `file` is where the connector was read, if that is no tree.
    """

    connector: str
    type: str
    connect: str
    kafka: str
    clients: list[ClientSettings]
    link: NotRequired[LinkForecast]
    catch_up: NotRequired[str]
    file: NotRequired[str]


Explained = Explanation | Rule | Bug | list[ConnectorClients]
"""What a key does, a rule of lint, a known bug, or the clients of a flow by connector."""


def explain(
    workspace: Workspace,
    name: str,
    options: LintOptions = LintOptions(),
    *,
    on: str | None = None,
    everything: bool = False,
) -> Explained:
    """Explain a known bug, a key, however it is spelled, else the rule, else the flow of this name. Mm2mgrError when
    there is none.

    `on` is a connector type or class (None: all three), `options.kafka` the workers' version (None: the newest known
    line). With `everything` a flow's clients are shown with Kafka's defaults too.
    """
    keys = load()
    types, version = _types(on), workers_version(options.kafka, options.report)
    if name.upper().startswith(_ISSUE):
        return _bug(name.upper())
    try:
        return explain_key(name, types, version, keys)
    except Mm2mgrError as unknown:
        if name in BY_ID:
            return BY_ID[name]
        connectors = _connectors(workspace, name)
        if not connectors:
            if not (near := nearest(name, BY_ID, 0.75)):
                raise
            raise Mm2mgrError(unknown.message, hint=f"nearest rule of lint: {near[0]}") from None
    from mm2mgr.link_forecast import outlook  # only flows have one

    exactly_once = {name for name, connect in workspace.topology.connects.items() if connect.exactly_once}
    flows = {flow.id: flow for flow in workspace.topology.flows}
    explained = []
    for connector in connectors:
        if connector.type in types:
            clients = _clients(connector, version, keys, connector.connect in exactly_once, everything=everything)
            flow = flows[connector.flows[0]] if connector.type == "source" else None
            if flow and (forecast := outlook(flow)):
                clients["link"] = forecast
            if flow and flow.catch_up:
                clients["catch_up"] = flow.catch_up.words
            explained.append(clients)
    return explained


def explain_files(
    files: Sequence[Path],
    name: str,
    options: LintOptions = LintOptions(),
    *,
    on: str | None = None,
    everything: bool = False,
) -> list[ConnectorClients]:
    """Return what each client of a connector gets that files and folders of another tool declare; see `explain`.

    `name` is a connector's, or a pair `A->B`. SpecError for what cannot be read, Mm2mgrError where there is none.
    """
    from mm2mgr.connectors import Connector
    from mm2mgr.formats.sources import read_sources

    every = [connector for connector in read_sources(files).connectors if connector.form != "mirrormaker1"]
    named = [connector for connector in every if name in (connector.name, _pair_of(connector))]
    if not named:
        names = list(dict.fromkeys(name for connector in every for name in (connector.name, _pair_of(connector))))
        near = nearest(name, names)
        hint = f"did you mean {near[0]}?" if near else f"there are: {few(names)}"
        raise Mm2mgrError(f"no connector and no pair '{name}' is in these files", hint=hint)
    explained: list[ConnectorClients] = []
    for found in named:
        if (type_ := found.type) and type_ in _types(on):
            workers = found.workers
            version = workers_version(options.kafka or (workers.version if workers else None), options.report)
            origins = {key: Origin("file", ":".join(map(str, found.place_of(key)))) for key in found.lines}
            connector = Connector(found.name, type_, found.owner, config=found.config, origins=origins)
            clients = _clients(
                connector, version, load(), bool(workers and workers.exactly_once), everything=everything
            )
            explained.append({**clients, "file": found.file})
    return explained


def _pair_of(connector: FoundConnector) -> str:
    return "->".join(connector.config.get(f"{side}.cluster.alias", "") for side in ("source", "target"))


_ISSUE = "KAFKA-"


def _bug(name: str) -> Bug:
    if name not in BY_BUG:
        hint = "the known ones: docs/reference/known-bugs.md"
        raise Mm2mgrError(
            f"{name} is none of the {len(BY_BUG)} issues known here that concern MirrorMaker's connectors", hint=hint
        )
    return BY_BUG[name]


def workers_version(kafka: str | None, report: Callable[[OtherLine], None]) -> str:
    """Return the Kafka release that is meant by a line (3.9), a vendor's version (7.9.0-ccs) or a release; None: the
    newest."""
    keys = load()
    version = (kafka_version(kafka) or kafka) if kafka is not None else keys.lines[-1]
    try:
        line = keys.line(version)
    except ValueError as error:
        is_version = kafka_version(version) is not None  # as a version, but of a line before the oldest one
        reason = str(error) if is_version else f"'{version}' is not a version such as 3.9 or 4.3.1"
        raise InvalidArgument("kafka", reason) from error
    if not f"{version}.".startswith(f"{line}."):
        report(OtherLine(version, line, keys.lines))
    return keys.releases.get(version, version)


def _types(on: str | None) -> tuple[ConnectorType, ...]:
    if on is None:
        return _TYPES
    word = on.rpartition(".")[2].lower().removesuffix("connector").removeprefix("mirror")
    types = tuple(type_ for type_ in _TYPES if type_ == word)
    if not types:
        raise InvalidArgument("on", f"'{on}' is not one of {', '.join(_TYPES)}")
    return types


def _connectors(workspace: Workspace, name: str) -> Sequence[Connector]:
    if not any(path.exists() for path in workspace.files):
        return []
    topology = workspace.topology  # the errors of a broken tree are raised here
    try:
        flows = topology.select(name)
    except Mm2mgrError:
        if "->" in name:  # meant as a flow: the error lists those there are
            raise
        return []
    return workspace.connectors_of(flows)


def _clients(of: Connector, version: str, keys: Keys, exactly_once: bool, *, everything: bool) -> ConnectorClients:
    clients: list[ClientSettings] = []
    setting = Setting.from_config(of.config, version, exactly_once=exactly_once)
    for client in configured_clients(of.type, of.config, setting).values():
        values = [*client.values(keys), *(client.unset_values(keys) if everything else ())]
        clients.append(
            {
                "client": client.client.name,
                "kind": client.client.kind,
                "side": client.client.side,
                "below": [f"{prefix}*" for prefix in client.client.worker_prefixes],  # of the workers, unknown here
                "values": [
                    {
                        "key": value.key,
                        "value": mask(value.key, value.value),
                        "origin": str(of.origins.get(value.written_as or "", value.origin)),
                        "written_as": value.written_as,
                    }
                    for value in values
                ],
            }
        )
    return {"connector": of.name, "type": of.type, "connect": of.connect, "kafka": version, "clients": clients}
