"""The pages of `serve`: models from a view, and HTML from the models."""

from mm2mgr.serve.pages.base import CARRIED, Context, LoadPace, flow_link, html, put_under, static_files, style
from mm2mgr.serve.pages.flow_list import flow_list, nearest_flows, unknown_flow
from mm2mgr.serve.pages.flow_page import flow
from mm2mgr.serve.pages.overview import overview
from mm2mgr.serve.pages.reports import changes, failover, findings, losses, parts, plan, rebalance, watchdog
from mm2mgr.serve.pages.traffic import traffic_page
from mm2mgr.serve.pages.workers import unknown_worker, worker, workers, workers_dict

__all__ = [
    "CARRIED",
    "Context",
    "LoadPace",
    "changes",
    "failover",
    "findings",
    "flow",
    "flow_link",
    "flow_list",
    "html",
    "losses",
    "nearest_flows",
    "overview",
    "parts",
    "plan",
    "put_under",
    "rebalance",
    "static_files",
    "style",
    "traffic_page",
    "unknown_flow",
    "unknown_worker",
    "watchdog",
    "worker",
    "workers",
    "workers_dict",
]
