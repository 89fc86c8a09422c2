"""Two network namespaces joined by an emulated long link: round trip, bandwidth and one bandwidth-delay product of queue.

`missing` says what the machine lacks for it. Everything in the two namespaces belongs to the benchmark: what a killed run left there is
ended at the next start, by process id.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import hold_lock

Side = Literal["source", "target"]
ADDRESSES: dict[Side, str] = {"source": "10.99.0.1", "target": "10.99.0.2"}
NAME = "mm2mgr-bench"
PROGRAM = Path(__file__).with_suffix(".c")
MTU = 1500
_TUN = Path("/dev/net/tun")
_SPACES_FOLDER = Path("/var/run/netns")
_LOCKS = Path("/run")
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of setns(2)
_CAPABILITIES = (12, 21)  # CAP_NET_ADMIN and CAP_SYS_ADMIN of capability.h; root in a container may have neither
_SMALLEST_QUEUE = 262_144
# What Linux sets where it was not tuned; namespaces would inherit the machine's own values.
_SYSCTL = {"tcp_rmem": "4096 131072 6291456", "tcp_wmem": "4096 16384 4194304"}
# A loopback MTU of 64 KiB lets local clients of a broker with 100 KiB buffers stall, which no real network card does.
_LOOPBACK_MTU = 9000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Carried:
    """Counters of the link since it is up: bytes on the wire and dropped packets towards the target, and CPU seconds of the emulation."""

    at: float
    bytes: int
    drops: int
    back_bytes: int
    back_drops: int
    cpu_seconds: float


def missing() -> list[str]:
    """Name what is not here and the link needs."""
    compiler = _compiler()
    needs = {
        "root, with CAP_NET_ADMIN and CAP_SYS_ADMIN (it makes network namespaces and TUN devices)": _may_make_networks(),
        "a C compiler (`cc` or `gcc` on the path)": compiler is not None,
        "the command `ip` (package iproute2)": shutil.which("ip") is not None,
        f"the device {_TUN} (kernel module tun)": _TUN.exists(),
    }
    return [need for need, is_here in needs.items() if not is_here]


def compile_program(folder: Path) -> Path:
    """Compile the emulator and return where it is; Mm2mgrError with the compiler's words if that fails."""
    program = folder / PROGRAM.stem
    done = subprocess.run(
        [_compiler() or "cc", "-O2", "-Wall", "-Wextra", "-o", str(program), str(PROGRAM)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Mm2mgrError(f"{PROGRAM.name} could not be compiled: {done.stderr.strip()[:500]}")
    return program


class EmulatedLink:
    """The link while it is up; `set` changes it under open connections."""

    def __init__(self, process: subprocess.Popen[str], spaces: dict[Side, str], congestion: str) -> None:
        self.congestion = congestion
        self._process = process
        self._spaces = spaces
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def set(self, rtt_seconds: float, bytes_per_second: float) -> None:
        """Set round trip and rate; the queue of each direction holds one bandwidth-delay product, at least 256 KiB."""
        queue = max(rtt_seconds * bytes_per_second, _SMALLEST_QUEUE)
        self._ask(f"set {rtt_seconds} {bytes_per_second} {queue}")

    def read(self) -> Carried:
        """Read the counters."""
        *counts, cpu = self._ask("read").split()
        there, there_dropped, back, back_dropped = map(int, counts)
        return Carried(time.monotonic(), there, there_dropped, back, back_dropped, float(cpu))

    @contextmanager
    def inside(self, side: Side) -> Iterator[None]:
        """Be in the network of one side: sockets, threads and processes that begin in this block stay there for good."""
        _enter(os.open(_SPACES_FOLDER / self._spaces[side], os.O_RDONLY | os.O_CLOEXEC))
        try:
            yield
        finally:
            _enter(os.dup(self._home))

    def _ask(self, line: str) -> str:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().strip()
        except OSError as error:
            raise Mm2mgrError(f"the emulated link ended: {error}") from error
        if not answer or answer.startswith("unknown"):
            raise Mm2mgrError(f"the emulated link answered '{answer}' to '{line}'")
        return answer


@contextmanager
def emulated_link(name: str = NAME, congestion: str = "cubic") -> Iterator[EmulatedLink]:
    """Compile, make the namespaces and join them; on the way out end all that runs in them and take them away.

    `congestion` is the algorithm of TCP; where the kernel does not permit it in a namespace, it is reno, which every one does.
    One run at a time: Locked (an Mm2mgrError) while another one has the namespaces of this name.
    """
    with hold_lock(_LOCKS / f"{name}.lock", "another run has the network namespaces of this benchmark", 0):
        spaces: dict[Side, str] = {side: f"{name}-{side}" for side in ADDRESSES}
        _remove(spaces.values())
        try:
            for space in spaces.values():
                _ip("netns", "add", space)
            with _emulator(spaces.values()) as process:
                _address(spaces["source"], "source", "target")
                _address(spaces["target"], "target", "source")
                used = [_use(congestion, space) for space in spaces.values()]
                yield EmulatedLink(process, spaces, used[0])
        finally:
            _remove(spaces.values())


@contextmanager
def _emulator(spaces: Iterable[str]) -> Iterator[subprocess.Popen[str]]:
    with TemporaryDirectory(prefix="mm2mgr-link-") as folder:
        # Out of the terminal's group, so that Ctrl-C does not end it before the servers; it ends with its input.
        process = subprocess.Popen(
            [str(compile_program(Path(folder))), *spaces],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with process:
            try:
                os.setpriority(os.PRIO_PROCESS, process.pid, -15)  # late packets would be a longer link
                assert process.stdout
                if process.stdout.readline().strip() != "up":
                    raise Mm2mgrError("the emulated link did not come up; its error is above")
                yield process
            finally:
                process.kill()


def _address(space: str, here: Side, there: Side) -> None:
    _ip("-n", space, "address", "add", ADDRESSES[here], "peer", ADDRESSES[there], "dev", "link0")
    _ip("-n", space, "link", "set", "link0", "mtu", str(MTU), "txqueuelen", "20000", "up")
    _ip("-n", space, "link", "set", "link0", "gso_max_size", "16000")  # small enough to be dropped like a burst
    _ip("-n", space, "link", "set", "lo", "mtu", str(_LOOPBACK_MTU), "up")
    for key, value in _SYSCTL.items():
        _write(space, key, value)


def _use(congestion: str, space: str) -> str:
    """Set the congestion control of a namespace and return what it got."""
    try:
        _write(space, "tcp_congestion_control", congestion)
    except Mm2mgrError:  # it would be the machine's own, maybe a tuned one
        congestion = "reno"
        _write(space, "tcp_congestion_control", congestion)
    return congestion


def _write(space: str, key: str, value: str) -> None:
    _ip("netns", "exec", space, "sh", "-c", f"echo '{value}' > /proc/sys/net/ipv4/{key}")


def _remove(spaces: Iterable[str]) -> None:
    """End the processes in the namespaces, which are the benchmark's own, and delete the namespaces."""
    for name in spaces:
        if not (_SPACES_FOLDER / name).exists():
            continue
        deadline = time.monotonic() + 20
        while (pids := _ip("netns", "pids", name).split()) and time.monotonic() < deadline:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.1)
        _ip("netns", "delete", name)


def _enter(opened: int) -> None:
    try:
        if _libc.setns(opened, _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(opened)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Mm2mgrError(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout


def _may_make_networks() -> bool:
    status = Path("/proc/self/status").read_text()
    effective = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return os.geteuid() == 0 and all(effective >> bit & 1 for bit in _CAPABILITIES)


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")
