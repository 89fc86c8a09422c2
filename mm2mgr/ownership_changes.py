"""The lists of connectors that change hands (`adopt:`, `moved:`, `release:`) as values, checked against flows. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from mm2mgr.spec.files import Spec
from mm2mgr.spec.models import DedicatedPair, MovedFlow
from mm2mgr.spec.places import PathKey
from mm2mgr.spec.values import FLOW_ID
from mm2mgr.text import is_addressable, nearest
from mm2mgr.topology import Flow, ListedConnector, Moved, connector_names

Problem = Callable[[PathKey, str], None]
Unknown = Callable[[PathKey, str, str, Iterable[str]], None]


_Listed = tuple[ListedConnector, ...]


def handed_over(
    spec: Spec, flows: Sequence[Flow], problem: Problem, unknown: Unknown
) -> tuple[_Listed, tuple[Moved, ...], _Listed]:
    """Return what is adopted, moved and released, as written; `problem` and `unknown` get what is wrong, and where."""
    reading = _Reading(spec, flows, problem, unknown)
    return tuple(reading.adoptions()), tuple(reading.moves()), tuple(reading.releases())


def _is_pair(text: str) -> bool:
    source, arrow, target = text.partition("->")
    return bool(source and arrow and target)


class _Reading:
    def __init__(self, spec: Spec, flows: Sequence[Flow], problem: Problem, unknown: Unknown) -> None:
        self.spec, self.tree, self.problem, self.unknown = spec, spec.tree, problem, unknown
        self.flows: Mapping[str, Flow] = {flow.id: flow for flow in flows}
        self.declared = {(flow.connect.name, str(name)): flow for flow, _, name in connector_names(flows)}

    def place(self, *path: str | int) -> str:
        place = self.spec.place(*path)
        return f"{place.file}:{place.line}"

    def known_once(self, path: PathKey, named: tuple[str, str], places: dict[tuple[str, str], PathKey]) -> bool:
        """Report a Connect cluster that is not declared, and an entry that is there already."""
        connect, connector = named
        if connect not in self.tree.connect:
            self.unknown((*path, "connect"), "Connect cluster", connect, self.tree.connect)
            return False
        if first := places.get(named):
            message = (
                f"connector '{connector}' on Connect cluster '{connect}' is already at {self.place(*first)}: keep one"
            )
            self.problem(path, message)
            return False
        places[named] = path
        return True

    def owner_elsewhere(self, path: PathKey, from_owner: str | None) -> None:
        if from_owner == self.tree.owner:
            self.problem((*path, "from_owner"), f"'{from_owner}' is the owner of this tree: remove from_owner")

    def adoptions(self) -> Iterable[ListedConnector]:
        places: dict[tuple[str, str], PathKey] = {}
        for index, entry in enumerate(self.tree.adopt):
            path: PathKey = ("adopt", index)
            named = entry.connect, entry.connector
            self.owner_elsewhere(path, entry.from_owner)
            if not self.known_once(path, named, places):
                continue
            if named not in self.declared and not self.moves_away(named):
                near = nearest(entry.connector, [name for connect, name in self.declared if connect == entry.connect])
                meant = f"did you mean '{near[0]}'? else " if near else ""
                message = f"no flow is connector '{entry.connector}' on Connect cluster '{entry.connect}'"
                remedy = (
                    f"{meant}write connector_name: {entry.connector} in the flow that it is, name it as from: of an"
                    " entry of moved:, or remove this entry"
                )
                self.problem((*path, "connector"), f"{message}: {remedy}")
            yield ListedConnector(*named, self.place(*path), entry.from_owner)

    def moves_away(self, named: tuple[str, str]) -> bool:
        """Tell whether an entry of `moved:` may mean this connector: by its name, or by that of a flow that is gone."""
        froms = [moved.from_ for _, moved in self.moved_flows if isinstance(moved.from_, str)]
        return "/".join(named) in froms or any("/" not in giver and giver not in self.flows for giver in froms)

    def releases(self) -> Iterable[ListedConnector]:
        places: dict[tuple[str, str], PathKey] = {}
        for index, entry in enumerate(self.tree.release):
            path: PathKey = ("release", index)
            named = entry.connect, entry.connector
            if not self.known_once(path, named, places):
                continue
            if flow := self.declared.get(named):
                problem = (
                    f"flow '{flow.id}' still declares connector '{entry.connector}' on Connect cluster"
                    f" '{entry.connect}'"
                )
                self.problem((*path, "connector"), f"{problem}: remove the flow, or this entry")
            yield ListedConnector(*named, self.place(*path))

    # --- moved --------------------------------------------------------------------------------------------------------

    def moves(self) -> Iterable[Moved]:
        places: dict[tuple[str, str | None], PathKey] = {}
        entries = [entry for _, entry in self.moved_flows]
        gone = {entry.from_: entry for entry in entries if isinstance(entry.from_, str) and not entry.topics}
        for path, entry in self.moved_flows:
            move = self.one_moved(entry, path)
            if move is None:
                continue
            self.owner_elsewhere(path, move.from_owner)
            self.check_from(move, path)
            if entry.to not in self.flows and entry.to in gone:
                last = gone[entry.to].to
                message = f"'{entry.to}' itself moves on to '{last}': write one entry from: {move.written} to: {last}"
                self.problem((*path, "to"), message)
            elif entry.to not in self.flows:
                self.unknown((*path, "to"), "flow", entry.to, self.flows)
            for topic in move.topics or (None,):
                first = places.setdefault((move.written, topic), path)
                if first != path:
                    subject = f"'{move.written}'" if topic is None else f"topic '{topic}' of '{move.written}'"
                    self.problem(path, f"{subject} already moves at {self.place(*first)}: keep one")
            yield replace(move, of_pair=":" not in self.tree.moved[int(path[1])].to)

    @cached_property
    def moved_flows(self) -> list[tuple[PathKey, MovedFlow]]:
        """The entries of `moved:`, each that is for a pair as one of each of its flows."""
        return list(self._moved_flows())

    def _moved_flows(self) -> Iterator[tuple[PathKey, MovedFlow]]:
        for index, entry in enumerate(self.tree.moved):
            path: PathKey = ("moved", index)
            if ":" in entry.to:
                yield path, entry
                continue
            connect, slash, pair = entry.from_.rpartition("/") if isinstance(entry.from_, str) else ("", "", "")
            flows = [flow for flow in self.flows.values() if flow.pair == entry.to]
            if entry.topics or ":" in pair or not _is_pair(pair):
                forms = f"the pair that it was ({entry.to}) or the Connect cluster and the pair (main/{entry.to})"
                message = f"'{entry.to}' is a pair, so write as from: {forms}, without topics:"
                self.problem((*path, "from"), message)
            elif slash and pair != entry.to:
                message = f"a pair that gets another name stays on its Connect cluster: write from: {pair}"
                self.problem((*path, "from"), message)
            elif not flows:
                self.unknown((*path, "to"), "pair", entry.to, sorted({flow.pair for flow in self.flows.values()}))
            else:
                for flow in flows:
                    was = (
                        f"{connect}/{flow.connector_name('source')}" if slash else f"{flow.id.partition(':')[0]}:{pair}"
                    )
                    yield path, entry.model_copy(update={"from_": was, "to": flow.id})

    def one_moved(self, entry: MovedFlow, path: PathKey) -> Moved | None:
        """Return an entry as a value; None, and a problem, when its `from` is neither flow nor connector."""
        rest = entry.to, tuple(entry.topics), entry.from_owner, self.place(*path)
        if isinstance(entry.from_, DedicatedPair):
            source, _, target = entry.from_.dedicated.partition("->")
            return Moved(None, None, (source, target), *rest, f"{{dedicated: {entry.from_.dedicated}}}")
        connect, slash, name = entry.from_.partition("/")
        if slash and is_addressable(name):
            return Moved(None, (connect, name), None, *rest, entry.from_)
        if not slash and re.fullmatch(FLOW_ID, entry.from_):
            return Moved(entry.from_, None, None, *rest, entry.from_)
        forms = "the id of a flow (orders:dc1->agg), connect/connector, or {dedicated: source->target}"
        self.problem((*path, "from"), f"'moved.from' should be {forms}, not '{entry.from_}'")
        return None

    def check_from(self, moved: Moved, path: PathKey) -> None:
        here: PathKey = (*path, "from")
        declared = self.flows.get(moved.flow or "") or self.declared.get(moved.connector or ("", ""))
        if moved.connector and moved.connector[0] not in self.tree.connect:
            self.unknown(here, "Connect cluster", moved.connector[0], self.tree.connect)
        elif moved.topics and moved.flow is None:
            self.problem((*path, "topics"), "single topics move between two flows: write the id of a flow as from:")
        elif moved.flow == moved.to or (declared and declared.id == moved.to):
            self.problem(
                path, f"'{moved.written}' and '{moved.to}' are the same: name another flow, or remove this entry"
            )
        elif moved.topics and declared is None:
            self.unknown(here, "flow", moved.flow or "", self.flows)
        elif moved.topics and declared and declared.pair != moved.to.partition(":")[2]:
            self.problem(
                path, f"single topics move between flows of one pair: '{moved.flow}' and '{moved.to}' have two"
            )
        elif declared and not moved.topics:
            problem = f"flow '{declared.id}' is still declared"
            self.problem(here, f"{problem}: remove it, or say with topics: which of its topics move to '{moved.to}'")
        if moved.dedicated and moved.from_owner:
            self.problem((*path, "from_owner"), "a dedicated MirrorMaker carries no owner mark: remove from_owner")
        for index, entry in enumerate(self.tree.release):
            if moved.connector == (entry.connect, entry.connector):
                message = f"'{moved.written}' moves to '{moved.to}' and is released: remove this entry"
                self.problem(("release", index), message)
