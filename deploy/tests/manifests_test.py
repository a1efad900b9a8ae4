# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Renders every kustomization of deploy/kubernetes and checks what the schemas of Kubernetes (schemas_test.py) do not
see: that names which refer to each other meet, that probes, time limits and memory fit the daemon's
flags, and that every pod keeps the rules of restricted pod security.

    manifests_test.py --tetradd PROGRAM
"""
import argparse
import pathlib
import re
import subprocess
import sys
import unittest
from collections.abc import Iterator
from typing import Any

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kustomize  # noqa: E402
import pod_security  # noqa: E402
from arguments import Arguments, daemons, pod_spec, pods, port_of  # noqa: E402
from kustomize import KUBERNETES, OLDEST, Resource  # noqa: E402

OPTIONS = argparse.Namespace()
# What docs/kubernetes.md says has to exist before.
PROVIDED = {("Secret", "tetradd-tls"), ("PersistentVolumeClaim", "tetrad-checkpoints")}
TEARDOWN_SECONDS = 3  # at most, after the drain: kShutdownGrace and kTeardownLimit of server/main.cc
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def quantity(text: Any) -> float:
    text = str(text)
    return float(text[:-2]) * UNITS[text[-2:]] if text[-2:] in UNITS else float(text)


def matches(selector: Resource, labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, "only matchLabels are used"
    return selector.get("matchLabels", {}).items() <= labels.items()


class ManifestsTest(unittest.TestCase):
    where = ""  # what a test looks at, for its message

    @classmethod
    def setUpClass(cls) -> None:
        cls.rendered = {name: kustomize.render(KUBERNETES / name) for name in OLDEST}

    def _formatMessage(self, msg: str | None, standardMsg: str) -> str:  # noqa: N802, N803
        return f"{self.where}: {super()._formatMessage(msg, standardMsg)}"

    def each(self, kind: str) -> Iterator[tuple[str, Resource, list[Resource]]]:
        """(kustomization, resource, all of the kustomization) of one kind; there has to be one."""
        found = [(name, resource, resources) for name, resources in self.rendered.items()
                 for resource in resources if resource["kind"] == kind]
        self.assertTrue(found, kind)
        for name, resource, resources in found:
            self.where = f"{name}: {kind} {resource['metadata']['name']}"
            yield name, resource, resources

    def each_pod(self) -> Iterator[tuple[str, Resource, list[Resource]]]:
        for name, resources in self.rendered.items():
            for workload in pods(resources):
                self.where = f"{name}: {workload['kind']} {workload['metadata']['name']}"
                yield name, workload, resources

    def test_every_kustomization_is_looked_at(self) -> None:
        found = {path.parent.relative_to(KUBERNETES).as_posix() for path in KUBERNETES.rglob("kustomization.yaml")}
        self.assertEqual(found, set(OLDEST))
        self.assertEqual(len(list(self.each_pod())), 5)

    def test_the_real_kustomize_renders_the_same(self) -> None:
        program = kustomize.kubectl()
        if program is None:
            self.skipTest("no kubectl with kustomize 5 here to compare with")
        for name, ours in self.rendered.items():
            theirs = kustomize.rendered_by(program, KUBERNETES / name)
            with self.subTest(name):
                key = lambda each: (each["kind"], each["metadata"]["name"])  # noqa: E731
                self.assertEqual(sorted(ours, key=key), sorted(theirs, key=key))

    def test_names_are_unique_and_in_one_namespace(self) -> None:
        for name, resources in self.rendered.items():
            keys = [(each["kind"], each["metadata"]["name"]) for each in resources]
            self.assertEqual(len(keys), len(set(keys)), name)
            spaces = {each["metadata"].get("namespace") for each in resources if each["kind"] != "Namespace"}
            made = {each["metadata"]["name"] for each in resources if each["kind"] == "Namespace"}
            self.assertEqual(len(spaces), 1, name)
            if name != "monitoring":
                self.assertEqual(spaces, made, name)

    def test_workloads_select_their_own_pods(self) -> None:
        for _, workload, _ in self.each_pod():
            labels = workload["spec"]["template"]["metadata"]["labels"]
            self.assertTrue(workload["spec"]["selector"]["matchLabels"])
            self.assertTrue(matches(workload["spec"]["selector"], labels))

    def test_services_reach_ports_that_pods_have(self) -> None:
        for _, service, resources in self.each("Service"):
            selected = [each for each in pods(resources) if matches({"matchLabels": service["spec"]["selector"]},
                                                                    each["spec"]["template"]["metadata"]["labels"])]
            self.assertTrue(selected)
            for port in service["spec"]["ports"]:
                for workload in selected:
                    self.assertEqual(port_of(pod_spec(workload), port["targetPort"]), port["port"])
        headless = [each for _, each, _ in self.each("Service") if each["spec"].get("clusterIP") == "None"]
        self.assertTrue(headless)

    def test_network_policies_select_pods_and_open_ports_that_they_have(self) -> None:
        for _, policy, resources in self.each("NetworkPolicy"):
            selected = [each for each in pods(resources)
                        if matches(policy["spec"]["podSelector"], each["spec"]["template"]["metadata"]["labels"])]
            self.assertEqual(len(selected), 1)
            opened = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
            self.assertEqual(sorted(opened), ["grpc", "metrics"])
            for name in opened:
                port_of(pod_spec(selected[0]), name)
            self.assertTrue(all(rule["from"] for rule in policy["spec"]["ingress"]), "open to everybody")
            self.assertEqual(policy["spec"]["egress"], [])
            self.assertEqual(policy["spec"]["policyTypes"], ["Ingress", "Egress"])
        for name, resources in self.rendered.items():
            listening = [each for each in pods(resources) for daemon in daemons(pod_spec(each))
                         if any(not value.startswith("unix:") for value in Arguments(daemon).values("listen"))]
            policies = [each for each in resources if each["kind"] == "NetworkPolicy"]
            self.assertEqual(len(policies), len(listening), f"{name}: gRPC over TCP without a policy")

    def test_monitor_scrapes_what_services_have(self) -> None:
        (_, monitor, _), = self.each("ServiceMonitor")
        for _, service, _ in self.each("Service"):
            labels, ports = service["metadata"]["labels"], {port["name"] for port in service["spec"]["ports"]}
            self.assertEqual(labels[monitor["spec"]["jobLabel"]], "tetrad", "the job that rules ask for")
            self.assertTrue(matches(monitor["spec"]["selector"], labels))
            self.assertIn(service["metadata"]["namespace"], monitor["spec"]["namespaceSelector"]["matchNames"])
            if service["spec"].get("clusterIP") == "None":
                self.assertLessEqual({each["port"] for each in monitor["spec"]["endpoints"]}, ports)
            else:
                self.assertNotIn("metrics", ports, "each daemon would be scraped twice")

    def test_budgets_and_autoscalers_name_what_there_is(self) -> None:
        for _, budget, resources in self.each("PodDisruptionBudget"):
            (workload,) = pods(resources)
            self.assertEqual(workload["kind"], "Deployment", "a budget counts pods of what can be scaled only")
            self.assertTrue(matches(budget["spec"]["selector"],
                                    workload["spec"]["template"]["metadata"]["labels"]))
        for _, scaler, resources in self.each("HorizontalPodAutoscaler"):
            target = scaler["spec"]["scaleTargetRef"]
            (workload,) = pods(resources)
            self.assertEqual((target["apiVersion"], target["kind"], target["name"]),
                             (workload["apiVersion"], workload["kind"], workload["metadata"]["name"]))
            self.assertNotIn("replicas", workload["spec"], "applying it again would undo the autoscaler")
            (metric,) = scaler["spec"]["metrics"]
            rules = yaml.safe_load((KUBERNETES / "monitoring/adapter-rules.yaml").read_text())["rules"]
            self.assertIn(metric["pods"]["metric"]["name"], [rule["name"]["as"] for rule in rules])

    def test_adapter_rules_are_queries(self) -> None:
        for rule in yaml.safe_load((KUBERNETES / "monitoring/adapter-rules.yaml").read_text())["rules"]:
            query = rule["metricsQuery"].replace("<<.GroupBy>>", "pod").replace("<<.LabelMatchers>>", 'pod="a"')
            rules = {"groups": [{"name": "adapter", "rules": [{"record": rule["name"]["as"], "expr": query}]}]}
            done = subprocess.run(["promtool", "check", "rules", "/dev/stdin"], input=yaml.safe_dump(rules),
                                  check=False, text=True, capture_output=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_pods_mount_exists(self) -> None:
        for _, workload, resources in self.each_pod():
            spec = pod_spec(workload)
            there = {(each["kind"], each["metadata"]["name"]) for each in resources} | PROVIDED
            for volume in spec["volumes"]:
                for kind, source, name in (("Secret", "secret", "secretName"), ("ConfigMap", "configMap", "name"),
                                           ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName")):
                    if source in volume:
                        self.assertIn((kind, volume[source][name]), there)
            names = [volume["name"] for volume in spec["volumes"]]
            mounted = {mount["name"] for each in pod_security.containers(spec) for mount in each["volumeMounts"]}
            self.assertEqual(sorted(names), sorted(mounted))
            account = spec.get("serviceAccountName")
            self.assertTrue(account is None or ("ServiceAccount", account) in there)
            self.assertIs(spec["automountServiceAccountToken"], False)
            for claim in spec.get("resourceClaims", []):
                self.assertIn(("ResourceClaimTemplate", claim["resourceClaimTemplateName"]), there)
        page = (KUBERNETES.parents[1] / "docs" / "kubernetes.md").read_text()
        for kind, name in PROVIDED:
            self.assertIn(f"`{name}`", page, f"{kind} {name} has to be made by hand and the page does not say it")

    def test_files_of_flags_are_mounted(self) -> None:
        for _, workload, resources in self.each_pod():
            spec = pod_spec(workload)
            data = {each["metadata"]["name"]: each["data"] for each in resources if each["kind"] == "ConfigMap"}
            for daemon in daemons(spec):
                volumes = {volume["name"]: volume for volume in spec["volumes"]}
                mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in daemon["volumeMounts"]}
                for path in Arguments(daemon).paths():
                    folder, _, file = path.rpartition("/")
                    volume = mounts.get(folder) or mounts.get(path)
                    self.assertIsNotNone(volume, f"{path} is on no volume")
                    if "configMap" in volume:
                        self.assertIn(file, data[volume["configMap"]["name"]])
                    if "secret" in volume:
                        self.assertIn(file, ("tls.crt", "tls.key"), "keys of a secret of type kubernetes.io/tls")

    def test_probes_ask_the_ports_that_serve_them(self) -> None:
        for _, workload, _ in self.each_pod():
            for daemon in daemons(pod_spec(workload)):
                flags = Arguments(daemon)
                for kind in ("startupProbe", "readinessProbe"):
                    self.assertEqual(daemon[kind]["grpc"]["port"], flags.port("health"))
                liveness = daemon["livenessProbe"]["httpGet"]
                self.assertEqual((liveness["path"], port_of(pod_spec(workload), liveness["port"])),
                                 ("/healthz", flags.port("http")))
                declared = {port["name"]: port["containerPort"] for port in daemon["ports"]}
                served = {"health": flags.port("health"), "metrics": flags.port("http")}
                served |= {"grpc": port for port in map(flags.tcp_port, flags.values("listen")) if port}
                self.assertEqual(declared, served)
                for value in [*flags.values("listen"), *flags.values("http"), *flags.values("health")]:
                    self.assertFalse(value.startswith(("127.", "localhost")), "the kubelet cannot reach loopback")

    def test_nothing_is_cut_off_by_the_kubelet(self) -> None:
        for _, workload, _ in self.each_pod():
            spec = pod_spec(workload)
            for daemon in daemons(spec):
                flags = Arguments(daemon)
                lame_duck, drain = (int(flags.value(name)) for name in ("lame-duck-seconds", "drain-seconds"))
                self.assertGreaterEqual(spec["terminationGracePeriodSeconds"], lame_duck + drain + TEARDOWN_SECONDS)
                # A drain that Admin.Drain began: the pod is known not to be ready before requests are refused.
                probe = daemon["readinessProbe"]
                seen = probe["failureThreshold"] * (probe["periodSeconds"] + probe["timeoutSeconds"])
                self.assertTrue(lame_duck == 0 or lame_duck > seen, (lame_duck, seen))
                if lame_duck == 0:
                    self.assertEqual(daemon.get("restartPolicy"), "Always", "others still send to it")

    def test_host_memory_that_flags_permit_fits_the_limit(self) -> None:
        printed = subprocess.run([OPTIONS.tetradd, "--print-config"], check=True, text=True, env={},
                                 stdout=subprocess.PIPE).stdout
        defaults = dict(line.split("#")[0].split(" = ") for line in printed.splitlines() if " = " in line)
        for _, workload, _ in self.each_pod():
            for daemon in daemons(pod_spec(workload)):
                flags = Arguments(daemon)
                names = ["call-bytes", "plan-host-bytes", "ticket-bytes"]
                if flags.value("device") == "cpu":
                    names += ["memory-bytes"]  # its device memory is the host's
                    self.assertLessEqual(int(flags.value("staging-bytes")), int(flags.value("memory-bytes")))
                total = sum(int(flags.value(name, defaults[name.replace("-", "_")])) for name in names)
                limit = quantity(daemon["resources"]["limits"]["memory"])
                self.assertLessEqual(total + (256 << 20), limit)
                self.assertGreaterEqual(limit, quantity(daemon["resources"]["requests"]["memory"]))

    def test_the_image_is_of_this_version(self) -> None:
        root = KUBERNETES.parents[1]
        (version,) = re.findall(r"^project\(tetrad VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text(), re.MULTILINE)
        for _, workload, _ in self.each_pod():
            for container in pod_security.containers(pod_spec(workload)):
                self.assertEqual(container["image"], f"tetrad:{version}")  # latest would be pulled at every start

    def test_gpus_are_asked_for_once(self) -> None:
        for name, workload, _ in self.each_pod():
            spec = pod_spec(workload)
            for daemon in daemons(spec):
                asked = daemon["resources"]["limits"].get("nvidia.com/gpu", 0)
                claims = [each["name"] for each in daemon["resources"].get("claims", [])]
                cuda = Arguments(daemon).value("device") == "cuda:all"
                self.assertEqual(asked + len(claims), int(cuda), name)
                self.assertEqual(claims, [each["name"] for each in spec.get("resourceClaims", [])])
            if any("nvidia.com/gpu" in each["resources"]["limits"] for each in daemons(spec)):
                strategy = workload["spec"].get("updateStrategy", workload["spec"].get("strategy"))
                self.assertEqual(strategy.get("rollingUpdate", {}).get("maxSurge", 0), 0, "it would wait for its own GPU")

    def test_sockets_have_a_folder_that_clients_share(self) -> None:
        for _, workload, _ in self.each_pod():
            spec = pod_spec(workload)
            for daemon in daemons(spec):
                flags = Arguments(daemon)
                (socket,) = [value[len("unix:"):] for value in flags.values("listen") if value.startswith("unix:")]
                self.assertLess(len(socket.encode()), 108, "longer paths of sockets are not possible")
                self.assertEqual(flags.value("socket-mode"), "0660")
                (mount,) = [each for each in daemon["volumeMounts"] if each["mountPath"] == str(pathlib.Path(socket).parent)]
                self.assertFalse(mount.get("readOnly", False))
                group = daemon.get("securityContext", {}).get("runAsGroup", spec["securityContext"].get("runAsGroup"))
                self.assertEqual(spec["securityContext"]["fsGroup"], group, "clients in fsGroup may not connect")
                for other in spec["containers"]:
                    for variable in other.get("env", []):
                        if variable["name"] == "TETRAD_ENDPOINT":
                            self.assertEqual(variable["value"], f"unix:{socket}")

    def test_pods_are_restricted(self) -> None:
        for name, workload, resources in self.each_pod():
            found = list(pod_security.violations(pod_spec(workload)))
            (namespace,) = [each for each in resources if each["kind"] == "Namespace"]
            level = namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
            if name in ("overlays/gpu-node", "overlays/gpu-claim"):
                self.assertEqual((found, level), (["volume socket is a hostPath"], "privileged"))
            else:
                self.assertEqual((found, level), ([], "restricted"))

    def test_the_rules_of_pod_security_find_each_violation(self) -> None:
        (daemonset,) = [each for each in self.rendered["base"] if each["kind"] == "DaemonSet"]
        changes = [("runAsNonRoot: true", "runAsNonRoot: false"), ("runAsUser: 65532", "runAsUser: 0"),
                   ("type: RuntimeDefault", "type: Unconfined"), ("- ALL", "- KILL"),
                   ("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true"),
                   ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
                   ("enableServiceLinks: false", "hostNetwork: true"), ("emptyDir:", "hostPath:"),
                   ("containerPort: 9464", "hostPort: 9464"), ("drop:", "add: [SYS_ADMIN]\n            drop:"),
                   ("readOnlyRootFilesystem", "privileged: true\n          readOnlyRootFilesystem"),
                   ("path: /healthz", "host: a\n            path: /healthz")]
        for old, new in changes:
            text = yaml.safe_dump(daemonset)
            self.assertIn(old, text)
            broken = yaml.safe_load(text.replace(old, new, 1))
            self.assertEqual(len(list(pod_security.violations(pod_spec(broken)))), 1, new)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tetradd", required=True, type=pathlib.Path)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
