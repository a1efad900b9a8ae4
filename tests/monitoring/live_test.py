# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes two loaded daemons, with our rules. Every expression
of rules, dashboards and pages must give numbers, every selector in it must find
series, every label that it groups by or shows must be on them. Alerts fire and
resolve.

An alert's expression is asked for without its thresholds, so what it compares
must be there without the failure. Where a series exists only after a failure,
the failure is made: refusals by a full queue (daemon `busy`), calls without a
credential, and a checkpoint that changes while it is read, which is DATA_LOSS.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import deployed  # noqa: E402
import promql  # noqa: E402
from processes import Daemon, Prometheus, wait_until  # noqa: E402

OPTIONS = argparse.Namespace()
CHECKPOINT = "quickstart_modelopt"
PATTERN = "model.layers.0.mlp.experts.{expert}.up_proj"
ACCESS = """anonymous_unix = ["client", "operator"]
anonymous_http = ["metrics"]
"""
CHANGE_EVERY_S = 1e-4  # a load takes milliseconds
CALM_ROWS, BUSY_ROWS = "16x8", "64x8"
LEGEND_LABEL = re.compile(r"{{\s*(\w+)\s*}}")
TEMPLATE_LABEL = re.compile(r"\$labels\.(\w+)")
RANGE = "2m"  # longer than the test, so that load which has ended counts
GRPC_CODES = {"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
              "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
              "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}


class LiveTest(unittest.TestCase):
    folder: pathlib.Path
    calm: Daemon
    busy: Daemon
    prometheus: Prometheus
    loads: dict[str, subprocess.Popen]  # by socket
    known: dict[str, list[dict[str, str]]] = {}

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="tetrad-monitoring-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.loads = {}
        cls.addClassCleanup(cls.end_all)
        checkpoints = cls.folder / "checkpoints"
        shutil.copytree(pathlib.Path(OPTIONS.checkpoints) / CHECKPOINT, checkpoints / CHECKPOINT)
        access = cls.folder / "access.toml"
        access.write_text(ACCESS)
        cls.make_certificate()
        flags = ["--checkpoint-root", str(checkpoints), "--access", str(access), "--threads", "1",
                 "--tls-certificate", str(cls.folder / "tls.crt"), "--tls-key", str(cls.folder / "tls.key")]
        # The drain lasts until the test has seen its alert and sends a second signal.
        cls.calm = Daemon(OPTIONS.tetradd, cls.folder, "calm", *flags, "--lame-duck-seconds", "60")
        cls.busy = Daemon(OPTIONS.tetradd, cls.folder, "busy", *flags, "--queue-depth", "1", "--lame-duck-seconds", "0")
        for daemon in (cls.calm, cls.busy):
            daemon.start()
        cls.prometheus = Prometheus(OPTIONS.prometheus, cls.folder, deployed.RULES, [cls.calm.http, cls.busy.http])
        for daemon in (cls.calm, cls.busy):
            wait_until("a daemon is ready", daemon.ready)
        cls.make_failures()
        cls.begin_load()
        wait_until("Prometheus is ready", cls.prometheus.ready)
        cls.wait_for_recorded()
        cls.end_load(cls.busy)  # the other one goes on while expressions are asked for

    @classmethod
    def make_certificate(cls) -> None:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "90", "-subj", "/CN=localhost", "-keyout", "tls.key", "-out", "tls.crt"],
                       cwd=cls.folder, stdin=subprocess.DEVNULL, capture_output=True, check=True)

    @classmethod
    def end_all(cls) -> None:
        servers = [getattr(cls, name) for name in ("calm", "busy", "prometheus") if hasattr(cls, name)]
        processes = [*cls.loads.values(), *(server.process for server in servers if server.process is not None)]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()

    @classmethod
    def ctl(cls, daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([OPTIONS.tetradctl, "--endpoint", daemon.socket, *arguments],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)

    @classmethod
    def load_weights(cls, daemon: Daemon, name: str) -> subprocess.CompletedProcess:
        return cls.ctl(daemon, "weights", "load", name, "--directory", CHECKPOINT, "--pattern", PATTERN)

    @classmethod
    def make_failures(cls) -> None:
        """The failures without which series are missing; the overload comes with the load."""
        refused = cls.ctl(cls.calm, "admin", "drain")
        assert "NO_CREDENTIAL" in refused.stderr, refused.stderr
        cls.change_while_read(cls.folder / "checkpoints" / CHECKPOINT / "model.safetensors")

    @classmethod
    def begin_load(cls) -> None:
        for daemon, rows, in_flight in ((cls.calm, CALM_ROWS, "1"), (cls.busy, BUSY_ROWS, "6")):
            loaded = cls.load_weights(daemon, "up")
            assert loaded.returncode == 0, loaded.stderr
            cls.loads[daemon.socket] = subprocess.Popen(
                [OPTIONS.tetradctl, "--endpoint", daemon.socket, "bench", "--weights", "up", "--a", "bf16",
                 "--m", rows, "--in-flight", in_flight, "--seconds", "600"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @classmethod
    def end_load(cls, daemon: Daemon) -> None:
        if load := cls.loads.pop(daemon.socket, None):
            load.kill()
            load.wait()

    @classmethod
    def change_while_read(cls, file: pathlib.Path) -> None:
        ended = threading.Event()

        def change() -> None:
            moment = 0
            while not ended.is_set():
                moment += 1
                os.utime(file, ns=(moment, moment))
                time.sleep(CHANGE_EVERY_S)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            wait_until("a load saw its file change",
                       lambda: "FILE_UNREADABLE" in cls.load_weights(cls.busy, "changing").stderr)
        finally:
            ended.set()
            thread.join()

    @classmethod
    def wait_for_recorded(cls) -> None:
        """Until rates have two samples of the last failure, and rules that build on others have run."""
        def recorded(name: str, label: str) -> set[str]:
            return {labels[label] for labels in cls.prometheus.samples(name)}

        wait_until("the rates of failures are recorded", lambda:
                   {"DATA_LOSS", "RESOURCE_EXHAUSTED"} <= recorded("instance_code:tetrad_answers:rate5m", "code"))
        wait_until("both daemons have latencies, and the overload is noticed", lambda:
                   {cls.calm.http, cls.busy.http} <= recorded("instance:tetrad_execute_seconds:p99_5m", "instance")
                   and "TetradOverloaded" in cls.prometheus.firing())

    # What is asked of every expression.

    def series(self, selector: str) -> list[dict[str, str]]:
        """Labels of what a selector finds; what is once there stays."""
        if selector not in self.known:
            self.known[selector] = self.prometheus.samples(selector)
        return self.known[selector]

    def check_selector(self, selector: promql.Selector) -> None:
        codes = [value for label, _, value in selector.matchers if label == "code"]
        for code in (each for value in codes for each in value.split("|")):
            self.assertIn(code, GRPC_CODES, selector.text())
        # A code appears with its first occurrence, and few occur here: the others are gRPC's by name.
        for one in selector.without("code").alternatives():
            found = self.series(one.text())
            self.assertTrue(found, f"{one.text()}: nothing is scraped or recorded under this selector")
            if codes:
                self.assertTrue(all("code" in labels for labels in found), one.text())

    def check_expression(self, expression: str, shown: set[str]) -> None:
        """`shown`: labels that a legend or a text shows."""
        for selector in promql.selectors(expression):
            self.check_selector(selector)
        there = {label for name in promql.metric_names(expression)
                 for labels in self.series(name) for label in labels}
        self.assertLessEqual(promql.grouping_labels(expression), there, f"{expression}: groups by what no series has")
        found = self.prometheus.samples(promql.without_thresholds(expression))
        self.assertTrue(found, f"{expression}: no numbers")
        for labels in found:
            self.assertLessEqual(shown, set(labels), expression)

    def test_the_page_of_metrics_lists_what_is_exported(self) -> None:
        documented = deployed.documented_metrics()
        scraped = {entry["metric"]: entry["type"] for entry in self.prometheus.get("targets/metadata")
                   if entry["target"]["instance"] == self.calm.http}
        self.assertEqual(set(documented), set(scraped))
        for name, (kind, labels) in documented.items():
            if kind != "as":  # "as usual": those of every process
                self.assertEqual(kind, scraped[name], name)
            series = name + ("_bucket" if kind == "histogram" else "")
            found = {frozenset(each) - {"__name__", "job", "instance", "le"} for each in self.series(series)}
            self.assertEqual(found, {labels}, name)

    def test_rules_are_healthy_and_their_expressions_have_data(self) -> None:
        loaded = [rule for group in self.prometheus.get("rules")["groups"] for rule in group["rules"]]
        rules = deployed.rules()
        self.assertEqual(len(loaded), len(rules))
        for rule in loaded:
            self.assertEqual((rule["health"], rule.get("lastError", "")), ("ok", ""), rule["name"])
        for rule in rules:
            with self.subTest(rule.get("alert") or rule["record"]):
                texts = " ".join(rule.get("annotations", {}).values())
                self.check_expression(rule["expr"], set(TEMPLATE_LABEL.findall(texts)))

    def test_dashboards_have_data(self) -> None:
        chosen = re.escape(self.calm.http).replace("\\", "\\\\")
        for name, dashboard in deployed.dashboards().items():
            for panel in deployed.panels(dashboard):
                for target in panel["targets"]:
                    with self.subTest(f"{name}: {panel['title']}, {target['refId']}"):
                        everything = promql.substituted(target["expr"], __rate_interval=RANGE, job=".+", instance=".+", method=".+")
                        self.check_expression(everything, set(LEGEND_LABEL.findall(target["legendFormat"])))
                        # And with one instance, as somebody would choose it.
                        one = promql.substituted(target["expr"], __rate_interval=RANGE, job="tetrad", instance=chosen, method=".+")
                        self.assertTrue(self.prometheus.samples(one), one)

    def test_variables_have_values(self) -> None:
        for name, dashboard in deployed.dashboards().items():
            for variable in dashboard["templating"]["list"]:
                if variable["type"] != "query":
                    continue
                with self.subTest(f"{name}: {variable['name']}"):
                    match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
                    self.assertIsNotNone(match)
                    selector = promql.substituted(match[1], job=".+")
                    values = {labels.get(match[2]) for labels in self.prometheus.samples(selector)}
                    self.assertTrue(values and None not in values)

    def test_examples_of_pages_have_data(self) -> None:
        for page in ("docs/metrics.md", "docs/monitoring.md"):
            expressions = deployed.examples(deployed.ROOT / page)
            self.assertTrue(expressions, page)
            for expression in expressions:
                with self.subTest(f"{page}: {expression}"):
                    self.check_expression(expression, set())

    def test_texts_of_firing_alerts_are_whole(self) -> None:
        """Those that the failures made above set off: their templates are expanded."""
        firing = self.prometheus.firing()
        self.assertLessEqual({"TetradOverloaded", "TetradInternalErrors"}, set(firing))
        for alert in (each for group in firing.values() for each in group):
            for text in alert["annotations"].values():
                self.assertNotRegex(text, r"error expanding|<no value>|{{", alert["labels"]["alertname"])

    # Runs last, by its name: afterwards one daemon is a new one, without load.
    def test_z_alerts_fire_and_resolve(self) -> None:
        def fires(name: str) -> bool:
            return any(alert["labels"]["instance"] == self.calm.http for alert in self.prometheus.firing().get(name, []))

        self.end_load(self.calm)
        wait_until("nothing of this fires yet", lambda: not fires("TetradDrainHangs") and not fires("TetradDown"))
        self.calm.process.send_signal(signal.SIGTERM)
        wait_until("the drain is noticed", lambda: fires("TetradDrainHangs"))
        self.calm.process.send_signal(signal.SIGTERM)  # ends it at once
        self.calm.process.wait(timeout=30)
        wait_until("the daemon is missed", lambda: fires("TetradDown"))
        wait_until("the drain is over", lambda: not fires("TetradDrainHangs"))
        self.calm.start()
        wait_until("the daemon is back", lambda: not fires("TetradDown"))
        self.assertFalse(fires("TetradDrainHangs"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("tetradd", "tetradctl", "prometheus", "checkpoints"):
        parser.add_argument(f"--{option}", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
