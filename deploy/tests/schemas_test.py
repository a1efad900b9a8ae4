# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Validates every kustomization of deploy/kubernetes against the schemas of Kubernetes: of the oldest version that it is
promised for, and of the newest there is.

    schemas_test.py --schemas FOLDER

Exit code 4, which ctest shows as skipped, if FOLDER has no schemas: a machine that reaches no package index.
"""
import argparse
import pathlib
import sys
import unittest

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kustomize  # noqa: E402
from kustomize import KUBERNETES, OLDEST, Resource  # noqa: E402
from schemas import Schemas  # noqa: E402

OPTIONS = argparse.Namespace()
NO_SCHEMAS = 4


class SchemasTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.schemas = Schemas(OPTIONS.schemas)
        cls.rendered = {name: kustomize.render(KUBERNETES / name) for name in OLDEST}

    def test_schemas(self) -> None:
        newest = max(self.schemas.versions)
        for name, resources in self.rendered.items():
            for version in (OLDEST[name], newest):
                for resource in resources:
                    with self.subTest(name, version=version, kind=resource["kind"]):
                        self.assertEqual(self.schemas.check(resource, version), [])

    def test_the_schemas_find_mistakes(self) -> None:
        newest = max(self.schemas.versions)
        (daemonset,) = [each for each in self.rendered["base"] if each["kind"] == "DaemonSet"]
        for old, new in (("readinessProbe", "readynessProbe"), ("minReadySeconds: 5", "minReadySeconds: five"),
                         ("port: 50052", "prt: 50052"), ("apps/v1", "apps/v9")):
            broken = yaml.safe_load(yaml.safe_dump(daemonset).replace(old, new))
            self.assertNotEqual(self.schemas.check(broken, newest), [], new)
        claim = next(each for each in self.rendered["overlays/gpu-claim"] if each["kind"] == "ResourceClaimTemplate")
        self.assertNotEqual(self.schemas.check(claim, (1, 33)), [], "not there before the oldest version")
        monitor = yaml.safe_load((KUBERNETES / "monitoring/servicemonitor.yaml").read_text())
        monitor["spec"]["endpoints"][0]["targetport"] = 1
        self.assertNotEqual(self.schemas.check(monitor, newest), [])

    def test_rules_in_the_operators_form(self) -> None:
        rule: Resource = {"record": "a:b", "expr": "c"}
        sample: Resource = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
                            "metadata": {"name": "a"}, "spec": {"groups": [{"name": "a", "rules": [rule]}]}}
        newest = max(self.schemas.versions)
        self.assertEqual(self.schemas.check(sample, newest), [])
        rule["alert"] = "both"
        self.assertNotEqual(self.schemas.check(sample, newest), [])
        for path in KUBERNETES.parent.rglob("*.yaml"):
            for document in yaml.safe_load_all(path.read_text()):
                if document.get("kind") == "PrometheusRule":
                    with self.subTest(path.name):
                        self.assertEqual(self.schemas.check(document, newest), [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--schemas", required=True, type=pathlib.Path)
    OPTIONS, rest = parser.parse_known_args()
    if not Schemas.there(OPTIONS.schemas):
        print(f"skipped: {OPTIONS.schemas} has no schemas of Kubernetes; tools/install-packages test gets them")
        sys.exit(NO_SCHEMAS)
    unittest.main(argv=sys.argv[:1] + rest)
