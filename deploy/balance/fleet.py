# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""How a client spreads over many daemons, as an example to take from (docs/kubernetes.md).

Requests of weights that several daemons have go to them in turn; a daemon that drains or is gone is left out. Which
daemons have which weights needs no directory: everybody who knows the daemons' names computes the same owners."""
import hashlib
import json
from collections.abc import Iterable, Mapping

import grpc

# In turn over all addresses, those that say NOT_SERVING left out: a daemon that drains says so at once and still
# answers what is on its way. What a daemon refuses with UNAVAILABLE did not run there or may be repeated, as an
# Execute has no effect but its answer.
SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": "tetrad.v1.Gemm"},
    "methodConfig": [{
        "name": [{"service": "tetrad.v1.Gemm", "method": "Execute"}],
        "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.05s", "maxBackoff": "1s", "backoffMultiplier": 2,
                        "retryableStatusCodes": ["UNAVAILABLE"]},
    }],
}


def spreading_channel(target: str, credentials: grpc.ChannelCredentials | None = None) -> grpc.Channel:
    """A channel over all addresses of `target`: `dns:///tetradd.tetrad.svc:50051`, `ipv4:10.0.0.1:50051,...`."""
    options = [("grpc.service_config", json.dumps(SERVICE_CONFIG)), ("grpc.enable_http_proxy", 0),
               ("grpc.max_receive_message_length", 512 << 20), ("grpc.max_send_message_length", 512 << 20)]
    if credentials is not None:
        return grpc.secure_channel(target, credentials, options)
    return grpc.insecure_channel(target, options)


def owners(weights: str, daemons: Iterable[str], copies: int = 1) -> list[str]:
    """The daemons that hold these weights, the first choice first: those with the highest digests of (daemon,
    weights). One that comes takes what it now wins, one that goes leaves its part to the others; nothing else moves.
    """
    def digest(daemon: str) -> bytes:
        return hashlib.sha256(f"{daemon}\0{weights}".encode()).digest()
    return sorted(daemons, key=digest, reverse=True)[:copies]


class Fleet:
    """Daemons by name (one that lasts longer than a process: the node's) with their addresses, IP:PORT."""

    def __init__(self, daemons: Mapping[str, str], copies: int):
        self.daemons = dict(daemons)
        self.copies = copies
        self._channels: dict[str, grpc.Channel] = {}

    def owners(self, weights: str) -> list[str]:
        return owners(weights, self.daemons, self.copies)

    def channel(self, weights: str) -> grpc.Channel:
        """To the owners of these weights, in turn. Weights with the same owners share it."""
        target = "ipv4:" + ",".join(sorted(self.daemons[name] for name in self.owners(weights)))
        if target not in self._channels:
            self._channels[target] = spreading_channel(target)
        return self._channels[target]

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
