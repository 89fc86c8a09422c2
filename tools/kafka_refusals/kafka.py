"""What Kafka's classes of one release say of connector configs: `Refusals.java` in a JVM that is asked in batches."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mm2mgr.errors import SandboxError
from mm2mgr.files import cache_folder
from mm2mgr.sandbox.jars import locked_jars
from mm2mgr.sandbox.runtime import find_java
from tools.kafka_keys.generate import LOCKS, jars

SOURCE = Path(__file__).with_name("Refusals.java")
_OLDER = Path(__file__).with_name("older.lock")  # what workers before 3.6 need besides the libraries of 3.6.2
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
# Nothing listens there: no client of a case gets an answer.
ADDRESS = "127.0.0.1:1"
# The properties of the workers that validate, for both who are asked.
WORKER = {
    **{"bootstrap.servers": ADDRESS, "group.id": "worker", "key.converter": _BYTES, "value.converter": _BYTES},
    **{f"{name}.storage.topic": name for name in ("config", "offset", "status")},
}
_OPTIONS = (
    *("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    *("--add-opens", "java.base/sun.security.ssl=ALL-UNNAMED"),
    *("-Dorg.apache.logging.log4j.level=OFF", "-Dlog4j2.StatusLogger.level=OFF"),
)
Refused = tuple[tuple[str, str], ...]  # who refuses, and its words; () where everything is taken
Asked = tuple[str, Mapping[str, str]]  # the connector's type, and its config


@contextmanager
def asking(release: str) -> Iterator[Oracle]:
    """Start a JVM with the jars of a release and stop it afterwards."""
    path = [*(locked_jars(_OLDER, cache_folder() / "kafka-refusals") if release in LOCKS else ()), *jars(release)]
    command = [str(find_java().java), *_OPTIONS, "-cp", ":".join(map(str, path)), str(SOURCE)]
    command += [f"{key}={value}" for key, value in WORKER.items()]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield Oracle(process, log)
        finally:
            if process.stdin:
                process.stdin.close()
            process.kill()
            process.wait()


class Oracle:
    """Kafka's classes of one release."""

    def __init__(self, process: subprocess.Popen[str], log: Any) -> None:
        self._process = process
        self._log = log

    def refused(self, cases: Sequence[Asked]) -> list[Refused]:
        """Return what is refused of each case; raises SandboxError when the JVM ends."""
        answers: list[Refused] = []
        for start in range(0, len(cases), 20):  # fewer than a pipe holds, so that neither side waits for the other
            for type_, config in cases[start : start + 20]:
                self._write(json.dumps({"type": type_, "config": config}))
            answers += [self._read() for _ in cases[start : start + 20]]
        return answers

    def _write(self, line: str) -> None:
        try:
            print(line, file=self._process.stdin, flush=True)
        except OSError as error:
            raise self._ended() from error

    def _read(self) -> Refused:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise self._ended()
        return tuple((each["by"], each["says"]) for each in json.loads(line)["refused"])

    def _ended(self) -> SandboxError:
        self._log.seek(0)
        return SandboxError(f"the JVM that asks Kafka's classes has ended: {self._log.read()[-2000:]}")
