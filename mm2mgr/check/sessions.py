"""Logs in to Kafka as every client does, all at once, and asks each login what it may do. In: Logins. Out: Sessions.

What fails is kept as the session's failure, so that one dead cluster or wrong password hides nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from mm2mgr.check.logins import Login
from mm2mgr.check.principals import Principal, principal_of
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.acls import Acl, Right, Said
from mm2mgr.kafka.acting import ActingAs, Seen
from mm2mgr.kafka.rights import may
from mm2mgr.observe.reading import Failure

_AT_ONCE = 64
_LEAST_SECONDS = 1.0


@dataclass
class Session:
    """One login while it is being used. Not `usable`: its settings cannot be used on this machine, so nobody logged in."""

    login: Login
    principal: Principal
    servers: str
    acting: ActingAs | None = None
    seen: Seen | None = None
    failure: Failure | None = None
    usable: bool = True
    said: dict[Right, Said] = field(default_factory=dict)
    acls: tuple[Acl, ...] | None = None

    @property
    def alias(self) -> str:
        return self.login.cluster

    def attempt(self, seconds: float, do: Callable[[ActingAs], None], *, optional: bool = False) -> None:
        """Do something as this login within so many seconds; a failure ends the session's use, unless it is optional."""
        if self.acting is None or self.failure:
            return
        self.acting.within(max(_LEAST_SECONDS, seconds))
        try:
            do(self.acting)
        except Mm2mgrError as error:
            self.failure = None if optional else Failure.of(error)

    def look(self, seconds: float) -> None:
        """Log in and see."""

        def do(acting: ActingAs) -> None:
            self.seen = acting.look()

        self.attempt(seconds, do)

    def ask(self, rights: Iterable[Right], seconds: float) -> None:
        """Ask for rights."""

        def do(acting: ActingAs) -> None:
            if self.seen:
                self.said.update(may(acting, rights, self.seen))

        self.attempt(seconds, do)

    def read_acls(self, seconds: float) -> None:
        """Read the cluster's ACLs, if this login may."""

        def do(acting: ActingAs) -> None:
            self.acls = acting.acls(self.seen) if self.seen else None

        self.attempt(seconds, do, optional=True)


class Team:
    """The sessions of a check and the threads they run in; `left` seconds until the deadline."""

    def __init__(self, timeout_seconds: float, threads: ThreadPoolExecutor) -> None:
        self._end = time.monotonic() + timeout_seconds
        self._threads = threads
        self.sessions: dict[Login, Session] = {}

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    def log_in(self, accesses: dict[Login, KafkaAccess]) -> None:
        """Open a session for each login; half of the time is kept for what comes after."""
        seconds = self.left / 2
        opened = self._threads.map(lambda login: _open(login, accesses[login], seconds), accesses)
        self.sessions.update(zip(accesses, opened, strict=True))

    def run(self, jobs: Iterable[Callable[[], None]]) -> None:
        """Run jobs at the same time; they do not raise."""
        for done in [self._threads.submit(job) for job in jobs]:
            done.result()

    def of(self, alias: str) -> list[Session]:
        """Return the sessions of a cluster that got in, mm2mgr's own first."""
        return [each for each in self.sessions.values() if each.alias == alias and each.seen and not each.failure]

    def may_ask_of_groups(self, alias: str, *, lives_there: bool, is_source: bool) -> bool:
        """Tell whether asking about a group creates nothing: Kafka makes its topic of group offsets at the first such question.

        Workers live with a group of their own; a source whose groups are to be translated has some, unless one sees it has not.
        """
        seen = [session.seen for session in self.of(alias) if session.seen]
        if lives_there or any(each.had_groups or each.groups for each in seen):
            return True
        return is_source and not any(each.had_groups is False for each in seen)


def _open(login: Login, access: KafkaAccess, seconds: float) -> Session:
    session = Session(login, principal_of(login), access.bootstrap_servers)
    try:
        session.acting = ActingAs(access, max(_LEAST_SECONDS, seconds))
    except Mm2mgrError as error:
        session.failure, session.usable = Failure.of(error), False
    session.look(seconds)
    return session


@contextmanager
def team(timeout_seconds: float) -> Iterator[Team]:
    """Yield a Team; its connections are closed at the end."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as threads, ExitStack() as stack:
        made = Team(timeout_seconds, threads)
        yield made
        for session in made.sessions.values():
            if session.acting:
                stack.enter_context(session.acting)
