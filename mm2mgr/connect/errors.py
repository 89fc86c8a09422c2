"""What a Kafka Connect cluster can answer that is not a success; a subclass only where a caller acts on it.

ConnectError                 names the Connect cluster, the connector and what to do (`hint`)
├── ConnectUnreachable       no URL of the cluster answered; lists each URL with its reason
├── ConnectAuthError         401 or 403: the credentials were refused
├── ConnectBusy              still rebalancing, starting or timing out when the call's deadline came
├── OutcomeUnknown           a write lost its answer, and reading back could not tell whether it happened
├── NotFound                 no such connector or task, or no status yet
├── AlreadyExists            create met a connector of that name
├── Invalid                  400: the worker refused the request; `lines` holds its reasons
├── Unsupported              this worker's version or settings lack the endpoint
└── WrongBody                the body is not what Connect sends (a proxy's page, empty, truncated)
"""

from __future__ import annotations

from mm2mgr.errors import Mm2mgrError


class ConnectError(Mm2mgrError):
    """A Kafka Connect cluster refused or failed a request; `status` is the HTTP code, if there was an answer."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        cluster: str | None = None,
        connector: str | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.cluster = cluster
        self.connector = connector
        self.status = status


class ConnectUnreachable(ConnectError):
    """No URL of the Connect cluster gave an answer."""


class ConnectAuthError(ConnectError):
    """The Connect cluster refused the credentials that were sent, or asked for some."""


class ConnectBusy(ConnectError):
    """The Connect cluster did not do the request now; the same request may succeed later."""


class OutcomeUnknown(ConnectError):
    """A write may or may not have happened: its answer was lost and could not be replaced by reading back."""


class NotFound(ConnectError):
    """The connector or task does not exist, or (for a status) has not reported yet."""


class AlreadyExists(ConnectError):
    """A connector of this name exists already."""


class Invalid(ConnectError):
    """The worker refused the request as invalid; `lines` holds its reasons, with secrets masked."""

    lines: tuple[str, ...] = ()


class Unsupported(ConnectError):
    """The worker lacks the endpoint: it is too old, or its settings switch it off."""


class WrongBody(ConnectError):
    """The answer's body has not the shape of Connect's REST API."""
