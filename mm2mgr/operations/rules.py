"""`rules`: alerting rules of Prometheus and a dashboard of Grafana for this estate, over the metrics of `serve`. No cluster is asked."""

from __future__ import annotations

import json
import re
from typing import Any

from mm2mgr.observe.alerts import rule_group
from mm2mgr.observe.dashboard import dashboard_of
from mm2mgr.operations.workspace import Workspace
from mm2mgr.spec.writer import yaml_text

_LONGEST_NAME = 50


def rules(workspace: Workspace, *, dashboard: bool = False, kubernetes: bool = False) -> str:
    """Return a rule file for Prometheus as YAML, or a dashboard for Grafana as JSON.

    With `kubernetes`, a manifest with it as YAML: a PrometheusRule of the Prometheus Operator, or a ConfigMap with the label
    `grafana_dashboard`, for which Grafana's sidecar looks.
    """
    if dashboard:
        made = dashboard_of(workspace.topology)
        if not kubernetes:
            return json.dumps(made, indent=2, ensure_ascii=False) + "\n"
        head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(workspace, {"grafana_dashboard": "1"})}
        return yaml_text({**head, "data": {f"{_name(workspace)}.json": json.dumps(made, ensure_ascii=False)}})
    groups = {"groups": [rule_group(workspace.topology)]}
    if not kubernetes:
        return yaml_text(groups)
    head = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": _metadata(workspace, {})}
    return yaml_text({**head, "spec": groups})


def _metadata(workspace: Workspace, labels: dict[str, str]) -> dict[str, Any]:
    name = _name(workspace)
    return {
        "name": name,
        "labels": {"app.kubernetes.io/managed-by": "mm2mgr", "app.kubernetes.io/name": name, **labels},
    }


def _name(workspace: Workspace) -> str:
    """Return a name that Kubernetes can have, from the owner's."""
    plain = re.sub(r"[^a-z0-9]+", "-", str(workspace.topology.owner).lower())[:_LONGEST_NAME].strip("-")
    return f"mm2mgr-{plain}".rstrip("-")
