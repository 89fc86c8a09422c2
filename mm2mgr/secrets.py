"""What counts as a secret, how it is masked, and how placeholders of Kafka's config providers are resolved on this machine.

In: key names and values. Out: masked copies for people, clear values only for the client that needs them. Never logs.
"""

from __future__ import annotations

import re

MASK = "[hidden]"
_SECRET_KEY = re.compile(
    r"(passw(or)?d|pwd|passphrase|secret|credential|jaas|private|\.key$|token(?!\.endpoint|auth)|(?<!oauth)bearer"
    r"|api[._-]?key|access[._-]?key|user\.info)",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"\$\{[^}]+\}")
# What is one by its look, under whatever (misspelt) key: a JAAS option, user and password in a URL, a token.
_SECRET_LOOK = re.compile(r"(password|secret|passphrase)\s*=|://[^/\s:@]+:[^/\s@]+@|^\s*bearer\s+\S", re.IGNORECASE)
# A JAAS string is shown as its module and options, and of the options only these; any other may be a secret.
_JAAS_MODULE = re.compile(r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_JAAS_OPTION = re.compile(r"([\w.-]+)(\s*=\s*)(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s;]+)")
_JAAS_OPEN = frozenset(
    [
        "username",
        "clientId",
        "principal",
        "serviceName",
        "useKeyTab",
        "keyTab",
        "useTicketCache",
        "storeKey",
        "doNotPrompt",
        "tokenauth",
        "scope",
        "debug",
    ]
)


def is_secret(key: str) -> bool:
    """Tell whether the value of this key must not be shown (passwords, JAAS strings, private keys, tokens)."""
    return _SECRET_KEY.search(key) is not None


def is_placeholder(value: str) -> bool:
    """Tell whether the whole value is one `${provider:…}` reference, which is no secret itself."""
    return _PLACEHOLDER.fullmatch(value.strip()) is not None


def mask(key: str, value: str) -> str:
    """Return what may be shown of a value: placeholders stay, of a JAAS string only the secret parts are hidden."""
    if not is_secret(key) and _SECRET_LOOK.search(value):
        return MASK
    if not is_secret(key) or is_placeholder(value) or not value:
        return value
    if key.endswith("jaas.config"):
        return _masked_jaas(value)
    return MASK


def _masked_jaas(value: str) -> str:
    module = _JAAS_MODULE.match(value)
    rest = _JAAS_OPTION.sub("", value[module.end() :]) if module else value
    if not module or rest.strip("; \t\r\n"):  # not of the form that JAAS has, so nothing tells what is secret in it
        return MASK

    def shown(option: re.Match[str]) -> str:
        is_open = option[1] in _JAAS_OPEN or is_placeholder(option[3].strip("\"'"))
        return option[1] + option[2] + (option[3] if is_open else f'"{MASK}"')

    return value[: module.end()] + _JAAS_OPTION.sub(shown, value[module.end() :])


def masked(config: dict[str, str]) -> dict[str, str]:
    """Return a copy of a flat config that may be shown or stored."""
    return {key: mask(key, value) for key, value in config.items()}
