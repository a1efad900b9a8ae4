# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Renders the kustomizations of deploy/kubernetes, because Debian 12 has no kustomize that knows them.

It knows the fields that these use and refuses all others. That it renders what
the real one does is a test of its own where `kubectl` is installed."""
import copy
import json
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterable
from typing import Any

import yaml

Resource = dict[str, Any]
KUBERNETES = pathlib.Path(__file__).resolve().parents[1] / "kubernetes"
# The oldest version that each is promised for, by the newest thing it uses.
OLDEST = {"base": (1, 27), "monitoring": (1, 27), "overlays/cpu-demo": (1, 27), "overlays/gpu-node": (1, 27),
          "overlays/sidecar": (1, 29), "overlays/gpu-claim": (1, 34)}
FIELDS = {"apiVersion", "kind", "namespace", "resources", "patches", "configMapGenerator", "generatorOptions"}
# How a list of objects is merged: by this field of its elements. Other lists are replaced.
MERGE_KEYS = {"containers": "name", "initContainers": "name", "volumes": "name", "env": "name",
              "volumeMounts": "mountPath"}


class KustomizeError(Exception):
    """What this renderer does not know, or a patch that does not fit."""


def load(path: pathlib.Path) -> list[Resource]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def only(found: Iterable[str], known: set[str], where: pathlib.Path | str) -> None:
    unknown = set(found) - known
    if unknown:
        raise KustomizeError(f"{where}: {sorted(unknown)}")


def merged(base: Any, patch: Any, field: str = "") -> Any:
    """Strategic merge: null deletes, keyed lists merge with the patch's elements first."""
    if isinstance(base, dict) and isinstance(patch, dict):
        only((key for key in patch if key.startswith("$")), set(), "directives of patches")
        result = dict(base)
        for key, value in patch.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = merged(base[key], value, key) if key in base else merged({}, value, key)
        return result
    if isinstance(patch, list) and isinstance(base, list) and field in MERGE_KEYS:
        key = MERGE_KEYS[field]
        old = {element[key]: element for element in base}
        changed = [merged(old.pop(element[key], {}), element) for element in patch]
        return changed + list(old.values())
    if isinstance(patch, dict):
        return merged({}, patch)
    return copy.deepcopy(patch)


def operate(root: Resource, operation: dict[str, Any]) -> None:
    """One operation of a JSON patch (RFC 6902) in place; add to a list only at its end or an index."""
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    place: Any = root
    for part in way:
        place = place[int(part) if isinstance(place, list) else part]
    kind = operation["op"]
    key: Any = last
    if isinstance(place, list):
        key = len(place) if last == "-" else int(last)
    exists = key in place if isinstance(place, dict) else key < len(place)
    if kind != "add" and not exists:
        raise KustomizeError(f"{kind} {operation['path']}: not there")
    if kind == "test":
        if place[key] != operation["value"]:
            raise KustomizeError(f"test {operation['path']}: {place[key]!r}, not {operation['value']!r}")
    elif kind == "remove":
        del place[key]
    elif kind == "add" and isinstance(place, list):
        place.insert(key, copy.deepcopy(operation["value"]))
    elif kind in ("add", "replace"):
        place[key] = copy.deepcopy(operation["value"])
    else:
        raise KustomizeError(f"operation {kind}")


def name_of(resource: Resource) -> str:
    return resource["metadata"]["name"]


def patched(resources: list[Resource], patch: dict[str, Any], folder: pathlib.Path) -> list[Resource]:
    only(patch, {"path", "patch", "target", "options"}, folder)
    only(patch.get("target", {}), {"kind", "name"}, folder)
    only(patch.get("options", {}), {"allowKindChange"}, folder)
    body = yaml.safe_load((folder / patch["path"]).read_text() if "path" in patch else patch["patch"])
    target = patch.get("target") or {"kind": body["kind"], "name": name_of(body)}
    hits = [resource for resource in resources if resource["kind"] == target["kind"]
            and name_of(resource) == target.get("name", name_of(resource))]
    if not hits:
        raise KustomizeError(f"{folder}: no resource is {target}")
    for resource in hits:
        if isinstance(body, list):
            changed = copy.deepcopy(resource)
            for operation in body:
                operate(changed, operation)
        else:
            changed = merged(resource, body)
            changed["metadata"]["name"] = name_of(resource)
        if changed["kind"] != resource["kind"] and not patch.get("options", {}).get("allowKindChange"):
            changed["kind"] = resource["kind"]
        resource.clear()
        resource.update(changed)
    return resources


def generated(resources: list[Resource], generator: dict[str, Any], folder: pathlib.Path) -> list[Resource]:
    only(generator, {"name", "behavior", "files"}, folder)
    data = {name: (folder / name).read_text() for name in generator["files"]}
    found = [each for each in resources if each["kind"] == "ConfigMap" and name_of(each) == generator["name"]]
    behavior = generator.get("behavior", "create")
    if behavior == "create" and not found:
        return [*resources, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]},
                             "data": data}]
    if behavior == "replace" and found:
        found[0]["data"] = data
        return resources
    raise KustomizeError(f"{folder}: {behavior} {generator['name']}")


def render(folder: pathlib.Path) -> list[Resource]:
    """All resources of the kustomization in `folder`."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    only(kustomization, FIELDS, folder)
    if kustomization.get("configMapGenerator") and kustomization.get("generatorOptions") != {
            "disableNameSuffixHash": True}:
        raise KustomizeError(f"{folder}: names with hashes")
    resources: list[Resource] = []
    for entry in kustomization["resources"]:
        path = folder / entry
        resources += render(path) if path.is_dir() else load(path)
    for generator in kustomization.get("configMapGenerator", []):
        resources = generated(resources, generator, folder)
    for patch in kustomization.get("patches", []):
        resources = patched(resources, patch, folder)
    if "namespace" in kustomization:
        for resource in resources:
            if resource["kind"] == "Namespace":
                resource["metadata"]["name"] = kustomization["namespace"]
            else:
                resource["metadata"]["namespace"] = kustomization["namespace"]
    return resources


def kubectl() -> str | None:
    """A kubectl whose kustomize is of version 5, or None."""
    program = shutil.which("kubectl")
    if program is None:
        return None
    said = subprocess.run([program, "version", "--client", "--output=json"], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    try:
        version = json.loads(said)["kustomizeVersion"]
    except (ValueError, KeyError):
        return None
    return program if re.match(r"v([5-9]|\d\d)\.", version) else None


def rendered_by(program: str, folder: pathlib.Path) -> list[Resource]:
    """What the real kustomize makes of it."""
    said = subprocess.run([program, "kustomize", str(folder)], check=True, stdout=subprocess.PIPE).stdout
    return [document for document in yaml.safe_load_all(said) if document]
