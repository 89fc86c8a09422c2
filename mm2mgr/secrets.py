"""What counts as a secret, and the only place that masks: values of keys, and texts from outside.

Secrets that were seen (in the tree, in files, in live configs, resolved on this machine) are remembered for the life of
the process and hidden in every text that contains them.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from mm2mgr.secret_shapes import KEYS, VALUES

MASK = "[hidden]"
TEXT_CHARACTERS = 500

_SECRET_KEY = re.compile("|".join(shape.pattern for shape in KEYS), re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# What people mean when they misspell it. Each takes one slip, the long ones two.
_MISSPELT = ("password", "passwd", "passphrase", "secret", "credential", "credentials", "jaas", "token", "bearer")
_NO_SLIPS = frozenset(["passed"])
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")

_INSIDE = (
    r"(?:[^}$]|\$(?!\{))"  # of a placeholder; up to the next one only, or a text full of beginnings would take ages
)
_PLACEHOLDER = re.compile(rf"\$\{{{_INSIDE}+\}}")
# What makes a value one as a whole, under whatever key: a JAAS option, user and password in a URL, a token.
_SECRET_LOOK = re.compile(
    r"(password|secret|passphrase)\s*=|://[^/\s:@]+:[^/\s@]+@|^\s*(bearer|basic)\s+\S", re.IGNORECASE
)
_LOGIN = re.compile(r"://([^/\s:@]*+):?+([^/\s]*)@")
# A JAAS string is shown as its module and options, and of the options only these; any other may be a secret.
_JAAS_MODULE = re.compile(r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_JAAS_OPTION = re.compile(r"(?<![\w.-])([\w.-]++)(\s*=\s*)(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s;]+)")
JAAS_SHOWN = {
    *("username", "clientId", "principal", "serviceName", "useKeyTab", "keyTab"),
    *("useTicketCache", "storeKey", "doNotPrompt", "tokenauth", "scope", "debug"),
    *("awsRoleArn", "awsRoleSessionName", "awsProfileName", "awsStsRegion", "awsDebugCreds"),  # of MSK's IAMLoginModule
}
_SHAPES = tuple(re.compile(shape.pattern) for shape in VALUES)
_NO_SECRETS = frozenset(["", "true", "false", "null", "none", MASK])
# A plain word or number is hidden only where it is alone: a password `kafka` must not blank every class name.
_WHOLE_WORD = re.compile(r"[A-Za-z]{1,7}|\d{1,7}")
_SHORTEST = 4  # shorter ones are hidden under their keys only: hiding every `x` or `10` would make texts unreadable
_PEM_LINE = 8
_SHORT = 200


# --- keys and values --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=65_536)
def is_secret(key: str) -> bool:
    """Tell whether the value of this key must not be shown (passwords, JAAS strings, private keys, tokens), also if
    misspelt.
    """
    return _SECRET_KEY.search(_CAMEL.sub("_", key)) is not None or any(
        _is_slip(word.lower()) for word in _WORD.findall(key)
    )


@lru_cache(maxsize=65_536)
def _is_slip(word: str) -> bool:
    if word in _MISSPELT or word in _NO_SLIPS:
        return False  # spelt right: the expression knows where it is no secret
    letters = set(word)
    return any(
        abs(len(word) - len(meant)) <= slips
        and len(letters.symmetric_difference(meant)) <= 2 * slips  # a slip takes one letter away and brings another
        and _distance(word, meant) <= slips
        for meant in _MISSPELT
        if (slips := 2 if len(meant) >= 8 else 1)
    )


def _distance(first: str, other: str) -> int:
    """Count the letters to change, add, leave out or swap with their neighbour to make one word of the other."""
    before, above = list[int](), list(range(len(other) + 1))
    for row, letter in enumerate(first, 1):
        here = [row]
        for column, letter_of_other in enumerate(other, 1):
            cost = min(above[column] + 1, here[-1] + 1, above[column - 1] + (letter != letter_of_other))
            if row > 1 and column > 1 and letter == other[column - 2] and first[row - 2] == letter_of_other:
                cost = min(cost, before[column - 2] + 1)
            here.append(cost)
        before, above = above, here
    return above[-1]


def is_placeholder(value: str) -> bool:
    """Tell whether the whole value is one `${provider:…}` reference, which is no secret itself."""
    return _PLACEHOLDER.fullmatch(value.strip()) is not None


def is_jaas(value: str) -> bool:
    """Tell whether a value begins as a JAAS string does, whatever its key is called."""
    return _JAAS_MODULE.match(value) is not None


def mask(key: str, value: str) -> str:
    """Return what may be shown of a value: placeholders stay, of a JAAS string only the secret parts are hidden."""
    return _short(key, value) if len(value) < _SHORT else _shown_value(key, value)


def _shown_value(key: str, value: str) -> str:
    if not value or is_placeholder(value):
        return value
    if is_secret(key):
        return _masked_jaas(value) if key.endswith("jaas.config") else MASK
    return MASK if _SECRET_LOOK.search(value) else mask_text(value)


_short = lru_cache(maxsize=65_536)(_shown_value)  # most values of an estate are the same few


def mask_config(config: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of a flat config that may be shown or stored."""
    return {key: mask(key, value) for key, value in config.items()}


def lasting_parts(key: str, value: str) -> frozenset[str]:
    """Return the parts of a value that must not be lost: what is or may be a secret of it, and where a secret is to be
    read.
    """
    if is_placeholder(value):
        return frozenset([value.strip()] if is_secret(key) else [])
    parts = frozenset(part for part in _secrets(key, value) if part.lower() not in _NO_SECRETS)
    return parts or frozenset(_PLACEHOLDER.findall(value) if is_secret(key) else [])


def _masked_jaas(value: str) -> str:
    module = _JAAS_MODULE.match(value)
    rest = _JAAS_OPTION.sub("", value[module.end() :]) if module else value
    if not module or rest.strip("; \t\r\n"):  # not of the form that JAAS has, so nothing shows what is secret in it
        return MASK

    def mask_option(option: re.Match[str]) -> str:
        is_open = option[1] in JAAS_SHOWN or is_placeholder(option[3].strip("\"'"))
        return option[1] + option[2] + (option[3] if is_open else f'"{MASK}"')

    return value[: module.end()] + _JAAS_OPTION.sub(mask_option, value[module.end() :])


# --- what was seen ----------------------------------------------------------------------------------------------------

_known_secrets: set[str] = set()


def remember(config: Mapping[str, object]) -> None:
    """Remember every secret of a config, however a worker, broker or proxy may write it in a text of its own."""
    for key, value in config.items():
        if isinstance(value, str) and (is_secret(key) or _may_hold_secret(value)):
            _remember(key, value)


@lru_cache(maxsize=65_536)
def _may_hold_secret(value: str) -> bool:
    return "=" in value or _LOGIN.search(value) is not None or any(shape.search(value) for shape in _SHAPES)


@lru_cache(maxsize=4096)
def _remember(key: str, value: str) -> None:
    new = {form for secret in _secrets(key, value) for form in _forms(secret)} - _known_secrets
    if new:
        _known_secrets.update(new)
        _short.cache_clear()


def forget() -> None:
    """Forget every secret that was seen; for tests, of which each is a process of its own to the program."""
    _known_secrets.clear()
    _remember.cache_clear()
    _short.cache_clear()


def _secrets(key: str, value: str) -> Iterator[str]:
    """Yield what is secret of a value: all of it, or the parts of a JAAS string, a PEM, a URL, a token or
    `user:password`.
    """
    for shape in _SHAPES:
        for match in shape.finditer(value):
            yield from _bare(match["secret"], is_login=value[match.end("secret") :].startswith("@"))
    for user, password in _LOGIN.findall(value):  # of a value of its own a quote ends nothing
        yield password or user
    for start, end in (*_assigned_values(value), *_options(value)):
        yield value[start:end].strip("\\\"'")
    yield from (match["token"] for match in re.compile(_SCHEME, re.IGNORECASE).finditer(value) if _is_token(match))
    if not is_secret(key) or is_placeholder(value):
        return
    if module := _JAAS_MODULE.match(value):
        for option, _, quoted in _JAAS_OPTION.findall(value[module.end() :]):
            if option not in JAAS_SHOWN:
                plain = quoted[1:-1] if quoted[:1] in "\"'" else quoted
                yield from (plain, re.sub(r"\\(.)", r"\1", plain))
        return
    yield value
    yield value.strip()
    if key.endswith("user.info") or re.match(r"(?i)(basic|bearer)\s", value):
        yield re.split(r"[:\s]", value.strip(), maxsplit=1)[-1]


def _bare(secret: str, *, is_login: bool) -> Iterator[str]:
    """Yield what texts may have of a secret: the lines of a private key, of a URL's login the password."""
    if secret.startswith("-----BEGIN"):
        lines = re.findall(r"[A-Za-z0-9+/=]+", secret.replace("\\n", " "))
        yield from (line for line in lines if len(line) >= _PEM_LINE)
    elif is_login:
        user, _, password = secret.partition(":")
        yield password or user
    else:
        yield secret


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as texts may have it: plain, in JSON, in HTML, in a URL, in base64."""
    if len(secret.strip()) < _SHORTEST or secret.lower() in _NO_SECRETS or is_placeholder(secret):
        return
    as_bytes = secret.encode("utf-8", "surrogatepass")
    encoded = "".join(
        chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or byte in b"-._~") else f"%{byte:02X}"
        for byte in as_bytes
    )
    yield from (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], html.escape(secret))
    yield from (encoded, encoded.replace("%20", "+"), re.sub("%..", lambda match: match[0].lower(), encoded))
    yield base64.b64encode(as_bytes).decode().rstrip("=")
    yield base64.urlsafe_b64encode(as_bytes).decode().rstrip("=")


def _without_known(text: str) -> str:
    present = [secret for secret in tuple(_known_secrets) if len(secret) <= len(text) and secret in text]
    if not present:
        return text
    # Longest first, in one pass: a secret that begins like another leaves no tail.
    words = (
        f"(?<![\\w.-]){re.escape(secret)}(?![\\w-]|\\.\\w)" if _WHOLE_WORD.fullmatch(secret) else re.escape(secret)
        for secret in sorted(present, key=len, reverse=True)
    )
    return re.sub("|".join(words), MASK, text)


# --- texts ------------------------------------------------------------------------------------------------------------

# Each starts at a fixed place and hardly turns back, so that a page of megabytes costs milliseconds.
_SCHEME = r"\b(?P<scheme>Basic|Bearer)(?P<blank>(?:\s|%20|\+)+)(?P<token>[A-Za-z0-9._~+/=-]{4,})"
_REFUSED = r"(Invalid value )(.{0,300}?)( for configuration ([\w.-]+))"
# A header, as a request, an HTML page, JSON, or a Java or Python map shows it: all up to the end of its value.
_QUOTE = r"(?:\\*[\"']|&(?:quot|apos|#34|#39|#x22|#x27);)"
_HEADER = (
    r"(?P<header>(?<![\w-])(?:(?:proxy-)?authorization|(?:set-)?cookie2?|x-[\w-]*(?:key|token|secret))"
    rf"(?:[\s\]]|{_QUOTE}|</?\w{{1,10}}>)*+(?:[:=]>?(?:\s|</?\w{{1,10}}>)*+|(?<=>)|(?<=[\"'])\s?,\s?))"
    rf"(?P<value>\[[^\]\n]*\]?|(?P<hq>{_QUOTE}).*?(?:(?P=hq)|$)|[^\r\n<\"']+)"
)
_PROSE = r"(?P<value>[^\s\[]\S*\s+\S+(?:\s+\S+)*?)\s+(?:[a-z]+[,.:;)`]*\s+){2}[a-z]+"
_KEY = (
    rf"(?<![\w.-])(?:--?D?)?(?P<key>[A-Za-z_][\w.-]*+)(?:{_QUOTE}?\s*=>?\s*|{_QUOTE}\s*:\s*(?={_QUOTE}|\[)"
    r"|(?P<colon>:[ \t]+)(?=\S+[ \t]*$)|(?P<glued>:)(?=[^\s:/]))"
)
_VALUE = (
    r"(?P<q>\\*)\".*?(?:(?<!\\)(?P=q)\"|\Z)|'(?:[^'\\]|\\.)*(?:'|\Z)|\[[^\]]*\]?"
    r"|(?P<entity>&[\w#]{2,4};).*?(?:(?P=entity)|\Z)"
    rf"|(?:\$\{{{_INSIDE}*+\}}|[^\s\"',;])++"
)
_JAAS = (
    r"(?<![\w.$])(?:(?:[\w$]+\.)+[\w$]+|\w*LoginModule)\s+(?:required|requisite|sufficient|optional)(?=\s+[\w.-]+\s*=)"
)
# In YAML the value is what remains of the line; an alias such as `private-dc` is before a colon, too.
_YAML_KEY = (
    r"(?:passw(?:or)?d|pwd|passphrase|secret|token|credentials?|[a-z._-]key(?:[._-]?data)?|connection[._-]?string)$"
)
# In running text without a blank after the colon, and not the key of a placeholder such as `${file:/etc/password:key}`.
_GLUED_KEY = r"(?:^|[._-]|(?<=[a-z])(?=P))(?:password|passwd|passphrase|pwd)$"
_GLUED_VALUE = r"\d{1,5}(?!\w)|\S{0,100}?->"
# A text with none of these holds nothing but, perhaps, a secret that was seen.
_TELLTALE = r"[=:]|(?i:basic|bearer|authorization|cookie)|Invalid value"


def mask_text(text: str) -> str:
    """Return a text of any origin without secrets: those seen, and what is one by its look or its key."""
    text = _without_known(text)
    for shape in _SHAPES:
        text = shape.sub(_without_secret, text)
    if not re.compile(_TELLTALE).search(text):
        return text
    text = re.compile(_HEADER, re.IGNORECASE | re.MULTILINE).sub(_without_header, text)
    text = re.compile(_SCHEME, re.IGNORECASE).sub(_without_token, text)
    text = re.compile(_REFUSED, re.DOTALL).sub(
        lambda match: f"{match[1]}{MASK}{match[3]}" if is_secret(match[4]) else match[0], text
    )
    text = _without_spans(text, _assigned_values(text))
    return _without_spans(text, _options(text))


def cut(text: str, characters: int = TEXT_CHARACTERS) -> str:
    """Return the start of a text, masked before it is cut, or half a secret might stay."""
    text = mask_text(text)
    return text if len(text) <= characters else text[:characters] + "…"


def _without_header(match: re.Match[str]) -> str:
    """Hide the value of a header up to its end, or to where a sentence goes on: three plain words, not before the third
    word.
    """
    value, is_login = match["value"], re.match("(?i)(proxy-)?auth|(set-)?cookie", match["header"])
    prose = re.compile(_PROSE).match(value) if is_login else None
    return match["header"] + (f"{MASK}{value[prose.end('value') :]}" if prose else _hide_value(value))


def _without_token(match: re.Match[str]) -> str:
    """Hide what follows `Basic` and `Bearer` if it is no word of a sentence."""
    return f"{match['scheme']}{match['blank']}{MASK}" if _is_token(match) else match[0]


def _is_token(match: re.Match[str]) -> bool:
    token = match["token"]
    if match["scheme"].lower() == "basic":
        try:
            bare = token.rstrip("=").translate({45: 43, 95: 47})
            return ":" in base64.b64decode(bare + "=" * (-len(bare) % 4)).decode() or len(token) > 20
        except (binascii.Error, UnicodeDecodeError):
            return len(token) > 20
    word = token.strip("._~+/=-")
    return not (word.isalpha() and word[1:].islower()) or len(word) > 20


def _without_secret(match: re.Match[str]) -> str:
    start, end = (place - match.start() for place in match.span("secret"))
    return f"{match[0][:start]}{MASK}{match[0][end:]}"


def _without_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], _hide_value(text[start:end])]
        at = end
    return "".join([*parts, text[at:]])


def _assigned_values(text: str) -> Iterator[tuple[int, int]]:
    """Yield where a value begins and ends that follows a key of a secret and `=`, and in JSON and YAML its colon."""
    at = 0
    for match in re.compile(_KEY, re.MULTILINE).finditer(text):
        if match.start() < at or not is_secret(match["key"]):
            continue
        if match["colon"] and not re.compile(_YAML_KEY, re.IGNORECASE).search(match["key"]):
            continue
        if match["glued"] and not _is_glued(text, match):
            continue
        value = re.compile(_VALUE, re.DOTALL).match(text, match.end())
        if value and _is_clear(value[0]) and not re.compile(rf"{_QUOTE}?{_JAAS}").match(text, match.end()):
            yield value.span()
            at = value.end()


def _is_glued(text: str, match: re.Match[str]) -> bool:
    """Tell whether `password:…` has a value: no port, no flow's name, and no part of a placeholder."""
    if not re.compile(_GLUED_KEY, re.IGNORECASE).search(match["key"]) or re.compile(_GLUED_VALUE).match(
        text, match.end()
    ):
        return False
    opened = text.rfind("${", max(0, match.start() - TEXT_CHARACTERS), match.start())
    return opened < 0 or "}" in text[opened : match.start()]


def _options(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the options of JAAS strings are anywhere in a text, but for those that hold no secret."""
    at = 0
    option = re.compile(rf"\s+([\w.-]+)\s*=\s*({_VALUE})", re.DOTALL)
    for module in re.compile(_JAAS).finditer(text):
        position = module.end()
        while position >= at and (match := option.match(text, position)):
            position = match.end()
            if match[1] not in JAAS_SHOWN and _is_clear(match[2]):
                yield match.span(2)
                at = position


def _hide_value(value: str) -> str:
    quote = re.compile(rf"{_QUOTE}?").match(value)
    return f"{quote[0]}{MASK}{quote[0]}" if quote else MASK


def _is_clear(value: str) -> bool:
    bare = value.strip("\\\"'")
    return bare.lower() not in _NO_SECRETS and not is_placeholder(bare)
