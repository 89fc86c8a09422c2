"""Where a Connect cluster is and how it is reached: URLs, credentials, headers, TLS files, proxy; repr hides secrets.

No HTTP library is imported here.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mm2mgr.connect.errors import ConnectError
from mm2mgr.secrets import remember


def _header_value(name: str, value: str) -> str:
    """Return a value without surrounding white space (a file's last newline), if an HTTP header can carry it."""
    value = value.strip()
    # An HTTP library quotes an illegal header value in its error, and the token would be in the log.
    if not value or not (value.isascii() and value.isprintable()):
        hint = "Check the file or variable it comes from."
        raise ConnectError(f"{name} is empty or holds characters that no HTTP header can carry", hint=hint)
    return value


@dataclass(frozen=True)
class BasicAuth:
    """HTTP basic credentials."""

    username: str
    password: str = field(repr=False)
    kind = "HTTP basic credentials"

    def __post_init__(self) -> None:
        remember({"password": self.password, "authorization": self.header()})

    def header(self) -> str:
        """Return the value of the Authorization header."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


@dataclass(frozen=True)
class BearerAuth:
    """A bearer token; surrounding white space (a token file's last newline) is dropped."""

    token: str = field(repr=False)
    kind = "a bearer token"

    def __post_init__(self) -> None:
        token = _header_value("the bearer token", self.token)
        object.__setattr__(self, "token", token)
        remember({"token": token})

    def header(self) -> str:
        """Return the value of the Authorization header."""
        return "Bearer " + self.token


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: who to trust (None: the system's authorities) and, for mutual TLS, who we are."""

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        remember({"key.password": self.key_password or ""})


@dataclass(frozen=True)
class ProxyServer:
    """An HTTP proxy; user and password may also come within its URL, as they do in variables of an environment."""

    url: str = field(repr=False)
    basic: BasicAuth | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
        except ValueError:  # refused below, without its text
            parts = urlsplit("")
        bare = self.url
        if parts.username or parts.password:
            bare = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            from_url = BasicAuth(unquote(parts.username or ""), unquote(parts.password or ""))
            object.__setattr__(self, "basic", self.basic or from_url)
        object.__setattr__(self, "url", _check_url(bare, "`proxy`", "the URL of the proxy"))


@dataclass(frozen=True)
class ConnectTarget:
    """One Connect cluster: its alias and the REST URLs of its workers (or of a gateway), tried in this order.

    `renewed` reads credentials and certificates again, as they may have changed. `timeout_seconds` bounds a read.
    `noun` says what it is, in messages.
    """

    name: str
    urls: tuple[str, ...]
    auth: BasicAuth | BearerAuth | None = None
    tls: TlsFiles | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy: ProxyServer | None = None
    timeout_seconds: float | None = None
    renewed: Callable[[], ConnectTarget] | None = field(default=None, repr=False, compare=False)
    noun: str = "Connect cluster"

    def __post_init__(self) -> None:
        if not self.urls:
            raise ConnectError(f"{self.noun} '{self.name}' has no URL", cluster=self.name)
        whose = f"{self.noun} '{self.name}'"
        object.__setattr__(
            self, "urls", tuple(_check_url(url, "`url`", f"{whose} has a URL that") for url in self.urls)
        )
        stripped = {name: _header_value(f"{whose}: the header {name}", value) for name, value in self.headers.items()}
        object.__setattr__(self, "headers", stripped)
        remember(stripped)

    @property
    def credentials(self) -> str:
        """Say which kind of credentials a request carries, never their value."""
        kinds = [self.auth.kind] if self.auth else []
        if self.tls and self.tls.certificate_file:
            kinds.append("a TLS client certificate")
        if self.headers:
            kinds.append(f"the header{'s' if len(self.headers) > 1 else ''} {', '.join(self.headers)}")
        return " and ".join(kinds) or "no credentials"


def _check_url(url: str, key: str, whose: str) -> str:
    """Return a URL without its last slash; ConnectError when no request can go there, or it holds credentials."""
    import httpx  # loaded with the client in any case; the types do without it

    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        usable = usable and not any(map(str.isspace, url))
        httpx.URL(url)  # it takes fewer hosts for one than Python does
    except (ValueError, httpx.InvalidURL):
        usable = False
    if not usable:
        raise ConnectError(f"{whose} is not http(s)://host[:port][/path]", hint=f"Check {key} of the Connect cluster.")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        hint = "Give credentials as `auth`: a URL is printed in messages and logs."
        raise ConnectError(f"{whose} has credentials, a query or a fragment in it", hint=hint)
    return url.rstrip("/")
