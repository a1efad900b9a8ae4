# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods of rendered manifests, and the daemon's flags in them."""
from collections.abc import Iterator
from typing import Any

Resource = dict[str, Any]
PATHS = ("tls-certificate", "tls-key", "tls-client-ca", "access", "config", "checkpoint-root")


def pods(resources: list[Resource]) -> list[Resource]:
    """What makes pods."""
    return [each for each in resources if "template" in each.get("spec", {})]


def pod_spec(workload: Resource) -> Resource:
    return workload["spec"]["template"]["spec"]


def daemons(spec: Resource) -> list[Resource]:
    """Containers that run the daemon: those whose entry point is the image's."""
    found = [each for field in ("initContainers", "containers") for each in spec.get(field, [])
             if "command" not in each]
    assert found, "a pod without a daemon"
    return found


def port_of(spec: Resource, name: str) -> int:
    """The number of a named port of a pod."""
    (port,) = [port["containerPort"] for each in [*spec.get("initContainers", []), *spec["containers"]]
               for port in each.get("ports", []) if port["name"] == name]
    return port


class Arguments:
    """The arguments of a container with its variables TETRAD_*, by flag."""

    def __init__(self, container: Resource):
        self.pairs = [(name, value) for name, _, value in
                      (argument.removeprefix("--").partition("=") for argument in container["args"])]
        assert all(argument.startswith("--") for argument in container["args"]), container["args"]
        for variable in container.get("env", []):
            if variable["name"].startswith("TETRAD_"):
                self.pairs.append((variable["name"][len("TETRAD_"):].lower().replace("_", "-"), variable["value"]))

    def values(self, flag: str) -> list[str]:
        return [value for name, value in self.pairs if name == flag]

    def value(self, flag: str, default: str | None = None) -> str:
        found = self.values(flag) or ([default] if default is not None else [])
        assert len(found) == 1, f"--{flag}: {found}"
        return found[0]

    def tcp_port(self, address: str) -> int | None:
        return None if address.startswith("unix:") else int(address.rpartition(":")[2])

    def port(self, flag: str) -> int | None:
        return self.tcp_port(self.value(flag))

    def paths(self) -> Iterator[str]:
        """Files and folders that must be there."""
        for name, value in self.pairs:
            if name in PATHS:
                yield value
            elif name == "listen" and value.startswith("unix:"):
                yield value[len("unix:"):]
