"""Pages that are walked on real Kafka and Connect, every command of theirs in order, as a reader would do it.

Some are walked in a folder and a sandbox of their own, and what they say is compared. The others take an estate for granted:
their commands run on a small one, each with the exit code that it must have there.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from urllib.request import ProxyHandler, build_opener

import confluent_kafka
import pytest
import trustme
import yaml

from mm2mgr.sandbox.server import free_ports
from tests.docs.commands import ON_AN_ESTATE, WALKS, commands_of, why_not_run
from tests.docs.test_documents import DOCUMENTS, FENCE, REPOSITORY
from tests.live.seen import commit_all, log_end, retry

pytestmark = [pytest.mark.live, pytest.mark.matrix]
# Looks at the page as a browser would, once it answers.
LOOK = """
python -c "import os, time, urllib.request as web
direct = web.build_opener(web.ProxyHandler({}))
page = b''
for second in range(90):
    try:
        page = direct.open('http://127.0.0.1:' + os.environ['PORT'] + '/').read()
    except OSError:
        pass
    if b'orders' in page:
        break
    time.sleep(1)
assert b'orders' in page, page"
"""
SAVED = re.compile(r"[Ss]ave this as `([^`]+)`")
INSTALLS = "python3 -m venv"  # what the tests are installed with already
SECONDS = 600
PORT = 8642
T = TypeVar("T")


def environment_in(folder: Path, **more: str) -> dict[str, str]:
    """Return variables by which a shell has `mm2mgr` and `python` of these tests, and a state of its own."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for program, words in (("mm2mgr", "-m mm2mgr "), ("python", "")):
        (programs / program).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n')
        (programs / program).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "MM2MGR_STATE": str(folder / "state"),
        "MM2MGR_SPARK": "off",
        "COLUMNS": "160",
        **more,
    }


# --- pages with a sandbox of their own --------------------------------------------------------------------------------


def script_of(page: str) -> str:
    """Return a page as a shell script: a block of YAML or Python is saved as the file that the text before it names.

    "After some seconds" before commands: each is repeated until it ends as the page says; "exit code 1": it fails so.
    """
    lines, place = ["set -e"], 0
    for match in FENCE.finditer(page):
        before = page[place : match.start()].strip().rpartition("\n\n")[2]
        saved = SAVED.findall(page[place : match.start()])
        kind, body, place = match["kind"], match["body"], match.end()
        if kind in {"yaml", "python"} and saved:
            lines.append(f"cat > {shlex.quote(saved[-1])} <<'SAVED'\n{body}SAVED")
        elif kind == "sh" and INSTALLS not in body:
            lines.append(body)
        elif kind == "console":
            commands = [line.removeprefix("$ ") for line in body.splitlines() if line.startswith("$ ")]
            lines += [as_promised(command, before) for command in commands]
    return "\n".join(lines)


def as_promised(command: str, before: str) -> str:
    if command.endswith("&"):
        return command
    code = 1 if "exit code 1" in before else 0
    outcome = f"{{ {command}; }} && code=0 || code=$?; [ $code = {code} ]"
    if re.search("after some seconds", before, re.IGNORECASE):
        return f"until {outcome}; do sleep 1; done"
    return outcome


def at_this_sandbox(script: str, page: str) -> str:
    """Let commands reach the brokers of this run: the page shows the ports of another one."""
    for alias, address in re.findall(r"^kafka +(\S+) +(\S+)$", page, re.MULTILINE):
        file = ".mm2mgr/sandbox/clusters/clusters.yaml"
        script = script.replace(address, f'"$(sed -n "s/^  {alias}: .*\\[\'\\(.*\\)\'\\].*/\\1/p" {file})"')
    return script


def headings(page: str) -> list[str]:
    """Return the first line of each output that the page shows, such as the columns of a table, up to a number."""
    outputs = (match["body"].splitlines() for match in FENCE.finditer(page) if match["kind"] == "console")
    texts = ([line for line in lines if not line.startswith("$ ") and line != "..."] for lines in outputs)
    return [re.split(r"\d", lines[0])[0] for lines in texts if lines]


@pytest.mark.parametrize("name", WALKS)
def test_every_command_of_the_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    page, (port,) = DOCUMENTS[name], free_ports(1)
    # Where the page does not come so far. `kill` without a process would be the exit code of all.
    stop = "trap 'mm2mgr sandbox down; kill $(jobs -p) 2> /dev/null || true' EXIT\n"
    script = at_this_sandbox(script_of(page), page).replace(
        "mm2mgr serve &", f"mm2mgr serve --listen 127.0.0.1:{port} &\n{LOOK}"
    )
    log = tmp_path / "said.log"
    with log.open("w") as out:
        done = subprocess.run(
            ["timeout", "--kill-after=60", str(SECONDS), "bash", "-c", stop + script],
            cwd=tmp_path,
            env=environment_in(tmp_path, PORT=str(port)),
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    print(log.read_text())
    assert done.returncode == 0
    said = " ".join(log.read_text().replace(f":{port}", f":{PORT}").split())
    for heading in headings(page):
        assert " ".join(heading.split()) in said


# --- pages whose commands run on an estate ----------------------------------------------------------------------------

TREE = """
links: [{between: [dc1-logging, agg-east], rtt: 20ms, bandwidth: 1Gbit/s}]
defaults:
  flows:
    refresh_interval: 5s
    checkpoints: {group_offsets: true, interval: 5s}
    audit: 10%
    failover: {check_every: 15min}
flows:
  orders: {sources: [dc1-logging], targets: [agg-east], topics: {include: [app.orders]}}
  logging: {sources: [dc1-logging, dc2-logging], targets: [agg-east], topics: {include: [audit.log]}}
  more: {sources: [dc2-logging], targets: [agg-east], topics: {include: [app.orders]}}
"""
# Of these the tree of a page has one flow: a dedicated MirrorMaker has one value for a pair.
ONE_FLOW = """
flows:
  orders: {sources: [dc1-logging], targets: [agg-east], topics: {include: [app.orders]}, checkpoints: false}
"""
# What a person answers, in words that a shell gives.
ANSWERS = (
    (
        r"^mm2mgr (pause|resume|stop|restart|rebalance .*--apply|offsets reset|failover back .*--(apply|start))",
        " --yes",
    ),
    (r"^mm2mgr failover run(?!.*--dry-run)", " --yes --producers-stopped --quiet-for 1s"),
)
# They run until somebody ends them.
ENDLESS = re.compile(r"--follow|--watch\b|^mm2mgr (serve|watch(?!.*--once)|reconcile(?!.*--once))|--duration 1h")
# Pages whose commands run in a folder of their own below the estate, with no tree yet, or with that of one flow.
FOLDERS = {"docs/how-to/existing-mirrors.md": "taken", "docs/how-to/your-own-operator.md": "one"}
# Exit codes that are not 0 on this estate, by page and beginning of the command, with a part of what is told.
CODES: dict[tuple[str, str], tuple[tuple[int, ...], str]] = {
    ("audit", "mm2mgr audit app.orders --partition 3"): ((1,), "Not judged"),  # nothing was written yesterday
    ("cluster-mirroring", "mm2mgr import"): ((3,), "Cluster Mirroring"),
    ("existing-mirrors", "mm2mgr lint connector.json mm2"): ((1,), "overlap"),  # both files have the same mirror
    ("existing-mirrors", "mm2mgr import dumps"): ((3,), "the tree of sandbox writes this connector"),
    ("existing-mirrors", "mm2mgr import http"): ((3,), "the tree of sandbox writes this connector"),
    ("existing-mirrors", "mm2mgr import connector.json --check"): ((2,), "heartbeats of this pair are written"),
    ("declare", "mm2mgr plan --out"): ((0, 2), "plan written"),
    ("something-is-red", "mm2mgr losses  "): ((1,), "extra"),
    ("your-own-operator", "mm2mgr render --format properties  "): ((1,), "one value for the pair"),
    **{
        (page, f"mm2mgr failover {word}"): ((0, 2), told)
        for page, word, told in (
            ("failover-check", "check", "GO"),
            ("failover-rehearsal", "rehearse", "Recovery time"),
            ("failover-planned", "check", "GO"),
            ("failover-planned", "plan", ""),
            ("failover-planned", "run", ""),
            ("failover-disaster", "plan", ""),
            ("failover-disaster", "run", ""),
        )
    },
    ("failover-back", "mm2mgr failover back"): ((1,), "The tree declares no flow that mirrors"),
}
# What is done before a command: what the page says in words, or takes for granted. The first may fail.
BEFORE = {
    ("existing-mirrors", "mm2mgr import"): "rm -rf clusters",
    (
        "existing-mirrors",
        "mm2mgr import connector.json --check",
    ): "mm2mgr import connector.json --owner team --out clusters; true",
    (
        "something-is-red",
        "mm2mgr losses  ",
    ): "cd ../sandbox && mm2mgr sandbox produce agg-east dc1-logging.app.orders --records 20 && "
    "mm2mgr sandbox produce dc1-logging app.orders --records 200 && sleep 8; cd - && mm2mgr audit orders --since 2h; true",
    (
        "your-own-operator",
        "mm2mgr render --format properties  ",
    ): "sed -i 's/checkpoints: false/tasks: {max: 4}/' clusters/flows.yaml",
    ("history", "mm2mgr apply"): "sed -i 's/app.orders]}}/app.orders]}, "
    "source_consumer: {max.poll.records: 700}}/' clusters/flows.yaml && git add . && git commit --quiet --message 'bigger fetches'",
    ("day-two", "mm2mgr plan"): "mm2mgr resume 'dc1-logging->agg-east' --yes",
    ("day-two", "mm2mgr offsets reset"): "mm2mgr stop orders",
}


@dataclass
class Estate:
    """A sandbox with the tree `clusters/` in git, records that are mirrored, groups that read, and samples."""

    folder: Path
    environment: dict[str, str]
    connects: dict[str, str]
    brokers: dict[str, str]
    port: int

    def run(self, command: str, *, within: str = ".", seconds: float = 120) -> tuple[int, str]:
        """Return the exit code of a command in a folder of the estate, and all that it said."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder / within,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        return done.returncode, done.stdout

    def succeed(self, command: str, *, within: str = ".") -> str:
        code, said = self.run(command, within=within)
        assert code == 0, f"{command}\n{said}"
        return said

    def run_a_while(self, command: str, *, seconds: float = 20) -> tuple[int, str]:
        """Run what has no end until it has said something, then end it as Ctrl-C does."""
        log = self.folder / "endless.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            end = time.monotonic() + seconds
            while process.poll() is None and not log.read_text() and time.monotonic() < end:
                time.sleep(0.2)
            time.sleep(1)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            code = process.wait(30)
        return code, log.read_text()


@pytest.fixture(scope="module")
def estate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    top = tmp_path_factory.mktemp("estate")
    tree, beside = top / "mirrors" / "clusters", top / "mirrors"
    tree.mkdir(parents=True)
    (top / "sandbox").mkdir()
    names = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "a person")
    names |= dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "person@example.org")
    (port,) = free_ports(1)
    here = Estate(beside, environment_in(top, **names), {}, {}, port)
    sandbox = f"cd {shlex.quote(str(top / 'sandbox'))} && mm2mgr sandbox"
    try:
        here.succeed(f"{sandbox} up")
        written = (top / "sandbox/.mm2mgr/sandbox/clusters/clusters.yaml").read_text()
        declared = yaml.safe_load(written)
        here.connects |= {name: connect["url"][0] for name, connect in declared["connect"].items()}
        here.brokers |= {name: cluster["bootstrap_servers"][0] for name, cluster in declared["clusters"].items()}
        (tree / "clusters.yaml").write_text(written)
        (tree / "flows.yaml").write_text(TREE)
        for file, text in (("clusters.yaml", written), ("flows.yaml", ONE_FLOW)):
            (beside / "one" / "clusters").mkdir(parents=True, exist_ok=True)
            (beside / "one" / "clusters" / file).write_text(text)
        here.succeed("git init --quiet . && git add clusters && git commit --quiet --message tree")
        for cluster in ("dc1-logging", "dc2-logging", "agg-east"):
            here.succeed(f"{sandbox} topic create {cluster} app.orders --partitions 4")
        for source in ("dc1-logging", "dc2-logging"):
            here.succeed(f"{sandbox} topic create {source} audit.log --partitions 1")
        here.succeed(f"{sandbox} produce agg-east app.orders --records 2000 --size 1000")
        here.succeed(f"{sandbox} produce dc1-logging audit.log --records 1000")
        here.succeed(f"{sandbox} produce dc1-logging app.orders --records 2000")
        for group in ("billing.app", "mirrormaker1"):
            commit_half(here.brokers["dc1-logging"], group, "app.orders")
        here.succeed("mm2mgr apply --yes")
        here.succeed(
            f"{sandbox} produce dc1-logging app.orders --records 1200 --rate 150 & mm2mgr sample --interval 2s --duration 7s"
        )
        here.succeed("mm2mgr throughput")
        write_mirrors_of_others(here)
        write_logins(here)
        yield here
    finally:
        here.run(f"{sandbox} down")


def write_mirrors_of_others(here: Estate) -> None:
    """Write what runs there as files of the forms in which people have their mirrors, into the folder `taken` and beside it."""
    here.succeed(
        "mkdir -p taken/dumps && mm2mgr --clusters one/clusters render --format properties > mm2.properties && "
        "mm2mgr --clusters one/clusters render --format json --out connectors && cp -r connectors taken/mirrors && "
        "cp connectors/*source* taken/connector.json && cp mm2.properties taken && "
        "cp ../sandbox/.mm2mgr/sandbox/connect/east/worker.properties taken/connect-distributed.properties && "
        "git -C one init --quiet && git -C one add . && git -C one commit --quiet --message tree"
    )
    for name, url in here.connects.items():
        with build_opener(ProxyHandler({})).open(f"{url}/connectors?expand=info&expand=status") as answer:
            (here.folder / "taken" / "dumps" / f"{name}.json").write_bytes(answer.read())


def write_logins(here: Estate) -> None:
    """Write the password, the token and the certificate that a page for other machines needs."""
    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(here.folder / "tls.crt")
    issued.private_key_pem.write_to_path(here.folder / "tls.key")
    for name in ("password", "token"):
        (here.folder / name).write_text(f"a long {name} of a test\n")
        (here.folder / name).chmod(0o600)


def commit_half(broker: str, group: str, topic: str) -> None:
    """Let a group have read half of each partition of a topic, and be away."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker, "group.id": group, "enable.auto.commit": False})
    try:
        partitions = [
            confluent_kafka.TopicPartition(topic, number)
            for number in retry(lambda: consumer.list_topics(topic, timeout=20)).topics[topic].partitions
        ]
        for partition in partitions:
            partition.offset = log_end(consumer, partition) // 2
        commit_all(consumer, partitions)
    finally:
        consumer.close()


def on_this_estate(command: str, here: Estate) -> str:
    """Return a command with what this estate has in place of the page's names, addresses and paths outside of its folder."""
    month = datetime.now(UTC).strftime("%Y-%m")
    for pattern, text in (
        (r"\bdc1(?!-logging)", "dc1-logging"),
        (r"\bagg\b(?!-\w)", "agg-east"),
        (r"\bagg-north\b", "agg-west"),
        (r"=bulk\b", "=logging"),
        (r"http://connect-(e?1):8083", here.connects["east"]),
        (r"http://connect-w1:8083", here.connects["west"]),
        (r"2026-10\b", month),
        (r"3f2a9c1d8e70", "HEAD~1"),
        (r"3f2a9c1b04", "all"),
        (r"^mm2mgr init", "mkdir -p new && cd new && mm2mgr init"),
        (r"/run/mm2mgr/|/etc/prometheus/rules/|~/\.\S*/(?=\S+$)", ""),
        (r"0\.0\.0\.0:8642", f"127.0.0.1:{here.port}"),
        (r"^(mm2mgr serve(?!.*--listen).*)", rf"\1 --listen 127.0.0.1:{here.port}"),
        (r"\s*&$", ""),
    ):
        command = re.sub(pattern, text, command)
    for pattern, answer in ANSWERS:
        if re.search(pattern, command) and answer.split()[0] not in command:
            command += answer
    return command


def entry_for(page: str, command: str, table: Mapping[tuple[str, str], T], default: T) -> T:
    """Return what a table has for a command of a page: the entry with the longest beginning of it."""
    fitting = [words for name, words in table if name == Path(page).stem and f"{command}  ".startswith(words)]
    return table[Path(page).stem, max(fitting, key=len)] if fitting else default


@pytest.mark.parametrize("name", ON_AN_ESTATE)
def test_every_command_of_the_page_runs_on_an_estate(name: str, estate: Estate) -> None:
    wrong, within = [], FOLDERS.get(name, ".")
    for shown in commands_of(DOCUMENTS[name]):
        if why_not_run(shown):
            continue
        estate.succeed(entry_for(name, shown, BEFORE, "true"), within=within)
        command, begun = on_this_estate(shown, estate), time.monotonic()
        codes, told = entry_for(name, shown, CODES, ((0,), ""))
        if ENDLESS.search(command):
            codes = (0, 130)
            code, said = estate.run_a_while(command)
        else:
            code, said = estate.run(command, within=within)
        print(f"$ {command}  # {code}, {time.monotonic() - begun:.1f} s\n{said}")
        if code not in codes or told not in said or "Traceback" in said:
            wrong.append(f"$ {shown}\n  as: {command}\n  exit code {code}: {said[-600:]}")
    assert not wrong, "\n".join(wrong)
