"""The data file is what Kafka's real jars say: one line is read afresh, and compared with Kafka's own listing too."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path

import pytest

from mm2mgr.errors import SandboxError
from mm2mgr.sandbox.runtime import find_java
from mm2mgr.truth.keys import load
from tools.kafka_keys import rows
from tools.kafka_keys.definitions import read
from tools.kafka_keys.generate import DATA, differences, main, regenerated

pytestmark = pytest.mark.live
NEWEST = load().lines[-1]
_LISTING = re.compile(
    r'<a id="([^"]+)"></a><a id=.*?<th>Type:</th><td>(\w+)</td>.*?<th>Importance:</th><td>(\w+)</td>', re.S
)


def test_a_line_regenerated_from_its_jars_is_the_committed_one() -> None:
    before = json.loads(DATA.read_text())
    after = regenerated(before, [NEWEST])
    assert differences(before, after) == []
    assert rows.text(after) == DATA.read_text()


@pytest.mark.matrix  # it regenerates the line twice more; test_rows.py holds what is told of a difference
def test_a_changed_file_is_noticed_and_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    committed = DATA.read_text()
    altered = tmp_path / "keys.json"
    altered.write_text(committed.replace('"valid": "[all, -1, 0, 1]"', '"valid": "[all, -1, 0]"'))
    monkeypatch.setattr("tools.kafka_keys.generate.DATA", altered)
    told = f'{NEWEST}: producer acks: valid "[all, -1, 0]" → "[all, -1, 0, 1]"\n'
    assert (main(["--kafka", NEWEST, "--check"]), capsys.readouterr().out) == (1, told)
    assert altered.read_text() != committed
    assert (main(["--kafka", NEWEST]), capsys.readouterr().out) == (0, told)
    assert '"in": "2.7-2.8"' in re.findall(r'"acks": .*', altered.read_text())[0]  # the other lines were not read


@pytest.mark.parametrize(
    ("scope", "listing"),
    [("producer", "clients.producer.ProducerConfig"), ("worker", "connect.runtime.distributed.DistributedConfig")],
)
def test_kafka_itself_lists_the_same_keys(scope: str, listing: str) -> None:
    from mm2mgr.sandbox.runtime import kafka_runtime

    runtime = kafka_runtime(load().releases[NEWEST])
    command = [str(runtime.java.java), "-cp", ":".join(map(str, runtime.jars)), f"org.apache.kafka.{listing}"]
    page = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    listed = {html.unescape(name): facts for name, *facts in _LISTING.findall(page)}
    known = [load().find(scope, name, NEWEST) for name in load().names(scope, NEWEST)]
    assert listed == {key.name: [key.type, key.importance] for key in known if key and not key.internal}


def test_jars_without_the_classes_are_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"the config definitions of kafka-9\.9\.9 could not be read"):
        read(find_java().java, [tmp_path / "kafka-9.9.9" / "none.jar"])


def test_an_unknown_line_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kafka", "0.1"]) == 1
    assert "known lines: 2.7, 2.8, 3.0" in capsys.readouterr().err
