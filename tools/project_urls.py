"""Gives a wheel or sdist its Project-URLs, from the address of the repository that it is built of.

    MM2MGR_PROJECT_URL=https://git.example.net/streaming/mirrors pip wheel --no-deps --wheel-dir dist .

A copy of the project is kept wherever a team keeps its repositories, so the address is no constant of the source.
Without the variable there are no URLs. Loaded by hatchling (`[tool.hatch.metadata.hooks.custom]`).
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "MM2MGR_PROJECT_URL"
# Paths below a repository's page that GitHub, GitLab and Gitea all answer.
PAGES = {
    "Homepage": "",
    "Source": "",
    "Documentation": "/blob/HEAD/docs/README.md",
    "Changelog": "/blob/HEAD/CHANGELOG.md",
    "Issues": "/issues",
}


def project_urls(address: str) -> dict[str, str]:
    """Return label to URL for the address of a repository; none for an empty one. Raises ValueError for any other."""
    if not address:
        return {}
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{VARIABLE} must be the address of the repository's page: https://HOST/OWNER/mm2mgr")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"{VARIABLE} holds credentials, which would be in each package: give it without them")
    return {label: address.rstrip("/") + path for label, path in PAGES.items()}


class ProjectUrls(MetadataHookInterface):
    """Fills in `urls`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the URLs to the metadata of the package that is built."""
        metadata["urls"] = project_urls(os.environ.get(VARIABLE, "").strip())
