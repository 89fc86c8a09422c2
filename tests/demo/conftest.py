"""Where the demo's own tree says that clusters are, for story tests: addresses that are never asked."""

from __future__ import annotations

from mm2mgr.sandbox.folder import Endpoints

ENDPOINTS = Endpoints(
    {"dc1": "127.0.0.1:1", "dc2": "127.0.0.1:2", "agg": "127.0.0.1:3"}, {"east": "http://127.0.0.1:4"}, {"east": "agg"}
)
