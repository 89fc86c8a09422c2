"""What a Kafka Connect cluster can answer that is not a success; a subclass only where a caller acts on it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from mm2mgr.errors import Mm2mgrError
from mm2mgr.secrets import cut, mask_text


class ConnectError(Mm2mgrError):
    """Names Connect cluster, connector and what to do (`hint`); `status`: the HTTP code, if there was an answer."""

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
    """No URL of the Connect cluster answered; lists each URL with its reason. `silent_urls` accepted the connection."""

    silent_urls: tuple[str, ...] = ()


class ConnectAuthError(ConnectError):
    """401 or 403: the Connect cluster refused the credentials that were sent, or asked for some."""


class ConnectBusy(ConnectError):
    """Still rebalancing, starting or timing out when the call's deadline came; the same request may succeed later."""


class OutcomeUnknown(ConnectError):
    """A write may or may not have happened: its answer was lost and could not be replaced by reading back."""


class NotFound(ConnectError):
    """The connector or task does not exist, or (for a status) has not reported yet."""


class AlreadyExists(ConnectError):
    """A connector of this name exists already."""


class Overwritten(ConnectError):
    """A write was refused for a moment, and before it could be repeated somebody else wrote."""


class Invalid(ConnectError):
    """400: the worker refused the request; `lines` holds its reasons, with secrets masked."""

    lines: tuple[str, ...] = ()


class Unsupported(ConnectError):
    """The worker lacks the endpoint: it is too old, or its settings switch it off."""


class WrongBody(ConnectError):
    """The body is not what Connect sends: a proxy's page, empty, truncated."""


_BUSY_HINT = "It was retried until the deadline: wait until the workers have settled, then run the same command again."
_LOST_HINT = "Nothing was written twice. Plan again: a plan starts from what the Connect cluster really holds."
_MASKED = 1_000_000  # of a text are masked before it is cut: more would take seconds
PAGE_HINT = "Check `url` of the Connect cluster: something other than a Connect worker may be answering there."


@dataclass(frozen=True)
class Call:
    """One request and what is needed to word its errors."""

    cluster: str
    method: str
    path: str
    connector: str | None = None
    body: object = field(default=None, repr=False)
    write: bool = False
    credentials: str = "no credentials"
    noun: str = "Connect cluster"

    def error(
        self, kind: type[ConnectError], problem: str, *, hint: str | None = None, status: int | None = None
    ) -> ConnectError:
        """Return an error of this kind that names the Connect cluster, the connector and the request."""
        who = f", connector '{self.connector}'" if self.connector is not None else ""
        message = f"{self.noun} '{self.cluster}'{who}: {self.method} {self.path}: {problem}"
        return kind(message, hint=hint, cluster=self.cluster, connector=self.connector, status=status)


@dataclass
class Answer:
    """What came back: HTTP status, the body, and where it came from.

    Its text goes before an error about it is raised: an error keeps the variables of the frames that it came through
    until Python looks for garbage, and a body may be large.
    """

    status: int
    text: str = field(default="", repr=False)
    url: str = ""
    location: str = ""

    def json(self, call: Call) -> object:
        """Return the decoded body, or raise WrongBody that says what the body looks like."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):  # nonsense may be nested too deeply for the decoder
            # Never the text of broken JSON: it may be half of a connector's config.
            page = self.text.lstrip().startswith("<")
            kind = f"a page: {cut(self.text[:_MASKED])}" if page else f"{len(self.text)} characters of something else"
            problem = f"HTTP {self.status} with " + (kind if self.text.strip() else "an empty body") + ", expected JSON"
        self.text = ""
        raise call.error(WrongBody, problem, hint=PAGE_HINT, status=self.status)

    @property
    def message(self) -> str | None:
        """The worker's own error text; None when the body is not one of Connect's error bodies."""
        try:
            body = json.loads(self.text)
        except (ValueError, RecursionError):
            return None
        return str(body.get("message") or "") if isinstance(body, dict) and "error_code" in body else None


def error_of(answer: Answer, call: Call) -> ConnectError | None:
    """Return the error that an answer stands for, None for success."""
    if 200 <= answer.status < 300:
        return None
    message = answer.message
    message_text = mask_text((answer.text.strip() if message is None else message)[:_MASKED])
    return _BY_STATUS.get(answer.status, _other)(answer, call, message_text)


def _invalid(answer: Answer, call: Call, reason: str) -> ConnectError:
    lines = tuple(line for line in reason.splitlines() if line and not line.startswith(_FRAME))
    hint = "Correct the flow; `mm2mgr render --origins` shows where each key comes from."
    if "STOPPED state" in reason:
        hint = "Stop the connector, wait until its status shows STOPPED without tasks, then try again."
    if answer.message is None:
        hint = "The web server before Connect refused the URL: it takes no connector name with / \\ or % in it."
    error = call.error(Invalid, f"HTTP 400: {cut(chr(10).join(lines))}", hint=hint, status=400)
    if isinstance(error, Invalid):
        error.lines = tuple(cut(line) for line in lines)
    return error


# Connect frames its list of reasons with these two sentences.
_FRAME = ("Connector configuration is invalid and contains", "You can also find the above list of errors")


def _refusal_error(answer: Answer, call: Call, reason: str) -> ConnectError:
    if "Topic tracking is disabled" in reason:
        return _unsupported_error(answer, call, reason)
    hint = (
        f"The request carried {call.credentials}. Check `auth`, `headers` and `tls` of Connect cluster '{call.cluster}'"
    )
    hint += " and what that user may do." if answer.status == 403 else "."
    return call.error(ConnectAuthError, f"HTTP {answer.status}: access refused", hint=hint, status=answer.status)


def _refused_by_proxy(answer: Answer, call: Call, reason: str) -> ConnectError:
    hint = f"Check `proxy: {{basic: …}}` of Connect cluster '{call.cluster}'."
    return call.error(ConnectAuthError, "HTTP 407: the proxy refused access", hint=hint, status=407)


def _missing(answer: Answer, call: Call, reason: str) -> ConnectError:
    if answer.message is None:
        # Jetty answers with its own page until the worker has registered its resources.
        problem = "HTTP 404 with a page that is not from Connect: is the worker still starting?"
        return call.error(ConnectBusy, problem, hint=PAGE_HINT, status=404)
    if reason == "HTTP 404 Not Found":
        return _unsupported_error(answer, call, reason)
    hint = "List the connectors of this Connect cluster to see the names that exist."
    if reason.startswith("No status found"):
        hint = "A connector has no status while it starts, up to minutes when its source cluster does not answer."
    return call.error(NotFound, f"HTTP 404: {cut(reason)}", hint=hint, status=404)


def _unsupported_error(answer: Answer, call: Call, reason: str) -> ConnectError:
    hint = (
        "Check the worker's version: stop and reading offsets need Kafka 3.5, altering offsets 3.6, initial_state 3.7."
    )
    return call.error(Unsupported, f"HTTP {answer.status}: {cut(reason)}", hint=hint, status=answer.status)


def _conflict(answer: Answer, call: Call, reason: str) -> ConnectError:
    if "already exists" in reason:
        hint = "Plan again: it was created meanwhile. Update it instead of creating it, or pick another name."
        return call.error(AlreadyExists, f"HTTP 409: {cut(reason)}", hint=hint, status=409)
    # Stale configuration, no known leader URL, conflicting operation: all pass by themselves.
    return call.error(ConnectBusy, f"HTTP 409: {cut(reason)}", hint=_BUSY_HINT, status=409)


def _failure_error(answer: Answer, call: Call, reason: str) -> ConnectError:
    # The herder checks this before it acts, so nothing was written.
    if "Request cannot be completed because a rebalance is expected" in reason:
        return call.error(ConnectBusy, f"HTTP 500: {cut(reason)}", hint=_BUSY_HINT, status=500)
    if "IO Error trying to forward REST request" in reason:
        if "Connection refused" in reason:  # it was never forwarded
            return call.error(ConnectBusy, reason, hint=_BUSY_HINT, status=500)
        return lost_answer_error(call, reason)
    if "Request timed out" in reason:
        return lost_answer_error(call, reason)
    if call.write and "Unrecognized field" in reason:
        return _unsupported_error(answer, call, reason)
    hint = "The worker's log has the stack trace of this error."
    return call.error(ConnectError, f"HTTP 500: {cut(reason)}", hint=hint, status=500)


def _other(answer: Answer, call: Call, reason: str) -> ConnectError:
    problem = f"HTTP {answer.status}: {cut(reason)}"
    if answer.status in {429, 503}:
        return call.error(ConnectBusy, problem, hint=_BUSY_HINT, status=answer.status)
    if answer.status in {502, 504}:
        return lost_answer_error(call, problem)
    if 300 <= answer.status < 400 and answer.location:
        # Following it could hand the credentials to another host.
        target = urlsplit(answer.location)
        place = f"{target.scheme}://{target.hostname}" if target.hostname else "another path"
        problem = f"HTTP {answer.status}: redirected to {place}, which is not followed"
        hint = (
            "Put the final URL into `url` of the Connect cluster, if you trust that host; a login page wants `auth` or"
            " `headers`."
        )
        return call.error(ConnectError, problem, hint=hint, status=answer.status)
    return call.error(ConnectError, problem, hint=PAGE_HINT, status=answer.status)


_BY_STATUS = {
    400: _invalid,
    401: _refusal_error,
    403: _refusal_error,
    404: _missing,
    405: _unsupported_error,
    407: _refused_by_proxy,
    409: _conflict,
    500: _failure_error,
}


def lost_answer_error(call: Call, reason: str) -> ConnectError:
    """Return the error for an answer that never came: a write may have happened, a read is simply repeated."""
    if call.write:
        return call.error(OutcomeUnknown, f"the answer was lost: {cut(reason)}", hint=_LOST_HINT)
    return call.error(ConnectBusy, cut(reason), hint=_BUSY_HINT)
