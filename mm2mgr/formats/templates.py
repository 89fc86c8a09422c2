"""Recognises what a template, a shell or Terraform fills in before Kafka reads it: `{{ … }}`, `<BROKER>`, `${NAME}`.

A placeholder of a config provider, `${file:/path:key}`, is none: the workers fill it in, and the config keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

UNNAMED = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)\}|^\$(?P<bare>[A-Z_][A-Z0-9_]+)$")
"""A variable of a shell or of envsubst: Kafka's placeholders have braces, the name of a provider and a colon."""
_MARK = re.compile(
    r"\{\{.*?\}\}|\{%.*?%\}|<%.*?%>"  # Jinja2, Helm and Go, ERB
    r"|(?<![?P])<[A-Za-z][\w .:/-]*>|(?<![A-Za-z$])\{[A-Z][A-Z0-9 _-]{2,}\}"  # documentation; no group or class of Java
    r"|\$\{[A-Za-z_][\w-]*(?:\.[\w-]+|\[[^\]}:]*\])+\}"  # Terraform; Kafka's own have a colon
    r"|\$\{[A-Za-z_]\w*(?::?[-?+][^}]*)?\}|^\$[A-Z_][A-Z0-9_]+$|\$\([A-Za-z_]\w*\)",  # shells, Kubernetes
    re.DOTALL,
)
_OPENING = ("{{", "{%", "<%")
# Names in braces that a transformation or another tool fills in itself.
_OWN_VARIABLES = ("transforms.", "predicates.", "topic.rename.format")


def template_in(value: str) -> str:
    """Return the first part of a value that a template fills in, "" for none."""
    match = _MARK.search(value) if "{" in value or "$" in value or "<" in value else None
    return match[0] if match else ""


def without_templates(value: str, instead: str) -> str:
    """Return a value with other text in place of what a template fills in."""
    return _MARK.sub(instead, value) if template_in(value) else value


def is_open(value: str) -> bool:
    """Tell whether a value is known only once it is filled in: a template, or the workers' config providers."""
    return "${" in value or bool(template_in(value))


def templates(config: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of a config whose values a template fills in, each with the part."""
    marked = ((key, value) for key, value in config.items() if "{" in value or "$" in value or "<" in value)
    templates_of = ((key, template_in(value)) for key, value in marked if not key.startswith(_OWN_VARIABLES))
    return {key: part for key, part in templates_of if part}


_OWN_LINE = re.compile(
    r"^[ \t]*(?:#[ \t]*)?(?:\{%|<%|\{\{[-~#/ \t]*(?:if|else|end|range|with|each|include|template|define|block)\b)",
    re.MULTILINE,
)


def has_own_lines(text: str) -> bool:
    """Tell whether a template decides which lines of a text there will be: conditions, loops, parts of other files."""
    return bool(_OWN_LINE.search(text))


def is_line_of_template(key: str) -> bool:
    """Tell whether the key of a properties line is the beginning of a template's own line, such as `{% if …`."""
    return key.startswith(_OPENING) and not template_in(key)
