"""What counts as a secret, how it is masked, and how placeholders of Kafka's config providers are resolved on this machine.

In: key names and values. Out: masked copies for people, clear values only for the client that needs them. Never logs.
"""

from __future__ import annotations

import re

MASK = "[hidden]"
_SECRET_KEY = re.compile(
    r"(password|passphrase|secret|token(?!\.endpoint)|credential|jaas\.config$|keystore\.key$|bearer|api[._-]?key)",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"\$\{[^}]+\}")
_JAAS_SECRET = re.compile(
    r"((?:\w*password|\w*secret|\w*token)\w*\s*=\s*)(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s;]+)", re.IGNORECASE
)


def is_secret(key: str) -> bool:
    """Tell whether the value of this key must not be shown (passwords, JAAS strings, private keys, tokens)."""
    return _SECRET_KEY.search(key) is not None


def is_placeholder(value: str) -> bool:
    """Tell whether the whole value is one `${provider:…}` reference, which is no secret itself."""
    return _PLACEHOLDER.fullmatch(value.strip()) is not None


def mask(key: str, value: str) -> str:
    """Return what may be shown of a value: placeholders stay, of a JAAS string only the secret parts are hidden."""
    if not is_secret(key) or is_placeholder(value) or not value:
        return value
    if key.endswith("jaas.config"):
        return _JAAS_SECRET.sub(lambda m: m[1] + (m[2] if is_placeholder(m[2].strip("\"'")) else f'"{MASK}"'), value)
    return MASK


def masked(config: dict[str, str]) -> dict[str, str]:
    """Return a copy of a flat config that may be shown or stored."""
    return {key: mask(key, value) for key, value in config.items()}
