"""Lets a Java runtime from PyPI trust what this machine trusts, by writing Python's default certificates as a JKS file.

Such a runtime brings its own list and does not know the authority of a company's proxy, though pip and the browser do.
Only public certificates go in and out; a Java of the system is left as its administrator set it.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path

from mm2mgr.sandbox.java import Java, is_bundled

_PASSWORD = "changeit"  # noqa: S105 - Java's public default; it seals the file against accidents, nothing more
_TRUSTED_CERTIFICATE = 2


def trust_arguments(java: Java, store: Path) -> list[str]:
    """Return the JVM flag that names `store`, written now; nothing for a system Java or when somebody chose a store."""
    chosen = "javax.net.ssl.trustStore" in os.environ.get("JAVA_TOOL_OPTIONS", "")
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if chosen or not certificates or not is_bundled(java):
        return []
    store.write_bytes(java_key_store(certificates))
    return [f"-Djavax.net.ssl.trustStore={store}"]


def java_key_store(certificates: Sequence[bytes]) -> bytes:
    """Encode DER certificates in the JKS format, version 2, as sun.security.provider.JavaKeyStore reads it."""
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"ca{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    seal = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    return body + seal.digest()


def _text(text: str) -> bytes:
    encoded = text.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded
