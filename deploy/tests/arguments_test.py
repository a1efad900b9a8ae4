# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Starts the daemon with the arguments of every pod of deploy/kubernetes, as the kubelet would: the pod's user
without capabilities (where the test is root), its volumes as folders, its probes over its ports. Other than in the
pod are the device (the CPU), folders, ports, and how long the lame duck lasts.

    arguments_test.py --tetradd PROGRAM
"""
import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import grpc
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kustomize  # noqa: E402
from arguments import Arguments, daemons, pod_spec, pods  # noqa: E402

OPTIONS = argparse.Namespace()
KUBERNETES = pathlib.Path(__file__).resolve().parents[1] / "kubernetes"
SERVING, NOT_SERVING = 1, 2
DIRECTLY = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
LAME_DUCK_SECONDS = 2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def call(channel: grpc.Channel, method: str, timeout: float = 5) -> bytes:
    """A call with an empty request."""
    return channel.unary_unary(f"/{method}")(b"", timeout=timeout)


class Pod:
    """The daemon of a rendered workload, as a process with folders in the place of volumes."""

    def __init__(self, workload: kustomize.Resource, resources: list[kustomize.Resource], folder: pathlib.Path):
        spec = pod_spec(workload)
        (container,) = daemons(spec)
        self.flags = Arguments(container)
        self.folder = folder
        user = container.get("securityContext", {}).get("runAsUser", spec["securityContext"].get("runAsUser"))
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        folders = {}
        for mount in container["volumeMounts"]:
            place = folder / mount["name"]
            place.mkdir()
            self._fill(place, volumes[mount["name"]], resources)
            folders[mount["mountPath"]] = place
            if not mount.get("readOnly") and os.geteuid() == 0:
                os.chown(place, user, user)
        self.ports: dict[str, int] = {}
        arguments = [self._substituted(name, value, folders) for name, value in self.flags.pairs]
        # The bounding set goes last: with it empty nothing can be gained again.
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs",
                   "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*as_user, OPTIONS.tetradd, *arguments], env={}, cwd="/",
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        (path,) = [value for value in self.flags.values("listen") if value.startswith("unix:")]
        self.unix = grpc.insecure_channel(f"unix:{folders['/run/tetrad'] / pathlib.Path(path).name}")

    def _fill(self, place: pathlib.Path, volume: kustomize.Resource, resources: list[kustomize.Resource]) -> None:
        if "configMap" in volume:
            (data,) = [each["data"] for each in resources if each["kind"] == "ConfigMap"
                       and each["metadata"]["name"] == volume["configMap"]["name"]]
            for name, text in data.items():
                (place / name).write_text(text)
        elif "secret" in volume:
            for file in OPTIONS.certificate.iterdir():
                shutil.copy(file, place / file.name)
                (place / file.name).chmod(0o444)

    def _substituted(self, name: str, value: str, folders: dict[str, pathlib.Path]) -> str:
        if name == "device":
            return "--device=cpu"
        if name == "lame-duck-seconds":
            return f"--{name}={min(LAME_DUCK_SECONDS, int(value))}"
        port = re.fullmatch(r"(0\.0\.0\.0):(\d+)", value)
        if port:
            key = "grpc" if name == "listen" else name
            self.ports[key] = free_port()
            return f"--{name}={port.group(1)}:{self.ports[key]}"
        for mount, place in folders.items():
            value = re.sub(rf"(^|:){re.escape(mount)}(?=/|$)", lambda match, to=place: f"{match.group(1)}{to}", value)
        return f"--{name}={value}" if value else f"--{name}"

    def status(self) -> int:
        """What a probe is told: SERVING, NOT_SERVING. Each has a connection of its own, as the kubelet's have."""
        with self.channel("health") as channel:
            answer = call(channel, "grpc.health.v1.Health/Check", timeout=1)
        return answer[1] if answer else 0  # field 1, a number below 128

    def channel(self, port: str) -> grpc.Channel:
        return grpc.insecure_channel(f"127.0.0.1:{self.ports[port]}", DIRECTLY)

    def wait_until_ready(self) -> None:
        while True:
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}: {self.log.read_text()}")
            with contextlib.suppress(grpc.RpcError):
                if self.status() == SERVING:
                    return
            time.sleep(0.02)

    def page(self, path: str) -> tuple[int, str]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.ports['http']}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


class ArgumentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        root = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tetrad-pods-")))
        root.chmod(0o755)
        # The pod's user need not be able to enter the folder of the build.
        OPTIONS.tetradd = pathlib.Path(shutil.copy(OPTIONS.tetradd, root))
        OPTIONS.certificate = root / "certificate"
        OPTIONS.certificate.mkdir()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "1", "-subj", "/CN=tetradd", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-keyout", OPTIONS.certificate / "tls.key", "-out", OPTIONS.certificate / "tls.crt"],
                       check=True, stderr=subprocess.DEVNULL)
        cls.pods = {}
        cls.containers = []
        started: list[tuple] = []
        for folder in sorted(path.parent for path in KUBERNETES.rglob("kustomization.yaml")):
            resources = kustomize.render(folder)
            for workload in pods(resources):
                (container,) = daemons(pod_spec(workload))
                cls.containers.append(container)
                start = (container["args"], container.get("env"), [m["mountPath"] for m in container["volumeMounts"]])
                if start in started:
                    continue  # a resource claim changes nothing of it
                started.append(start)
                place = root / folder.name
                place.mkdir()
                cls.pods[folder.name] = pod = Pod(workload, resources, place)
                stack.callback(pod.process.kill)
        for pod in cls.pods.values():
            pod.wait_until_ready()

    def test_flags_and_variables_exist(self) -> None:
        said = subprocess.run([OPTIONS.tetradd, "--help"], check=True, text=True, stdout=subprocess.PIPE).stdout
        flags = set(re.findall(r"^\s+(?:-\w,)?--([\w-]+)", said, re.MULTILINE))
        variables = set(re.findall(r"\[(TETRAD_\w+)\]", said))
        self.assertEqual(len(self.containers), 5)
        for container in self.containers:
            used = {argument[2:].partition("=")[0] for argument in container["args"]}
            self.assertLessEqual(used, flags)
            self.assertLessEqual({each["name"] for each in container.get("env", [])}, variables)

    def test_probes_are_answered(self) -> None:
        for name, pod in self.pods.items():
            with self.subTest(name):
                self.assertEqual(pod.page("/healthz")[0], 200)
                with self.assertRaises(grpc.RpcError) as refused, pod.channel("health") as channel:
                    call(channel, "tetrad.v1.Status/GetStatus")
                self.assertEqual(refused.exception.code(), grpc.StatusCode.UNIMPLEMENTED, "it serves health only")

    def test_clients_beside_it_reach_it_over_the_socket(self) -> None:
        for name, pod in self.pods.items():
            with self.subTest(name):
                self.assertTrue(call(pod.unix, "tetrad.v1.Status/GetStatus"))

    def test_the_network_is_closed_in_the_base_and_open_in_the_demo(self) -> None:
        trusted = grpc.ssl_channel_credentials((OPTIONS.certificate / "tls.crt").read_bytes())
        for name in ("base", "gpu-claim"):
            with self.subTest(name), grpc.secure_channel(f"127.0.0.1:{self.pods[name].ports['grpc']}",
                                                         trusted, DIRECTLY) as channel:
                with self.assertRaises(grpc.RpcError) as refused:
                    call(channel, "tetrad.v1.Status/GetStatus")
                self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
        with self.pods["cpu-demo"].channel("grpc") as channel:
            self.assertTrue(call(channel, "tetrad.v1.Status/GetStatus"))
        self.assertNotIn("grpc", self.pods["sidecar"].ports)

    def test_the_series_that_adapter_rules_name_are_there(self) -> None:
        rules = yaml.safe_load((KUBERNETES / "monitoring/adapter-rules.yaml").read_text())["rules"]
        status, page = self.pods["cpu-demo"].page("/metrics")
        self.assertEqual(status, 200)
        present = set(re.findall(r"^(\w+)", page, re.MULTILINE))
        named = {name for rule in rules for text in (rule["seriesQuery"], rule["metricsQuery"])
                 for name in re.findall(r"(tetrad_\w+)\{", text)}
        self.assertEqual(len(named), 2)
        self.assertLessEqual(named, present)

    def test_it_runs_as_the_user_of_the_pod_without_capabilities(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("only root can become the pod's user")
        for pod in self.pods.values():
            status = pathlib.Path(f"/proc/{pod.process.pid}/status").read_text()
            self.assertRegex(status, r"Uid:\s+65532\s+65532")
            self.assertEqual(set(re.findall(r"Cap(?:Eff|Bnd|Prm):\s+(\w+)", status)), {"0" * 16})

    def test_zz_sigterm_drains(self) -> None:
        """Last, as it ends the daemons: not ready at once, requests taken for the lame duck, exit status 0."""
        demo = self.pods["cpu-demo"]
        with concurrent.futures.ThreadPoolExecutor() as threads:
            started = time.monotonic()
            ends = {name: threads.submit(pod.end) for name, pod in self.pods.items()}
            while demo.status() == SERVING:
                self.assertLess(time.monotonic() - started, LAME_DUCK_SECONDS, "still called ready")
            self.assertEqual(demo.status(), NOT_SERVING)
            self.assertTrue(call(demo.unix, "tetrad.v1.Status/GetStatus"), "refused before the lame duck was over")
            for name, end in ends.items():
                self.assertEqual(end.result(), 0, f"{name}: {self.pods[name].log.read_text()}")
            self.assertGreaterEqual(time.monotonic() - started, LAME_DUCK_SECONDS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tetradd", required=True, type=pathlib.Path)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
