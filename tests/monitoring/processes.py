# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of the live test: daemons, and a Prometheus that scrapes them."""
import json
import math
import pathlib
import re
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, Optional

PATIENCE_S = 60.0


def wait_until(what: str, holds: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    """The first true value of `holds`; the test fails when none comes."""
    end = time.monotonic() + seconds
    while not (value := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s in vain until {what}")
        time.sleep(0.1)
    return value


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Daemon:
    """A tetradd that can be started again on the same addresses."""

    def __init__(self, program: str, folder: pathlib.Path, name: str, *flags: str) -> None:
        self.log = folder / f"{name}.log"
        self.socket = f"unix:{folder}/{name}.sock"
        self.http = f"127.0.0.1:{free_port()}"
        self.command = [program, "--device", "cpu", "--listen", self.socket, "--http", self.http, *flags]
        self.process: Optional[subprocess.Popen[bytes]] = None

    def start(self) -> None:
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(self.log.read_text())
        return b"event=ready" in self.log.read_bytes()


class Prometheus:
    """A server of its own with the given targets and rules, which it reads from a
    copy in which no alert waits longer than a second."""

    def __init__(self, program: str, folder: pathlib.Path, rules: pathlib.Path, targets: list[str]) -> None:
        (folder / "rules.yaml").write_text(re.sub(r"\bfor: \w+", "for: 1s", rules.read_text()))
        (folder / "prometheus.yaml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "tetrad", "static_configs": [{"targets": targets}]}]}))
        self.address = f"127.0.0.1:{free_port()}"
        self.log = folder / "prometheus.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [program, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address={self.address}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def get(self, path: str, **fields: str) -> Any:
        data = urllib.parse.urlencode(fields).encode() if fields else None
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}", data, timeout=PATIENCE_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{fields or path}: {error.read().decode()}") from error

    def ready(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(self.log.read_text())
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=PATIENCE_S) as answer:
                return answer.status == 200
        except OSError:
            return False

    def samples(self, expression: str) -> list[dict[str, str]]:
        """Labels of the samples that an expression has now and that are numbers."""
        return [sample["metric"] for sample in self.get("query", query=expression)["result"]
                if math.isfinite(float(sample["value"][1]))]

    def firing(self) -> dict[str, list[dict[str, Any]]]:
        """Alert name -> its firing alerts."""
        found: dict[str, list[dict[str, Any]]] = {}
        for alert in self.get("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert)
        return found
