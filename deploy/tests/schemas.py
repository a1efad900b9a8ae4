# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The schemas of Kubernetes by version, read from the wheel of kubernetes-validate in the strict form, which
knows every field and allows no other; and of two kinds of the Prometheus operator, written down here."""
import functools
import json
import pathlib
import re
import zipfile
from typing import Any

import jsonschema

FOLDER = "kubernetes_validate/kubernetes-json-schema"


def strict(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": list(required)}


TEXT = {"type": "string"}
LABELS = {"type": "object", "additionalProperties": TEXT}
DURATION = {"type": "string", "pattern": r"^(0|(\d+h)?(\d+m)?(\d+s)?(\d+ms)?)$"}
# monitoring.coreos.com/v1 as the operator documents it; the fields that are used here, and no others.
OPERATOR = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): strict({
        "apiVersion": TEXT, "kind": TEXT,
        "metadata": strict({"name": TEXT, "namespace": TEXT, "labels": LABELS}, "name"),
        "spec": strict({
            "jobLabel": TEXT,
            "selector": strict({"matchLabels": LABELS}),
            "namespaceSelector": strict({"any": {"type": "boolean"},
                                         "matchNames": {"type": "array", "items": TEXT}}),
            "endpoints": {"type": "array", "minItems": 1, "items": strict({
                "port": TEXT, "path": TEXT, "scheme": {"enum": ["http", "https"]},
                "interval": DURATION, "scrapeTimeout": DURATION, "honorLabels": {"type": "boolean"}}, "port")},
        }, "selector", "endpoints")}, "apiVersion", "kind", "metadata", "spec"),
    ("monitoring.coreos.com/v1", "PrometheusRule"): strict({
        "apiVersion": TEXT, "kind": TEXT,
        "metadata": strict({"name": TEXT, "namespace": TEXT, "labels": LABELS}, "name"),
        "spec": strict({"groups": {"type": "array", "minItems": 1, "items": strict({
            "name": {"type": "string", "minLength": 1}, "interval": DURATION, "rules": {
                "type": "array", "items": {"oneOf": [
                    strict({"record": TEXT, "expr": TEXT, "labels": LABELS}, "record", "expr"),
                    strict({"alert": TEXT, "expr": TEXT, "for": DURATION, "keep_firing_for": DURATION,
                            "labels": LABELS, "annotations": LABELS}, "alert", "expr")]}},
        }, "name")}}, "groups")}, "apiVersion", "kind", "metadata", "spec"),
}


class Definitions(jsonschema.RefResolver):
    """Finds what references name in the one file they all lead to; the library's own way searches megabytes."""

    def __init__(self, definitions: dict[str, Any]):
        super().__init__(base_uri="", referrer={})
        self.definitions = definitions

    def resolve(self, ref: str) -> tuple[str, Any]:
        file, _, name = ref.rpartition("#/$defs/")
        if file not in ("", "/api/_definitions.json"):
            raise jsonschema.RefResolutionError(ref)
        return ref, self.definitions[name]


class Schemas:
    @staticmethod
    def there(wheels: pathlib.Path) -> list[pathlib.Path]:
        return sorted(wheels.glob("kubernetes_validate-*.whl"))

    def __init__(self, wheels: pathlib.Path):
        self.archive = zipfile.ZipFile(self.there(wheels)[-1])
        versions = {match.group(1) for match in (re.match(rf"{FOLDER}/v([\d.]+)-local-strict/", name)
                                                 for name in self.archive.namelist()) if match}
        self.versions = {tuple(map(int, version.split(".")[:2])): version for version in versions}

    @functools.cache
    def _read(self, version: str, name: str) -> dict[str, Any]:
        return json.loads(self.archive.read(f"{FOLDER}/v{version}-local-strict/{name}.json"))

    def check(self, resource: dict[str, Any], version: tuple[int, int]) -> list[str]:
        """What is wrong with a resource in this version of Kubernetes; empty: nothing."""
        group, kind = resource["apiVersion"], resource["kind"]
        definitions: dict[str, Any] = {}
        if (group, kind) in OPERATOR:
            schema = OPERATOR[group, kind]
        else:
            first = re.sub(r"^([^./]*)(\.[^/]*)?/", r"\1-", group)
            try:
                schema = self._read(self.versions[version], f"{kind.lower()}-{first}")
            except KeyError:
                return [f"{group} {kind} is not in Kubernetes {version}"]
            definitions = self._read(self.versions[version], "_definitions")["$defs"]
        errors = jsonschema.Draft202012Validator(schema, resolver=Definitions(definitions)).iter_errors(resource)
        return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]
