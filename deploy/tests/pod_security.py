# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of Kubernetes' Pod Security Standards of level "restricted", those of "baseline" included, for the
specification of a Linux pod; and one that is stricter than they are: the root file system is read-only."""
from collections.abc import Iterator
from typing import Any

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
PROFILES = {"RuntimeDefault", "Localhost"}
SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
SYSCTLS = {"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
           "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
           "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
           "net.ipv4.tcp_keepalive_probes"}

Spec = dict[str, Any]


def containers(spec: Spec) -> list[Spec]:
    return [each for field in ("initContainers", "containers", "ephemeralContainers") for each in spec.get(field, [])]


def violations(spec: Spec) -> Iterator[str]:
    pod = spec.get("securityContext", {})
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"{field} is set"
    for volume in spec.get("volumes", []):
        for kind in set(volume) - {"name"} - VOLUMES:
            yield f"volume {volume['name']} is a {kind}"
    for sysctl in pod.get("sysctls", []):
        if sysctl["name"] not in SYSCTLS:
            yield f"sysctl {sysctl['name']} is not safe"
    if pod.get("windowsOptions", {}).get("hostProcess"):
        yield "a host process"
    for container in containers(spec):
        yield from (f"{container['name']}: {text}" for text in of_container(container, pod))


def of_container(container: Spec, pod: Spec) -> Iterator[str]:
    own = container.get("securityContext", {})

    def in_force(field: str) -> Any:
        return own.get(field, pod.get(field))

    if own.get("privileged"):
        yield "is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "may escalate its privileges"
    if in_force("runAsNonRoot") is not True:
        yield "may run as root"
    if in_force("runAsUser") == 0:
        yield "runs as user 0"
    if (in_force("seccompProfile") or {}).get("type") not in PROFILES:
        yield "has no seccomp profile"
    if (in_force("appArmorProfile") or {"type": "RuntimeDefault"})["type"] not in PROFILES:
        yield "has no AppArmor profile"
    if "ALL" not in own.get("capabilities", {}).get("drop", []):
        yield "does not drop all capabilities"
    for capability in set(own.get("capabilities", {}).get("add", [])) - {"NET_BIND_SERVICE"}:
        yield f"adds {capability}"
    if own.get("procMount", "Default") != "Default":
        yield "sees all of /proc"
    if own.get("windowsOptions", {}).get("hostProcess"):
        yield "is a host process"
    selinux = in_force("seLinuxOptions") or {}
    if selinux.get("type", "") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield "has SELinux options of its own"
    for port in container.get("ports", []):
        if port.get("hostPort"):
            yield f"takes port {port['hostPort']} of the host"
    for hook in [*container.get("lifecycle", {}).values(), *(container.get(f"{kind}Probe") or {}
                                                             for kind in ("liveness", "readiness", "startup"))]:
        if (hook.get("httpGet") or hook.get("tcpSocket") or {}).get("host"):
            yield "a probe or hook goes to another host"
    if own.get("readOnlyRootFilesystem") is not True:
        yield "may write to its root file system"
