# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The methods of the daemon, and which call may be made again after which failure.

The rules are those of the C++ client: what is safe and why is in clients/cpp/retry.cc,
which a test compares this table with, and in docs/cpp-client.md. Steps of injected time
and chance; a RetryBudget is thread-safe, CallRetries is of one call."""
from __future__ import annotations

import dataclasses
import enum
import threading
from typing import Any, Generic, TypeVar

from google.protobuf import descriptor_pb2

from .errors import Code, Error
from .v1 import gemm_pb2, status_pb2, weights_pb2

Request = TypeVar("Request")
Response = TypeVar("Response")


class Repeat(enum.Enum):
    NEVER = "never"
    IF_REFUSED = "if it is known not to have begun"
    ALWAYS = "made twice it is as made once"


@dataclasses.dataclass(frozen=True)
class Rpc(Generic[Request, Response]):
    """A method, as one kind of request uses it."""

    service: str
    method: str
    request: type[Request]
    response: type[Response]
    repeat: Repeat

    @property
    def path(self) -> str:
        return f"/tetrad.v1.{self.service}/{self.method}"

    def parse(self, data: bytes) -> Response:
        response: Any = self.response
        return response.FromString(data)  # type: ignore[no-any-return]


def _forms() -> dict[tuple[str, str], str]:
    """How gRPC calls the form of each method, "unary_stream" for example, out of the schema."""
    out = {}
    for file in (gemm_pb2, status_pb2, weights_pb2):
        described = descriptor_pb2.FileDescriptorProto()
        file.DESCRIPTOR.CopyToProto(described)
        for service in described.service:
            for method in service.method:
                asks, answers = ("stream" if streams else "unary"
                                 for streams in (method.client_streaming, method.server_streaming))
                out[service.name, method.name] = f"{asks}_{answers}"
    return out


FORMS = _forms()
_E = Repeat
GET_STATUS = Rpc("Status", "GetStatus", status_pb2.GetStatusRequest, status_pb2.GetStatusResponse, _E.ALWAYS)
UPLOAD = Rpc("Weights", "Upload", weights_pb2.UploadRequest, weights_pb2.UploadResponse, _E.NEVER)
GET_UPLOAD = Rpc("Weights", "GetUpload", weights_pb2.GetUploadRequest, weights_pb2.GetUploadResponse, _E.ALWAYS)
LOAD = Rpc("Weights", "Load", weights_pb2.LoadRequest, weights_pb2.LoadProgress, _E.IF_REFUSED)
SEAL = Rpc("Weights", "Seal", weights_pb2.SealRequest, weights_pb2.SealResponse, _E.IF_REFUSED)
LIST_WEIGHTS = Rpc("Weights", "List", weights_pb2.ListWeightsRequest, weights_pb2.ListWeightsResponse, _E.ALWAYS)
DROP = Rpc("Weights", "Drop", weights_pb2.DropRequest, weights_pb2.DropResponse, _E.IF_REFUSED)
PREPARE = Rpc("Gemm", "Prepare", gemm_pb2.PrepareRequest, gemm_pb2.PrepareResponse, _E.ALWAYS)
EXECUTE = Rpc("Gemm", "Execute", gemm_pb2.ExecuteRequest, gemm_pb2.ExecuteResponse, _E.IF_REFUSED)
EXECUTE_STREAM = Rpc("Gemm", "ExecuteStream", gemm_pb2.ExecuteStreamRequest, gemm_pb2.ExecuteStreamResponse,
                     _E.NEVER)
RELEASE = Rpc("Gemm", "Release", gemm_pb2.ReleaseRequest, gemm_pb2.ReleaseResponse, _E.IF_REFUSED)
SUBMIT_WITH_KEY = Rpc("Gemm", "Submit", gemm_pb2.SubmitRequest, gemm_pb2.SubmitResponse, _E.ALWAYS)
WAIT = Rpc("Gemm", "Wait", gemm_pb2.WaitRequest, gemm_pb2.WaitResponse, _E.ALWAYS)
WAIT_AND_FORGET = Rpc("Gemm", "Wait", gemm_pb2.WaitRequest, gemm_pb2.WaitResponse, _E.IF_REFUSED)
CANCEL = Rpc("Gemm", "Cancel", gemm_pb2.CancelRequest, gemm_pb2.CancelResponse, _E.IF_REFUSED)


class RetryBudget:
    """What a client may spend on repeated calls in all, so that many that fail at once do
    not multiply the load that makes them fail."""

    AT_ONCE = 100
    PER_SECOND = 10

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = float(self.AT_ONCE)
        self._counted = float("-inf")

    def spend(self, now: float) -> bool:
        """False: no call is to be repeated now."""
        with self._lock:
            if now > self._counted:
                self._left = min(self.AT_ONCE, self._left + self.PER_SECOND * (now - self._counted))
                self._counted = now
            if self._left < 1:
                return False
            self._left -= 1
            return True


class CallRetries:
    """The attempts of one call. Times are seconds of one clock."""

    FIRST_DELAY = 0.1
    LONGEST_DELAY = 5.0

    def __init__(self, repeat: Repeat, attempts: int, deadline: float) -> None:
        self._repeat, self._attempts, self._deadline = repeat, attempts, deadline
        self._made = 0

    def once_more(self) -> bool:
        """For a reason that is not one of the error and needs no pause."""
        self._made += 1
        return self._made < self._attempts

    def after(self, error: Error, sent: bool, now: float, chance: float) -> float | None:
        """After a failed attempt: how long to wait before the next; None: the call ends with
        this. ``sent``: the daemon may have got it. ``chance`` in [0, 1) spreads clients that
        failed together. The daemon's delay is the least."""
        if not self.once_more() or not self._may_repeat(error, sent):
            return None
        doubled: float = self.FIRST_DELAY * 2.0 ** (self._made - 1)
        delay = min(doubled, self.LONGEST_DELAY) * (0.5 + 0.5 * chance)
        if error.retry_delay is not None:
            delay = max(delay, error.retry_delay * (1 + 0.2 * chance))
        # The reason is worth more than DEADLINE_EXCEEDED a while later.
        return None if delay >= self._deadline - now else delay

    def _may_repeat(self, error: Error, sent: bool) -> bool:
        if self._repeat is Repeat.NEVER:
            return False
        if error.code is Code.RESOURCE_EXHAUSTED:
            # Without a delay it is not the daemon's: a message too large, for example.
            return error.retry_delay is not None
        if error.code is Code.UNAVAILABLE:
            return not sent or self._repeat is Repeat.ALWAYS or error.reason == "DRAINING"
        return False


class Resumption:
    """When an upload whose connection broke is tried again, and for how long."""

    FIRST_WAIT = 0.05
    LONGEST_WAIT = 5.0

    def __init__(self, resume: bool, patience: float, deadline: float, now: float) -> None:
        self._resume, self._patience, self._deadline = resume, patience, deadline
        self._since = now  # patience is needed
        self._reached = 0
        self._failures = 0  # since the daemon had more

    def reached(self, done: int, now: float) -> None:
        """The daemon has so many bytes: more than before means that it goes on."""
        if done > self._reached:
            self._reached, self._failures, self._since = done, 0, now

    def sent(self, now: float) -> None:
        """The connection took more of the transfer than any before."""
        self._since = now

    def again(self, error: Error, now: float, chance: float) -> float | None:
        """The wait before the next attempt; None if there is none."""
        if not self._resume or error.code is not Code.UNAVAILABLE:
            return None
        wait = min(self.LONGEST_WAIT, self.FIRST_WAIT * 2.0 ** min(self._failures, 7)) * (0.5 + 0.5 * chance)
        self._failures += 1
        if now + wait >= self._deadline or now + wait - self._since > self._patience:
            return None
        return wait
