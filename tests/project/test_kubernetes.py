"""Holds deploy/kubernetes to the schemas of Kubernetes' API, to the pod standard `restricted`, to its own names and to mm2mgr."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from mm2mgr.expand import expand
from mm2mgr.spec.files import load
from tests.docs.test_documents import commands_in, unknown_calls

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "deploy" / "kubernetes"
MADE_BY_HAND = {"mm2mgr-credentials"}  # the Secret, which no file may hold
OLDEST = "1.31"
USER = 10001

Manifest = dict[str, Any]


def kustomization(folder: Path = FOLDER) -> Manifest:
    settings: Manifest = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return settings


def manifests_of(folder: Path) -> Iterator[Manifest]:
    for name in kustomization(folder).get("resources", []):
        yield from yaml.safe_load_all((folder / name).read_text())


MANIFESTS = {
    f"{manifest['kind']}/{manifest['metadata']['name']}": manifest
    for folder in (FOLDER, FOLDER / "reconcile")
    for manifest in manifests_of(folder)
}


def pods() -> dict[str, Manifest]:
    """Return the specs of all pods by the name of what makes them."""
    specs = {}
    for name, manifest in MANIFESTS.items():
        spec = manifest["spec"].get("jobTemplate", manifest)["spec"]
        if "template" in spec:
            specs[name] = spec["template"]["spec"]
    return specs


PODS = pods()


def test_every_file_is_named_and_every_named_file_exists() -> None:
    settings = kustomization()
    (trees,) = settings["configMapGenerator"]
    named = {FOLDER / name for name in ("kustomization.yaml", *settings["resources"], *trees["files"])}
    named |= {FOLDER / "reconcile" / "kustomization.yaml"}
    assert named == {path for path in FOLDER.rglob("*") if path.is_file()}
    assert "# components: [reconcile]" in (FOLDER / "kustomization.yaml").read_text(), (
        "what writes to Connect is chosen"
    )
    assert kustomization(FOLDER / "reconcile")["kind"] == "Component"


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_each_manifest_is_what_the_api_takes(version: str) -> None:
    for manifest in MANIFESTS.values():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_misspelt_key_would_be_refused() -> None:
    manifest = deepcopy(MANIFESTS["Deployment/mm2mgr-page"])
    manifest["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(jsonschema.ValidationError, match="readynessProbe"):
        kubernetes_validate.validate(manifest, OLDEST, strict=True)


def test_names_lead_to_what_has_them() -> None:
    (trees,) = kustomization()["configMapGenerator"]
    claims = {manifest["metadata"]["name"] for name, manifest in MANIFESTS.items() if "PersistentVolumeClaim" in name}
    for spec in PODS.values():
        (container,) = spec["containers"]
        volumes = {volume.pop("name"): volume for volume in deepcopy(spec["volumes"])}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        assert volumes["data"]["persistentVolumeClaim"]["claimName"] in claims
        assert volumes["tree"]["configMap"]["name"] == trees["name"]
        assert {source["secretRef"]["name"] for source in container["envFrom"]} == MADE_BY_HAND
        assert [image["name"] for image in kustomization()["images"]] == [container["image"]]
    for name, manifest in MANIFESTS.items():
        if name.startswith("Deployment"):
            labels = manifest["spec"]["template"]["metadata"]["labels"]
            assert manifest["spec"]["selector"]["matchLabels"] == labels == {"app": manifest["metadata"]["name"]}
    service, page = MANIFESTS["Service/mm2mgr-page"]["spec"], PODS["Deployment/mm2mgr-page"]["containers"][0]
    assert service["selector"] == {"app": "mm2mgr-page"}
    (port,) = page["ports"]
    assert service["ports"][0]["targetPort"] == port["name"] == page["livenessProbe"]["httpGet"]["port"]
    assert page["command"][-1] == f"0.0.0.0:{port['containerPort']}"
    writers = PODS["Deployment/mm2mgr-writers"]["containers"][0]
    assert writers["ports"] == page["ports"]
    selected = MANIFESTS["NetworkPolicy/mm2mgr-page"]["spec"]["podSelector"]["matchExpressions"]
    assert selected == [{"key": "app", "operator": "In", "values": ["mm2mgr-page", "mm2mgr-writers"]}]
    (rule,) = MANIFESTS["NetworkPolicy/mm2mgr-page"]["spec"]["ingress"]
    assert rule["ports"] == [{"port": port["containerPort"]}]


@pytest.mark.parametrize("name", PODS)
def test_a_pod_meets_the_standard_restricted_and_writes_to_its_volumes_only(name: str) -> None:
    spec = PODS[name]
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), USER),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")] == ["/data", "/tmp"]
    assert container["workingDir"] == "/data"


@pytest.mark.parametrize("name", PODS)
def test_a_command_exists_with_its_options(name: str) -> None:
    (command,) = commands_in(PODS[name])
    assert all(isinstance(word, str) for word in command)
    assert command[:3] == ["mm2mgr", "--clusters", "/tree/clusters"]
    assert unknown_calls(f"```yaml\n{yaml.safe_dump(PODS[name])}```") == []


def test_the_tree_compiles() -> None:
    (trees,) = kustomization()["configMapGenerator"]
    assert len(expand(load([FOLDER / name for name in trees["files"]])).flows) == 1


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, and no cluster")
def test_kustomize_builds_it_with_and_without_the_component(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER, tmp_path / "kubernetes")
    built = [subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout]
    settings = folder / "kustomization.yaml"
    settings.write_text(settings.read_text().replace("# components: [reconcile]", "components: [reconcile]"))
    built.append(subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout)
    without, complete = ([*yaml.safe_load_all(text)] for text in built)
    assert len(without) == len(complete) == len(MANIFESTS) + 1  # with the ConfigMap
    commands = [_writers_in(manifests) for manifests in (without, complete)]
    assert commands[1] == [*commands[0], "--with", "watch,reconcile"]
    assert unknown_calls(f"```yaml\n{yaml.safe_dump({'command': commands[1]})}```") == []
    for manifest in complete:
        kubernetes_validate.validate(manifest, OLDEST, strict=True)
        assert manifest["metadata"]["namespace"] == "mirrors"
    for text in built:
        assert "name: mm2mgr-clusters\n" not in text, "a changed tree has another name, and starts the pods anew"
        assert "image: mm2mgr\n" not in text


def _writers_in(manifests: list[Manifest]) -> list[str]:
    (writers,) = (manifest for manifest in manifests if manifest["metadata"]["name"] == "mm2mgr-writers")
    (container,) = writers["spec"]["template"]["spec"]["containers"]
    command: list[str] = container["command"]
    return command
