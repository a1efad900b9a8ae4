# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, as exceptions.

Every failure of the daemon, of the way to it, and every refusal by this package
itself is an :class:`Error` whose class follows from its code. Branch on class (or
``code``) and ``reason``; messages are for people and may change. The reasons, and what
to do about each, are in docs/errors.md."""
from __future__ import annotations

import dataclasses
import enum
import importlib.resources
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_DOMAIN = "tetrad"


class Code(enum.IntEnum):
    """The codes of gRPC, with its numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


@dataclasses.dataclass(frozen=True)
class Violation:
    """One wrong field: its path as in the schema, e.g. ``signature.exact.m[3]``."""

    field: str
    description: str


class Error(Exception):
    """A failed call.

    code: of gRPC. reason: one of docs/errors.md; empty if the gRPC library itself
    failed. violations: every wrong field that was told. metadata: of the first one
    ``field``, ``value``, ``limit`` and ``group``, as far as they apply. retry_delay:
    seconds to wait before trying again, where the daemon named it. request_id: as in
    the daemon's log; empty if the daemon never saw the call."""

    default_code: ClassVar[Code] = Code.UNKNOWN

    def __init__(self, message: str, *, code: Code | None = None, reason: str = "",
                 violations: Iterable[Violation] = (), metadata: Mapping[str, str] | None = None,
                 retry_delay: float | None = None, request_id: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = self.default_code if code is None else code
        self.reason = reason
        self.violations = tuple(violations)
        self.metadata = dict(metadata or {})
        self.retry_delay = retry_delay
        self.request_id = request_id

    @property
    def fields(self) -> tuple[str, ...]:
        """The paths of the wrong fields."""
        return tuple(each.field for each in self.violations)

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason and self.reason != self.code.name else ""
        return f"{self.code.name}{reason}: {self.message}"


class Cancelled(Error):
    """The caller cancelled it, or somebody who may."""

    default_code = Code.CANCELLED


class InvalidArgument(Error, ValueError):
    """The request can never work; refused here or by the daemon."""

    default_code = Code.INVALID_ARGUMENT


class DeadlineExceeded(Error, TimeoutError):
    """The time was over: nothing ran, or its result was dropped."""

    default_code = Code.DEADLINE_EXCEEDED


class NotFound(Error):
    """No such weights, plan, ticket or file; it may be there later."""

    default_code = Code.NOT_FOUND


class AlreadyExists(Error):
    """Another request came under this key before."""

    default_code = Code.ALREADY_EXISTS


class PermissionDenied(Error):
    """This identity may not do that."""

    default_code = Code.PERMISSION_DENIED


class ResourceExhausted(Error):
    """Refused before it ran; ``retry_delay`` says when to try again."""

    default_code = Code.RESOURCE_EXHAUSTED


class FailedPrecondition(Error):
    """Not in this order, or not on this device."""

    default_code = Code.FAILED_PRECONDITION


class Aborted(Error):
    """A handle has ended, or a newer stream has taken over."""

    default_code = Code.ABORTED


class Unimplemented(Error):
    """The daemon is older than this method."""

    default_code = Code.UNIMPLEMENTED


class Internal(Error):
    """A bug of the daemon, or of this package."""

    default_code = Code.INTERNAL


class Unavailable(Error):
    """No connection, or one that broke: then the call may have run or not."""

    default_code = Code.UNAVAILABLE


class DataLoss(Error):
    """What was stored is not what was written."""

    default_code = Code.DATA_LOSS


class Unauthenticated(Error):
    """A credential is missing, unknown or expired."""

    default_code = Code.UNAUTHENTICATED


_CLASSES: dict[Code, type[Error]] = {each.default_code: each for each in Error.__subclasses__()}


def refused(field: str, value: object, limit: str, *, reason: str = "FIELD_OUT_OF_RANGE") -> InvalidArgument:
    """What this package itself refuses, in the form of the daemon's refusals."""
    description = f"{value}: wanted {limit}"
    return InvalidArgument(f"{field}: {description}", reason=reason, violations=[Violation(field, description)],
                           metadata={"field": field, "value": str(value), "limit": limit})


class _Details:
    """The messages of the standard error model, in a pool of their own."""

    def __init__(self) -> None:
        data = importlib.resources.files("tetrad").joinpath("error_details.binpb").read_bytes()
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
            self._pool.AddSerializedFile(file.SerializeToString())

    def parse(self, name: str, data: bytes) -> Any:
        descriptor = self._pool.FindMessageTypeByName(f"google.rpc.{name}")
        if hasattr(message_factory, "GetMessageClass"):
            return message_factory.GetMessageClass(descriptor).FromString(data)
        return message_factory.MessageFactory(self._pool).GetPrototype(descriptor).FromString(data)


_details = _Details()


def make_error(code: int, message: str, details: Iterable[Any] = (), request_id: str = "") -> Error:
    """The error of a code and ``google.protobuf.Any`` details."""
    known = Code(code) if code in Code._value2member_map_ else Code.UNKNOWN
    error = _CLASSES.get(known, Error)(message, code=known, request_id=request_id)
    for detail in details:
        kind = detail.type_url.rpartition("/")[2].removeprefix("google.rpc.")
        if kind == "ErrorInfo":
            info = _details.parse(kind, detail.value)
            if info.domain == _DOMAIN:
                error.reason, error.metadata = info.reason, dict(info.metadata)
        elif kind == "BadRequest":
            found = _details.parse(kind, detail.value).field_violations
            error.violations = tuple(Violation(each.field, each.description) for each in found)
        elif kind == "RetryInfo":
            delay = _details.parse(kind, detail.value).retry_delay
            error.retry_delay = delay.seconds + delay.nanos * 1e-9
    return error


def from_rpc(code: int, message: str, trailers: Iterable[tuple[str, Any]]) -> Error:
    """The error of a call that ended with this code and trailing metadata."""
    found = dict(trailers)
    packed = found.get("grpc-status-details-bin", b"")
    details = _details.parse("Status", packed).details if packed else ()
    return make_error(code, message, details, str(found.get("x-request-id", "")))
