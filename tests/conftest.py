"""What every test starts from: Ctrl-C works (a run in a shell's background inherits it ignored, and so would its children), no secrets are known."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings

from mm2mgr import secrets
from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import cache_folder, hold_lock
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import find_java, kafka_runtime, spark_java_home
from tests import examples
from tests.clock import REALLY_WAIT, no_waiting
from tests.fake_connect import without_sockets

# No test is timed: on a busy machine a single example may take any time.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Starting Spark costs seconds: tests choose it, with `--spark`, with a session, or by taking this away.
os.environ["MM2MGR_SPARK"] = "off"

# No test leaves anything in the home folder of who runs it.
_STATE = TemporaryDirectory(prefix="mm2mgr-state-")
os.environ["MM2MGR_STATE"] = _STATE.name

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def event_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark writes what it was asked to do."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(event_logs: Path) -> Iterator[Any]:
    """One Spark session for all tests of a process: starting one costs seconds."""
    from mm2mgr.throughput.spark_session import end, session

    log = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_logs.as_uri(),
        "spark.eventLog.compress": "false",
    }
    with pytest.MonkeyPatch.context() as patch:
        words = " ".join(f"--conf {key}={value}" for key, value in log.items())
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"{words} pyspark-shell")
        started = session(spark_java_home(find_java()))
    yield started
    end(started)


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """Each run of the program begins without secrets that it has seen."""
    secrets.forget()
    yield
    secrets.forget()


# Modules and folders that wait for processes and sockets of their own; single tests of others are marked `real_time`.
REAL_TIME = (
    "connect/test_sockets.py",
    "connect/test_ways.py",
    "kafka/test_lease.py",
    "samples/test_http.py",
    "sandbox/",
    "throughput/test_job.py",
)


@pytest.fixture(autouse=True)
def _no_real_waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no unit test wait by the clock of this machine: what waits goes by `mm2mgr.timing`, and tests/clock.py has a clock that jumps."""
    if _place(request.node.path, REAL_TIME) < len(REAL_TIME):
        return
    if not REALLY_WAIT.intersection(mark.name for mark in request.node.iter_markers()):
        no_waiting(monkeypatch)


# Folders and modules of tests about sockets themselves.
SOCKETS = ("connect/", "hostile/test_servers.py", "live/", "project/", "serve/test_live.py")


@pytest.fixture(autouse=True)
def _no_sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    """Reach fake Connect clusters of this process without a socket, but where sockets are what a test is about."""
    is_live = next(request.node.iter_markers("live"), None) is not None
    if is_live or _place(request.node.path, SOCKETS) < len(SOCKETS):
        yield
    else:
        with without_sockets():
            yield


# Modules that share the servers of their package, by the beginning of their paths: one worker of pytest-xdist takes them all.
SHARING = ("lint/test_seen_live_",)
# Modules that take minutes, longest first: begun late, one of them would run on alone.
LONGEST = (
    "live/test_apply.py",
    "live/test_faults.py",
    "live/test_day_two.py",
    *SHARING,
    "live/test_exactly_once.py",
    "live/test_cruise_topic.py",
    "demo/test_demo_live.py",
    "sandbox/test_sandbox_live.py",
    "live/test_verbs.py",
    "live/test_quotas.py",
    "live/test_moves.py",
    "throughput/test_executors_live.py",
    "sizing/test_assignment_live.py",
    "live/test_fleet.py",
    "sizing/test_rates_live.py",
    "live/test_dead_source.py",
    "live/test_security.py",
    "check/test_acls_live.py",
    "throughput/test_job.py",
)


# Modules, and folders, without a JVM that take many seconds: property tests with many examples, hostile input, packages that are built
# and installed, addresses that do not answer. `make test-fast` leaves them out, and so ends in under three minutes.
LONG = (
    "hostile/",
    "scale/",
    "samples/test_months.py",
    "plan/test_moves.py",
    "project/test_base_install.py",
    "throughput/test_rollup_job.py",
    "plan/test_never_twice.py",
    "lint/test_corpus.py",
    "cli/test_serve.py",
    "project/test_benchmarks.py",
    "project/test_cold_start.py",
    "serve/test_browser.py",
    "cli/test_interrupt.py",
    "samples/test_follow.py",
    "samples/test_full_disk.py",
    "cli/test_voices.py",
    "observe/test_checkpoints.py",
    "observe/test_properties.py",
    "lint/test_heal.py",
    "lint/test_fixes_keep_mirroring.py",
    "plan/test_untouched.py",
    "lint/test_fixes_keep_secrets.py",
    "plan/test_offsets_death.py",
    "plan/test_heartbeats.py",
    "samples/test_damaged_store.py",
    "serve/test_memory.py",
    "cli/test_anonymous.py",
    "throughput/test_model.py",
    "lint/test_fixes.py",
    "throughput/test_race.py",
    "cli/test_watchdog.py",
    "plan/test_waves.py",
    "plan/test_settle.py",
    "connect/test_dead_urls.py",
    "cli/test_fleet.py",
    "cli/test_size.py",
    "cli/test_lag.py",
    "cli/test_task_capacity.py",
    "cli/test_rebalance.py",
    "cli/test_automatic_rebalance.py",
    "cli/test_throughput.py",
    "throughput/test_any_engine.py",
    "truth/test_refusals.py",
)


_MODULE_MARKS = re.compile(r"^pytestmark = (\[[^\]]*\]|.*)", re.MULTILINE)


def _left_out(expression: str) -> frozenset[str]:
    """Return the marks that `-m` refuses whatever else a test carries: the names of its terms `not NAME`, if `and` alone joins them."""
    terms = [term.split() for term in expression.split(" and ")]
    return (
        frozenset(term[1] for term in terms if len(term) == 2 and term[0] == "not") if _is_plain(terms) else frozenset()
    )


def _is_plain(terms: Sequence[Sequence[str]]) -> bool:
    return all(len(term) <= 2 and not set("()").intersection("".join(term)) for term in terms)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module whose tests `-m` leaves out, all of them: every worker of pytest-xdist would, to deselect half of 21 000 tests."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    left_out = _left_out(config.option.markexpr)
    if not left_out or any(Path(argument.split("::")[0]).absolute() == collection_path for argument in config.args):
        return None
    if "long" in left_out and _place(collection_path, LONG) < len(LONG):
        return True
    marks = _MODULE_MARKS.search(collection_path.read_text(encoding="utf-8"))
    return True if marks and left_out.intersection(re.findall(r"pytest\.mark\.(\w+)", marks.group(1))) else None


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while tests are collected: what is made then stays. In a fresh clone the first worker compiles them for all."""
    gc.disable()
    try:
        with ExitStack() as stack:
            if not (_are_compiled() or sys.dont_write_bytecode):
                stack.enter_context(_alone_in(Path(__file__).parent))
                if _are_compiled():
                    stack.close()
            yield
    finally:
        gc.enable()


def _are_compiled() -> bool:
    """Whether pytest has compiled these tests, all of them or nearly so."""
    folders = Path(__file__).parent.glob("*/__pycache__")
    return (
        sum(
            any(folder.glob(f"test_*.{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"))
            for folder in folders
        )
        > 5
    )


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the long modules, and put those that start real Kafka or Spark first, the longest before the others: they mostly wait."""
    for item in items:
        if _place(item.path, LONG) < len(LONG):
            item.add_marker("long")
    real = {item.path for item in items if any(item.iter_markers("live")) or any(item.iter_markers("spark"))}
    items.sort(key=lambda item: (_place(item.path, LONGEST), item.path not in real))


@cache
def _place(module: Path, beginnings: tuple[str, ...]) -> int:
    """Return the place of the first of these beginnings that a module's path below this folder has, or their number."""
    name = module.relative_to(Path(__file__).parent).as_posix()
    return next((place for place, beginning in enumerate(beginnings) if name.startswith(beginning)), len(beginnings))


def _is_beside(worker: str, workers: int) -> bool:
    """Whether a worker of pytest-xdist, such as gw3, takes what starts no JVM: of four or more the last third do."""
    return workers > 3 and int(worker.removeprefix("gw")) >= workers - workers // 3


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give modules that start JVMs to the first workers alone, as long as there are others: too many at once miss their deadlines."""
    from xdist.scheduler import LoadFileScheduling

    class FromBothEnds(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module: str = super()._split_scope(nodeid)
            return (*SHARING, module)[_place(config.rootpath / module, SHARING)]

        def _assign_work_unit(self, node: Any) -> None:
            if _is_beside(node.gateway.id, self.numnodes):
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    return FromBothEnds(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    """Draw many examples in `make test-matrix`; let the workers beside the JVMs yield to these, but not starve."""
    examples.RUN["is matrix"] = config.option.markexpr == "matrix"
    examples.RUN["leaves matrix out"] = "matrix" in _left_out(config.option.markexpr)
    if (worker := getattr(config, "workerinput", None)) and _is_beside(worker["workerid"], worker["workercount"]):
        os.nice(3)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start a broker, a worker and Spark once per machine, before all others: these then start in a third of the CPU time."""
    if session.config.option.collectonly:
        return
    gc.collect()
    gc.freeze()  # what 17 000 tests consist of is half a million objects, which each collection would look through again
    marks = {mark.name for item in session.items for mark in item.iter_markers()}
    with suppress(Mm2mgrError, OSError):  # a live test will say what is missing
        cache_folder().mkdir(parents=True, exist_ok=True)
        with hold_lock(cache_folder() / "classes.lock", "first start of Java for the tests", 300):
            wanted = "spark" in marks and not any(cache_folder().glob("spark-classes-*.jsa"))
            spark = subprocess.Popen([sys.executable, "-c", FIRST_SPARK], stdout=PIPE, stderr=PIPE) if wanted else None
            try:
                if "live" in marks:
                    _archive_classes_of_kafka()
            finally:
                if spark:
                    spark.communicate()


# In a process of its own: the environment of Spark stays there.
FIRST_SPARK = """
from mm2mgr.sandbox.runtime import find_java, spark_java_home
from mm2mgr.throughput.class_archive import prepare
prepare(spark_java_home(find_java()))
"""


def _archive_classes_of_kafka() -> None:
    runtime = kafka_runtime()
    if runtime.cache_file("worker-classes", ".jsa").is_file():
        return
    with (
        TemporaryDirectory() as folder,
        Broker("first", Path(folder, "broker"), runtime=runtime) as broker,
        Worker("first", Path(folder, "worker"), broker.bootstrap_servers, runtime=runtime),
    ):
        pass


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the steps of the afternoon came to, for whoever quotes it."""
    reports = [
        report
        for kind in terminalreporter.stats.values()
        for report in kind
        if getattr(report, "when", "") == "teardown"
    ]
    lines = [text for report in reports for name, text in report.user_properties if name == "afternoon"]
    if lines:
        terminalreporter.section("the afternoon, by record ids")
        terminalreporter.write("".join(f"{line}\n" for line in lines))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second for what a cluster does not answer: dead ones, and mock brokers, which cannot describe topics."""
    begin = Kafka.__init__

    def begin_impatiently(kafka: Kafka, access: KafkaAccess, timeout_seconds: float = 0.5) -> None:
        begin(kafka, access, min(timeout_seconds, 0.5))

    monkeypatch.setattr(Kafka, "__init__", begin_impatiently)
