"""The pages of `serve`: models from a view, and HTML from the models."""

from mm2mgr.serve.pages.base import Context, LoadPace, flow_link, html, static_files, style
from mm2mgr.serve.pages.flows import flow, flows
from mm2mgr.serve.pages.overview import overview
from mm2mgr.serve.pages.reports import changes, failover, findings, losses, plan, rebalance, watchdog

__all__ = [
    "Context",
    "LoadPace",
    "changes",
    "failover",
    "findings",
    "flow",
    "flow_link",
    "flows",
    "html",
    "losses",
    "overview",
    "plan",
    "rebalance",
    "static_files",
    "style",
    "watchdog",
]
