"""What every operation starts from: the tree, expanded and rendered when first asked for. Imports lazily."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mm2mgr import timing
from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import locked_working_folder
from mm2mgr.garbage import collect_garbage
from mm2mgr.timing import wait_for

if TYPE_CHECKING:
    from mm2mgr.apply.rounds import EventLog
    from mm2mgr.connectors import Connector
    from mm2mgr.live.reach import Limits
    from mm2mgr.live.snapshot import Snapshot, Steps
    from mm2mgr.plan.saved import FlowMatrix
    from mm2mgr.spec.files import Spec
    from mm2mgr.throughput.engine import ChosenEngine
    from mm2mgr.topology import Flow, Topology

Answer = TypeVar("Answer")
_NAP_SECONDS = 1.0
DEFAULT_STORE = Path(".mm2mgr/samples")
"""Where the tables of samples and roll-ups are, unless another folder or URI is named."""


def spark_java() -> Path:
    """Return the JAVA_HOME of a local Spark session; JavaMissing where there is none."""
    from mm2mgr.sandbox.runtime import find_java, spark_java_home

    return spark_java_home(find_java())


@dataclass(frozen=True)
class Workspace:
    """A YAML tree (a folder, or files) with the templates to render it. What is read from it is read once."""

    files: tuple[Path, ...] = (Path("clusters"),)
    own_templates: Path | None = None
    named_by_option: bool = False
    """True when --clusters or --templates was on the command line: a plan file of another tree is then refused."""
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """What files are going to be, by name, to look at it before it is written."""
    snapshot: Snapshot | None = field(default=None, repr=False)
    """Answers of clusters from a file, which are then not asked."""

    @cached_property
    def spec(self) -> Spec:
        from mm2mgr.spec.files import load

        return load(self.files, self.contents)

    @cached_property
    def topology(self) -> Topology:
        from mm2mgr.expand import expand

        return expand(self.spec)

    @cached_property
    def templates(self) -> Path | None:
        """The user's templates: as named, else ./templates if it is there. Mm2mgrError where nobody can know that."""
        beside = Path("templates")
        try:
            return self.own_templates or (beside if beside.is_dir() else None)
        except PermissionError as error:
            raise locked_working_folder(beside, error) or error from error

    @cached_property
    def connectors(self) -> tuple[Connector, ...]:
        from mm2mgr.render import render

        return render(self.topology, self.templates)

    def connectors_of(self, flows: Iterable[Flow]) -> tuple[Connector, ...]:
        """Return the connectors that serve any of these flows."""
        from mm2mgr.render import connectors_of

        return tuple(connectors_of(self.connectors, flows))

    def flow(self, name: str) -> Flow:
        """Return the one flow that is meant by a name, without its lanes; Mm2mgrError when there are several."""
        flows = self.flows((name,))
        if len(flows) > 1:
            flows = [flow for flow in flows if flow.lane_of is None]
        if len(flows) > 1:
            raise Mm2mgrError(
                f"'{name}' means {len(flows)} flows", hint=f"name one: {', '.join(flow.id for flow in flows)}"
            )
        return flows[0]

    def flows(self, names: Sequence[str]) -> list[Flow]:
        """Return the flows that are meant by names (id, pair or declared name); all flows for no names."""
        if not names:
            return list(self.topology.flows)
        return list({flow.id: flow for name in names for flow in self.topology.select(name)}.values())

    def flow_names(self, names: Sequence[str], labels: Mapping[str, str]) -> tuple[str, ...]:
        """Return names of flows with the ids of those whose clusters have all of these labels (none: no further ones);
        Mm2mgrError where the labels mean no flow."""
        return (*names, *(flow.id for flow in self.topology.with_labels(labels))) if labels else tuple(names)

    def refuse_as_output(self, path: Path, option: str) -> None:
        """Mm2mgrError where a file to be written is one of the tree or of its templates, or would be read as one."""
        from mm2mgr.spec.files import YAML_SUFFIXES

        place = Path(os.path.realpath(path))
        for root in (Path(os.path.realpath(file)) for file in self.files):
            if place == root or (place.suffix.lower() in YAML_SUFFIXES and place.is_relative_to(root)):
                message = f"{option} {path}: it is a file of the tree, or would be read as one"
                raise Mm2mgrError(message, hint=f"name a file outside of {root}")
        if self.templates and place.is_relative_to(os.path.realpath(self.templates)):
            message = f"{option} {path}: it is in the folder of the templates"
            raise Mm2mgrError(message, hint=f"name a file outside of {self.templates}")

    def event_log(self, path: Path | None) -> EventLog:
        """Open the file that `--events` names; Mm2mgrError for one of the tree, or one that cannot be appended to."""
        from mm2mgr.apply.rounds import EventLog

        if path is not None:
            self.refuse_as_output(path, "--events")
        return EventLog(path)

    def ask(self, steps: Steps[Answer], limits: Limits | Callable[[], Limits] | None = None) -> Answer:
        """Ask the clusters of the tree all that a judgement lacks, and return its result."""
        from mm2mgr.live.reach import Limits
        from mm2mgr.live.read import Clusters, run_steps

        return wait_for(run_steps(steps, Clusters.of_tree(self.topology), limits or Limits(), self.snapshot))[0]

    def of_snapshot(self, path: Path) -> Workspace:
        """Return the same tree beside answers of clusters from a file; Mm2mgrError when it is no snapshot."""
        from mm2mgr.live.snapshot_file import read_snapshot

        workspace = replace(self, snapshot=read_snapshot(path, self.connectors))
        for name in ("spec", "topology", "templates", "connectors"):  # read once
            vars(workspace)[name] = getattr(self, name)
        return workspace

    def refuse_snapshot(self) -> None:
        """Mm2mgrError where answers of clusters are from a file: what writes asks the clusters."""
        if self.snapshot is not None:
            hint = "what writes needs a workspace without one"
            raise Mm2mgrError("a snapshot is only read, and this writes to clusters", hint=hint)

    @property
    def now(self) -> float:
        """The time by which changes are judged, in seconds since 1970: that of the snapshot, if it is looked at."""
        return time.time() if self.snapshot is None or self.snapshot.taken_at is None else self.snapshot.taken_at

    def engine(self, option: bool | None) -> ChosenEngine:
        """Choose where to compute; `option` is --spark, --no-spark or None. JavaMissing where Spark is demanded without
        a Java.

        No session starts here. The tree is read only where nothing else decides. Of one with mistakes counts what can
        be read of this setting: a command that needs the rest fails by itself.
        """
        from mm2mgr.throughput.engine import choose_engine

        def setting() -> bool:
            try:
                return self.spec.tree.defaults.spark
            except Mm2mgrError:
                from mm2mgr.spec.files import turns_spark_off

                return not turns_spark_off(self.files, self.contents)

        return choose_engine(option, setting, spark_java)

    @property
    def flow_matrix(self) -> FlowMatrix:
        """What the tree mirrors from where to where."""
        from mm2mgr.plan.saved import flow_matrix

        return flow_matrix(self.topology, self.connectors)

    def only(self, names: Sequence[str]) -> list[str] | None:
        """Return the ids of the named flows, or None for no names."""
        return [flow.id for flow in self.flows(names)] if names else None


def repeat(look: Callable[[], Answer], every_seconds: float) -> Iterator[Answer]:
    """Yield an answer, then one after each pause, until the caller stops."""
    while True:
        yield look()
        collect_garbage()
        pause(every_seconds)


def pause(seconds: float) -> None:
    """Wait in short naps: a signal that comes just before Python falls asleep is handled only when it wakes up."""
    end = timing.now() + seconds
    while (left := end - timing.now()) > 0:
        timing.sleep(min(left, _NAP_SECONDS))


def seconds_of(text: str | None) -> int | None:
    """Return a written time as seconds since 1970, UTC where it names no zone; None where it is none."""
    try:
        when = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return None if when is None else int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())
