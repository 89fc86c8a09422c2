"""Files and folders on this machine: bounded reads, whole writes, locks between processes, and the folders of a user.

A write is whole or it did not happen, and never replaces a file of another kind. No pipe is waited for without end.
"""

from __future__ import annotations

import errno
import fcntl
import fnmatch
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mm2mgr import timing
from mm2mgr.errors import Mm2mgrError

PIPE_SECONDS = 10.0
_CHUNK = 1 << 20
_HEAD_CHARACTERS = 4_096
_SAID_AFTER_SECONDS = 2.0  # most locks are held for milliseconds
_LONGEST_PAUSE_SECONDS = 0.25
_NAME_BYTES = 300  # of the holder of a lock
_MOST_OWN_BYTES = 1 << 30
_REFUSED = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


# --- reading ----------------------------------------------------------------------------------------------------------


class Unreadable(Exception):
    """Why a file cannot be read, as the end of a sentence that begins with its name; `missing` when there is none."""

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file or a pipe; Unreadable for others, and a pipe silent for PIPE_SECONDS."""
    try:
        _refuse(path.stat().st_mode)  # before it is opened: that alone may do something to a device
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Unreadable("no such file", missing=True) from error
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    try:
        mode = os.fstat(opened).st_mode
        _refuse(mode)
        return _read(opened, most_bytes, is_pipe=stat.S_ISFIFO(mode))
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    finally:
        os.close(opened)


def read_regular(path: Path, most_bytes: int = _MOST_OWN_BYTES) -> bytes:
    """Return the content of a file that is no pipe, such as one of mm2mgr; OSError for what is no regular file."""
    if kind := special_kind(path):
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    try:
        return read_bytes(path, most_bytes)
    except Unreadable as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise OSError(errno.EFBIG, str(error), str(path)) from error


def special_kind(path: Path) -> str:
    """Return what is at a path, or its link's end, if neither a regular file nor missing: a pipe, a device …"""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return "a pipe" if stat.S_ISFIFO(mode) else _kind(mode)


def _kind(mode: int) -> str:
    return next((kind for is_kind, kind in _REFUSED if is_kind(mode)), "")


def _refuse(mode: int) -> None:
    if kind := _kind(mode):
        raise Unreadable(f"cannot be read: it is {kind}, not a file")


def _read(opened: int, most_bytes: int, *, is_pipe: bool) -> bytes:
    content = bytearray()
    waiting = select.poll()
    waiting.register(opened, select.POLLIN)
    while len(content) <= most_bytes:
        if is_pipe and not waiting.poll(PIPE_SECONDS * 1000):
            raise Unreadable(f"cannot be read: it is a pipe, and nothing was written to it for {PIPE_SECONDS:g} s")
        data = os.read(opened, min(_CHUNK, most_bytes + 1 - len(content)))
        if not data:
            return bytes(content)
        content += data
    size = f"{most_bytes // 1_000_000} MB" if most_bytes >= 1_000_000 else f"{most_bytes} bytes"
    raise Unreadable(f"is larger than {size}")


def list_paths(folder: Path, pattern: str) -> list[Path]:
    """Return the paths in a folder whose names match `pattern`, sorted; a missing folder is empty.

    Mm2mgrError where the folder cannot be read: `Path.glob` takes that for empty, and its content would be made anew.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        hint = "check the permissions of this folder"
        raise Mm2mgrError(f"{folder}: cannot be read: {error.strerror}", hint=hint) from error
    return [folder / name for name in sorted(fnmatch.filter(names, pattern))]


def resolved_within(path: Path, folder: Path) -> Path | None:
    """Return where a path leads, None when a link leads out of the folder. OSError or RuntimeError for a loop.

    The one test for links that leave a tree; the loader, the writer of overrides and the loader of templates ask it.
    """
    target = path.resolve()
    return target if target.is_relative_to(folder.resolve()) else None


# --- writing ----------------------------------------------------------------------------------------------------------


def is_frozen(path: Path) -> bool:
    """Tell whether a freeze file exists, whatever it is, a link to nothing too; also where its folder cannot be looked
    into."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    return True


def replace_file(
    path: Path,
    text: str | bytes,
    mode: int = 0o666,
    *,
    like: os.stat_result | None = None,
    only_if: Callable[[], bool] = lambda: True,
) -> bool:
    """Replace a file in one step by a draft beside it, on the disk already; OSError leaves the old one as it is.

    OSError also for what is no regular file, such as a pipe. `like` gives the new file the owner and mode of another
    one. False, and nothing replaced, if `only_if` is false then.
    """
    if kind := special_kind(path):
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            if like:
                with suppress(PermissionError):  # only root gives files away
                    os.fchown(file.fileno(), like.st_uid, like.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
            file.write(text.encode() if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        if not only_if():
            return False
        draft.replace(path)
        return True
    finally:
        draft.unlink(missing_ok=True)


@dataclass(frozen=True)
class FileKind:
    """A kind of result file: its name in messages, how its first characters identify it, and its mode."""

    name: str
    is_one: Callable[[str], bool]
    mode: int = 0o666
    failure: str = "cannot be written"


def check_free(path: Path, kind: FileKind) -> bool:
    """Refuse a path that holds a file of another kind; True if it may be replaced, False for a pipe or a device."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open(encoding="utf-8", errors="replace") as file:
            head = file.read(_HEAD_CHARACTERS)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise _unwritable(path, kind, error) from error
    if head.strip() and not kind.is_one(head):
        problem = f"{path} exists and is not {kind.name} of mm2mgr; it was left as it is"
        raise Mm2mgrError(problem, hint="name another file, or remove this one")
    return True


def write_whole(path: Path, text: str, kind: FileKind) -> None:
    """Write a result file; one of this kind, or a link's target, is replaced in one step; a pipe is written to."""
    try:
        if check_free(path, kind):
            replace_file(Path(os.path.realpath(path)), text, kind.mode)
        else:
            opened = open_to_write(path)
            try:
                write_all(opened, text.encode())
            finally:
                os.close(opened)
    except OSError as error:
        raise _unwritable(path, kind, error) from error


def open_to_write(path: Path, flags: int = 0) -> int:
    """Open what a user named to write to (file, pipe, terminal); OSError at once for a pipe that nobody reads."""
    try:
        opened = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | flags, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(path.stat().st_mode):
            error.strerror = "it is a pipe, and nobody reads it"
        raise
    if stat.S_ISBLK(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "it is a device")
    return opened


def write_all(opened: int, data: bytes, wait_seconds: float = PIPE_SECONDS) -> None:
    """Write all of the data; OSError where it does not fit, or the reader of a pipe takes nothing for so long.

    What was written of it is taken back where that is possible, so that no file ends in the middle of a line.
    """
    left, size = memoryview(data), os.fstat(opened).st_size
    room = select.poll()
    room.register(opened, select.POLLOUT)
    try:
        while left:
            try:
                left = left[os.write(opened, left) :]
            except BlockingIOError:
                if not room.poll(wait_seconds * 1000):
                    raise OSError(errno.EAGAIN, f"its reader took nothing for {wait_seconds:g} s") from None
    except OSError:
        written, status = len(data) - len(left), os.fstat(opened)
        if written and stat.S_ISREG(status.st_mode) and status.st_size == size + written:
            os.ftruncate(opened, size)
        raise


def _unwritable(path: Path, kind: FileKind, error: OSError) -> Mm2mgrError:
    return Mm2mgrError(f"{path}: {kind.failure}: {error.strerror}", hint="name another file")


# --- folders of the user ----------------------------------------------------------------------------------------------

# Not platformdirs: it takes 20 ms to import, has no answer for a user without a home folder, and would move the
# recorded losses of users on macOS.


def cache_folder() -> Path:
    """Return $MM2MGR_CACHE, or ~/.cache/mm2mgr; Mm2mgrError where no home folder is known."""
    folder = os.environ.get("MM2MGR_CACHE")
    return Path(folder) if folder else _home("MM2MGR_CACHE") / ".cache" / "mm2mgr"


def cache_file(name: str, *made_of: object, suffix: str = "") -> Path:
    """Return where the cache has a file or folder that fits only what it was made of, such as a Java and its jars."""
    import hashlib  # OpenSSL, which most commands never need

    inputs = " ".join(map(str, made_of))
    return cache_folder() / f"{name}-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}{suffix}"


def state_folder() -> Path:
    """Return $MM2MGR_STATE, else mm2mgr below $XDG_STATE_HOME, else ~/.local/state/mm2mgr; Mm2mgrError as above."""
    if folder := os.environ.get("MM2MGR_STATE"):
        return Path(folder)
    folder = os.environ.get("XDG_STATE_HOME")
    return (Path(folder) if folder else _home("MM2MGR_STATE") / ".local" / "state") / "mm2mgr"


def _home(variable: str) -> Path:
    try:
        return Path.home()
    except RuntimeError as error:  # no HOME, and this user is not in the machine's list
        hint = f"set ${variable} to a folder that can be written"
        raise Mm2mgrError(f"this user has no home folder, and ${variable} is not set", hint=hint) from error


def locked_working_folder(path: str | Path, error: OSError) -> Mm2mgrError | None:
    """Return the error that says why a relative path was refused: the working folder may not be entered. None for any
    other reason."""
    if not isinstance(error, PermissionError) or os.path.isabs(path) or os.access(".", os.X_OK):
        return None
    return Mm2mgrError(
        f"{path}: the working folder {_working_folder()} cannot be read: {error.strerror}",
        hint=f"start mm2mgr in a folder that user {os.getuid()} may enter (docker run --workdir FOLDER; workingDir: of"
        " a container), or let that user enter this one; --clusters and --templates with full paths need none",
    )


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # a folder above it is locked, too
        return os.environ.get("PWD", "that it was started in")


# --- locks between processes ------------------------------------------------------------------------------------------

# A lock file keeps the name of the process that holds it, for those who wait. It stays when the lock is given back:
# whoever removed it could hand the lock to two others at once. Not filelock: it cannot lock a folder, nor name the
# holder.


class Locked(Mm2mgrError):
    """Another process held the lock to the end of the time allowed."""


@contextmanager
def hold_lock(
    path: Path, purpose: str, wait_seconds: float, say: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Hold the lock file, created where it is missing, or lock a folder itself; OSError where the place allows neither.

    `say` is called once with the holder's name; Locked after `wait_seconds`. `purpose` says what is waiting.
    """
    opened = _open_lock(path)
    try:
        _acquire(opened, path, purpose, wait_seconds, say)
        _sign(opened)
        try:
            yield
        finally:
            _sign(opened, leaving=True)
    finally:
        os.close(opened)  # and with it the lock


def _open_lock(path: Path) -> int:
    if path.is_dir():
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    # Neither through a link nor waiting for the other end of a pipe.
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not _is_file(opened):
        os.close(opened)
        raise Mm2mgrError(f"{path} is not a lock file: it is not a regular file", hint="move it away")
    return opened


def _acquire(opened: int, path: Path, purpose: str, wait_seconds: float, say: Callable[[str], None]) -> None:
    began, pause, reported = timing.now(), 0.005, False
    while True:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            waited = timing.now() - began
        if waited >= wait_seconds:
            how = f"is still locked after {waited:.0f} s" if wait_seconds else "is locked"
            hint = f"wait until it is done, or end it if it hangs (`fuser -v {path}` on its machine names it)"
            raise Locked(f"{purpose}: {path} {how} by {_holder(opened)}", hint=hint)
        if not reported and waited >= min(_SAID_AFTER_SECONDS, wait_seconds / 2):
            reported = True
            say(f"{purpose}: waiting up to {wait_seconds:.0f} s for {path}, locked by {_holder(opened)}")
        timing.sleep(min(pause, max(0.0, wait_seconds - waited)))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _sign(opened: int, *, leaving: bool = False) -> None:
    """Write down who holds the lock; a disk that is full costs only the name."""
    if not _is_file(opened):
        return
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]]) if sys.argv else "?"
    name = (
        f"process {os.getpid()} ({command}) on {os.uname().nodename} since"
        f" {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}"
    )
    try:
        os.ftruncate(opened, 0)
        if not leaving:
            os.pwrite(opened, name.encode(errors="replace")[:_NAME_BYTES], 0)
    except OSError:
        return


def _holder(opened: int) -> str:
    try:
        name = os.pread(opened, _NAME_BYTES, 0).decode(errors="replace") if _is_file(opened) else ""
    except OSError:
        name = ""
    return "".join(letter if letter.isprintable() else "?" for letter in name) or "an unknown process"


def _is_file(opened: int) -> bool:
    return stat.S_ISREG(os.fstat(opened).st_mode)
