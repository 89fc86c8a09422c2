"""Measures `import` of an estate written by hand: dumps of 20 Connect clusters, 500 connectors in all.

Prints seconds (wall and CPU, start-up included), lines of the input and of the tree, and their share beside the bounds.
Exits with 1 when the CPU time or the share is above its bound. Contacts nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
BOUND_SECONDS, BOUND_SHARE = 10.0, 0.25
PACKAGE = "org.apache.kafka.connect.mirror"
TOPICS = ("orders", "logs", "metrics", "payments")
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connects", type=int, default=20)
    parser.add_argument("--connectors", type=int, default=25, help="per Connect cluster")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name) / "dumps", Path(name) / "clusters"
        folder.mkdir()
        for number in range(options.connects):
            dump = [connector(number, place) for place in range(options.connectors)]
            (folder / f"connect-{number:02d}.json").write_text(json.dumps(dump, indent=2) + "\n")
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "mm2mgr", "import", str(folder), "--owner", "team", "--kafka", "3.9"]
        done = subprocess.run(
            [*command, "--out", str(out)], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if not out.is_dir():
            print(done.stdout, done.stderr)
            return 1
        lines, written = (sum(path.read_text().count("\n") for path in where.iterdir()) for where in (folder, out))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(next(line for line in done.stdout.splitlines() if " keys: " in line))
    print(f"{options.connects * options.connectors} connectors of {options.connects} Connect clusters")
    print(f"import: {wall:.1f} s, {cpu:.1f} s of CPU (bound {BOUND_SECONDS:g} s)")
    print(f"lines: {lines} of JSON, {written} of the tree: {written / lines:.0%} (bound {BOUND_SHARE:.0%})")
    return int(cpu > BOUND_SECONDS or written > lines * BOUND_SHARE)


def connector(number: int, place: int) -> dict[str, object]:
    """Return a connector of a Connect cluster: four in five mirror records, the others translate their offsets."""
    pairs, target = place % 20, f"agg-{number:02d}"
    source, topics = f"dc{pairs % 5}", TOPICS[pairs // 5]
    type_ = "Source" if place < 20 else "Checkpoint"
    ends = {"source": source, "target": target}
    clusters = {
        f"{side}.cluster.{key}": value
        for side, alias in ends.items()
        for key, value in {
            "alias": alias,
            "bootstrap.servers": f"{alias}-k1:9093,{alias}-k2:9093",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f"${{file:/etc/connect/{alias}.properties:jaas}}",
        }.items()
    }
    name = f"{source}-to-{target}-{topics if type_ == 'Source' else 'checkpoints'}"
    config = {
        "name": name,
        "connector.class": f"{PACKAGE}.Mirror{type_}Connector",
        "tasks.max": str(4 + pairs % 3 * (type_ == "Source")),
        **clusters,
        "topics": f"{topics}[.].*" if type_ == "Source" else ".*",
        "replication.factor": "3",
        "sync.topic.acls.enabled": "false",
        **dict.fromkeys(("key.converter", "value.converter", "header.converter"), BYTES),
        "source.consumer.max.poll.records": "2000",
        "producer.override.compression.type": "zstd",
    }
    return {"name": name, "config": config}


if __name__ == "__main__":
    sys.exit(main())
