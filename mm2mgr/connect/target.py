"""The address of a Connect cluster: URLs, credentials and TLS files, as values whose repr hides secrets.

The values are checked for syntax only; no file and no socket is opened.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from mm2mgr.connect.errors import ConnectError
from mm2mgr.secrets import remember


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
        token = self.token.strip()
        # An HTTP library quotes an illegal header value in its error, and the token would be in the log.
        if not token or not (token.isascii() and token.isprintable()):
            raise ConnectError(
                "the bearer token is empty or holds characters that no HTTP header can carry",
                hint="Check the file or variable it comes from.",
            )
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
class ConnectTarget:
    """One Connect cluster: its alias and the REST URLs of its workers (or of a proxy), tried in this order."""

    name: str
    urls: tuple[str, ...]
    auth: BasicAuth | BearerAuth | None = None
    tls: TlsFiles | None = None

    def __post_init__(self) -> None:
        if not self.urls:
            raise ConnectError(f"Connect cluster '{self.name}' has no URL", cluster=self.name)
        object.__setattr__(self, "urls", tuple(self._checked(url) for url in self.urls))

    @property
    def credentials(self) -> str:
        """Say which kind of credentials a request carries, never their value."""
        kinds = [self.auth.kind] if self.auth else []
        if self.tls and self.tls.certificate_file:
            kinds.append("a TLS client certificate")
        return " and ".join(kinds) or "no credentials"

    def _checked(self, url: str) -> str:
        import httpx  # loaded with the client in any case; the types do without it

        try:
            parts = urlsplit(url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
            usable = usable and not any(map(str.isspace, url))
            httpx.URL(url)  # it takes fewer hosts for one than Python does
        except (ValueError, httpx.InvalidURL):
            usable = False
        if not usable:
            raise self._error(
                "has a URL that is not http(s)://host[:port][/path]", "Check `url` of the Connect cluster."
            )
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            hint = "Give credentials as `auth`: a URL is printed in messages and logs."
            raise self._error("has a URL with credentials, a query or a fragment in it", hint)
        return url.rstrip("/")

    def _error(self, what: str, hint: str) -> ConnectError:
        return ConnectError(f"Connect cluster '{self.name}' {what}", hint=hint, cluster=self.name)
