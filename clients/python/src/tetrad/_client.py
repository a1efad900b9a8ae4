# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The blocking client: performs the steps of the flows, and opens streams."""
from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar, Union

import grpc

from . import _retry as rpcs
from ._flows import Attempt, AwaitConnection, CancelRequest, Connection, Flow, Pause, Step, StreamIds, Ticket
from ._operands import Answer, ArrayLike, Request, Result, Rows, Weights
from ._options import DEFAULT_CALL, CallOptions, ClientOptions, prepare_channel
from ._progress import ProgressLike
from ._retry import Rpc
from .errors import DeadlineExceeded, Error, Unavailable, from_rpc
from .v1 import gemm_pb2, status_pb2, types_pb2

T = TypeVar("T")

_READY = grpc.ChannelConnectivity.READY
_FAILED = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _error_of(call: Any) -> Error:
    trailers = [(each[0], each[1]) for each in call.trailing_metadata() or ()]
    return from_rpc(call.code().value[0], call.details() or "", trailers)


class _Channel:
    """A channel, the state it is in, and its methods. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        arguments, credentials = prepare_channel(connection.endpoint, connection.options, connection.token)
        target = connection.endpoint.target
        self.channel = (grpc.insecure_channel(target, arguments) if credentials is None
                        else grpc.secure_channel(target, credentials, arguments))
        self._changed = threading.Condition()
        self._state = grpc.ChannelConnectivity.IDLE
        self._methods: dict[str, Any] = {}
        self.channel.subscribe(self._hear, try_to_connect=True)

    def _hear(self, state: grpc.ChannelConnectivity) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()

    def _connect(self) -> None:
        # Nothing else asks a channel that fell idle to connect.
        self.channel.unsubscribe(self._hear)
        self.channel.subscribe(self._hear, try_to_connect=True)

    def method(self, rpc: Rpc[Any, Any]) -> Any:
        if rpc.path not in self._methods:
            self._methods[rpc.path] = getattr(self.channel, rpcs.FORMS[rpc.service, rpc.method])(
                rpc.path, request_serializer=_serialize, response_deserializer=rpc.parse)
        return self._methods[rpc.path]

    def await_connection(self, deadline: float) -> None:
        limit = min(deadline, time.monotonic() + self._connection.options.connect_timeout)
        asked = False
        with self._changed:
            while self._state is not _READY:
                if self._state in _FAILED:
                    raise Unavailable(self._connection.unavailable_text())
                if self._state is grpc.ChannelConnectivity.IDLE and not asked:
                    asked = True
                    self._changed.release()
                    try:
                        self._connect()
                    finally:
                        self._changed.acquire()
                    continue
                left = limit - time.monotonic()
                if left <= 0 and limit == deadline:
                    raise DeadlineExceeded("the deadline passed before there was a connection", reason="DEADLINE")
                if left <= 0:
                    raise Unavailable(f"no answer within {self._connection.options.connect_timeout} s")
                self._changed.wait(left)

    def pause(self, until: float, or_connected: bool) -> None:
        with self._changed:
            while not (or_connected and self._state is _READY):
                left = until - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def attempt(self, step: Attempt) -> Any:
        method = self.method(step.rpc)
        timeout = max(step.deadline - time.monotonic(), 0.0)
        try:
            if step.heard is not None:
                call = method(step.requests, timeout=timeout, metadata=step.metadata)
                try:
                    for message in call:
                        step.heard(message)
                finally:
                    call.cancel()  # of one that ended it does nothing
                return None
            if isinstance(method, grpc.StreamUnaryMultiCallable):
                future = method.future(step.requests, timeout=timeout, metadata=step.metadata)
                try:
                    return future.result()
                finally:
                    future.cancel()
            return method(step.requests, timeout=timeout, metadata=step.metadata)
        except grpc.RpcError as error:
            raise _error_of(error) from None

    def perform(self, step: Step) -> Any:
        if isinstance(step, Attempt):
            return self.attempt(step)
        if isinstance(step, AwaitConnection):
            return self.await_connection(step.deadline)
        return self.pause(step.until, step.or_connected)

    def run(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                try:
                    value = self.perform(step)
                except Error as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(value)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            flow.close()


class Client:
    """A connection to one Tetrad daemon, by gRPC. Get one by :meth:`connect`.

    Thread-safe; calls may overlap. Not for use in a forked child. Every call has a
    deadline, and raises a :class:`tetrad.Error` when it fails. A connection that breaks
    is established anew; calls that fail for want of one, or that the daemon asks to send
    later, are repeated within their deadline where that is safe (docs/cpp-client.md has the
    table). Unavailable from :meth:`execute` therefore means that it may have run."""

    def __init__(self, connection: Connection, channel: _Channel) -> None:
        self._connection, self._channel, self._run = connection, channel, channel.run

    @classmethod
    def connect(cls, endpoint: str, options: ClientOptions | None = None) -> Client:
        """Connects to ``unix:PATH`` or ``HOST:PORT`` and waits until the daemon answers.

        Raises InvalidArgument (malformed endpoint or options), NotFound, FailedPrecondition or
        PermissionDenied (nothing, no socket, not our socket at a Unix path; FailedPrecondition
        also if the token would travel in the clear), Unavailable (nobody answers), OSError (of
        a file that the options name)."""
        connection = Connection(endpoint, options or ClientOptions())
        channel = _Channel(connection)
        try:
            channel.await_connection(float("inf"))
        except BaseException as error:
            channel.channel.close()
            raise connection.named(error) if isinstance(error, Error) else error
        return cls(connection, channel)

    def close(self) -> None:
        """Ends the connection and what is under way."""
        self._channel.channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        return self._connection.endpoint.text

    @property
    def retries(self) -> int:
        """Calls that were made again, so far."""
        return self._connection.retries

    def status(self, *, call: CallOptions = DEFAULT_CALL) -> status_pb2.GetStatusResponse:
        """State, device, memory and counts; the message is described in proto/tetrad/v1/status.proto."""
        return self._run(self._connection.status(call))

    def weights(self, *, call: CallOptions = DEFAULT_CALL) -> list[Weights]:
        """All versions of all weights the daemon holds."""
        return self._run(self._connection.weights(call))

    def upload(self, name: str, codes: ArrayLike, scales: ArrayLike, alpha: ArrayLike | None = None, *,
               scale_layout: str = "linear", seal: bool = True, upload_key: str = "",
               progress: ProgressLike = None, call: CallOptions = DEFAULT_CALL) -> Weights:
        """Registers weights of G groups.

        codes: uint8 ``[G, N, K/2]``, two E2M1 codes a byte, even k in the low nibble; or a list of
        G ``[N_g, K_g/2]``. scales: UE4M3 bytes, linear ``[G, N, K/16]``, or for "blocked" one flat
        plane of each group (:func:`tetrad.nvfp4.to_blocked`). alpha: FP32 ``[G]``; None: 1.
        :func:`tetrad.nvfp4.quantize_weights` makes all three. seal: usable at once, and never
        changed again; else see :meth:`seal`. progress: True draws a bar if standard error is a
        terminal; or a function of bytes done and in total, called on a thread of the transport.

        An upload that broke off goes on with what is missing, or begins anew if the daemon knows
        nothing of it, until the deadline or the patience is over. With ``upload_key`` what an
        earlier call with the same arguments sent is not sent again (docs/uploads.md). Raises
        InvalidArgument (shapes; ILLEGAL_SCALE), FailedPrecondition (SHAPES_DIFFER from the
        version before), ResourceExhausted (memory), AlreadyExists (KEY_REUSED)."""
        return self._run(self._connection.upload(name, codes, scales, alpha, scale_layout, seal, upload_key,
                                                 progress, call))

    def load(self, name: str, directory: str, pattern: str, *, ignore_input_scales: bool = False,
             progress: ProgressLike = None, call: CallOptions = DEFAULT_CALL) -> Weights:
        """Loads one projection of a checkpoint on the daemon's side (docs/checkpoints.md).

        directory: below the daemon's ``--checkpoint-root``. pattern: prefix of the tensors, ``{expert}``
        standing for the experts' numbers. Raises NotFound (FILE_NOT_FOUND), InvalidArgument
        (ILLEGAL_CHECKPOINT), DataLoss (FILE_UNREADABLE), PermissionDenied (out of the root)."""
        return self._run(self._connection.load(name, directory, pattern, ignore_input_scales, progress, call))

    def seal(self, weights: Weights, *, call: CallOptions = DEFAULT_CALL) -> Weights:
        """Makes uploaded weights immutable and usable. Raises FailedPrecondition: WEIGHTS_INCOMPLETE."""
        return self._run(self._connection.seal(weights, call))

    def drop(self, weights: Weights | str, *, call: CallOptions = DEFAULT_CALL) -> int:
        """Forgets a version, or all of a name; how many were dropped. Raises NotFound."""
        return self._run(self._connection.drop(weights, call))

    def execute(self, activations: ArrayLike, weights: Weights | str, m: Rows, *, output_type: str | None = None,
                alpha: ArrayLike | None = None, row_scale: ArrayLike | None = None, priority: str = "normal",
                call: CallOptions = DEFAULT_CALL) -> Result:
        """One grouped GEMM; the arguments are those of :class:`tetrad.Request`.

        Raises InvalidArgument (field, value and limit are told), NotFound (WEIGHTS_NOT_FOUND),
        ResourceExhausted (after repetitions), DeadlineExceeded, Unavailable (it may have run)."""
        request = Request(activations, weights, m, output_type, alpha, row_scale, priority)
        return self._run(self._connection.execute(request, call))

    def prepare(self, weights: Weights | str, m: Rows, *, activation_type: str, output_type: str = "bf16",
                scale_layout: str = "linear", row_scale: bool = False, call: CallOptions = DEFAULT_CALL) -> Plan:
        """Builds, or finds, the plan of a shape; use it as a context manager.

        activation_type: "nvfp4", "fp16" or "bf16". scale_layout: of NVFP4 activations. row_scale:
        whether factors of rows come with each request. Of :class:`tetrad.Offsets` and
        :class:`tetrad.Counts` the capacity counts, not the values."""
        response, known = self._run(self._connection.prepare(weights, m, activation_type, output_type, scale_layout,
                                                             row_scale, call))
        return Plan(self, response, known, m, output_type)

    def execute_stream(self, requests: Iterable[Union[Request, CancelRequest]], *,
                       call: CallOptions = DEFAULT_CALL) -> Iterator[Answer]:
        """Many grouped GEMMs under way at once: yields an answer for each as it ends.

        ``requests`` is read on a thread of the transport, as fast as the daemon takes them. An error of
        one is in its answer; the stream raises only when it cannot go on, and is not repeated. What
        ``requests`` raises ends the stream and is raised here. Its deadline is that of the whole."""
        connection, ids, failures = self._connection, StreamIds(), []
        self._channel.await_connection(connection.deadline(call, connection.options.transfer_deadline))

        def messages() -> Iterator[gemm_pb2.ExecuteStreamRequest]:
            try:
                for request in requests:
                    if isinstance(request, CancelRequest):
                        yield ids.cancel(request)
                    else:
                        encoded, weights = self._run(connection.encode(request, call))
                        yield ids.message(request, encoded, weights)
            except Exception as failure:
                failures.append(failure)
                stream.cancel()

        timeout = call.deadline or connection.options.transfer_deadline
        started = threading.Event()
        sent = messages()

        def after_start() -> Iterator[gemm_pb2.ExecuteStreamRequest]:
            started.wait()
            yield from sent

        stream = self._channel.method(rpcs.EXECUTE_STREAM)(after_start(), timeout=timeout,
                                                           metadata=connection.metadata(call))
        started.set()
        try:
            for said in stream:
                encoded, weights = ids.take(said.id)
                yield self._run(connection.answer(said.id, encoded, weights, said, call))
        except grpc.RpcError as error:
            raise failures[0] if failures else connection.named(_error_of(error)) from None
        finally:
            stream.cancel()

    def submit(self, activations: ArrayLike, weights: Weights | str, m: Rows, *, output_type: str | None = None,
               alpha: ArrayLike | None = None, row_scale: ArrayLike | None = None, priority: str = "normal",
               idempotency_key: str = "", timeout: float = 0, keep: float = 0,
               call: CallOptions = DEFAULT_CALL) -> Ticket:
        """A grouped GEMM that outlives this call and the connection (docs/tickets.md).

        The first arguments are those of :class:`tetrad.Request`. Under an idempotency key it runs once,
        however often it is submitted while the ticket is kept; empty: one is drawn, so that a lost
        answer is no second run. timeout: seconds until it must have run; keep: seconds its outcome
        is kept; 0: as long as the daemon allows. Raises AlreadyExists: KEY_REUSED for another request."""
        request = Request(activations, weights, m, output_type, alpha, row_scale, priority)
        return self._run(self._connection.submit(request, idempotency_key, timeout, keep, call))

    def wait(self, ticket: Ticket, timeout: float = 30, *, forget: bool = False,
             call: CallOptions = DEFAULT_CALL) -> Answer | None:
        """The outcome of a ticket, waiting at most ``timeout`` seconds; None: it is not there yet.
        Errors raised here are about the wait; one of the request is in the answer. forget: the
        ticket is not needed any more once the answer was sent."""
        return self._run(self._connection.wait(ticket, timeout, forget, call))

    def cancel(self, ticket: Ticket, *, call: CallOptions = DEFAULT_CALL) -> bool:
        """Its outcome is CANCELLED from now on. False: there was one already, which stays."""
        return self._run(self._connection.cancel(ticket, call))


@dataclasses.dataclass(frozen=True)
class PlanBase:
    """A plan. It does not keep weights alive. One that was not used for the daemon's
    ``handle_idle_seconds``, or is of an earlier daemon, is gone: Aborted (STALE_HANDLE) or
    NotFound (PLAN_NOT_FOUND); prepare again then."""

    _client: Any = dataclasses.field(repr=False)
    _response: gemm_pb2.PrepareResponse = dataclasses.field(repr=False)
    weights: Weights
    m: Rows
    output_type: str

    @property
    def name(self) -> str:
        return self._response.plan

    @property
    def info(self) -> types_pb2.PlanInfo:
        """Kernel, floor, sizes of operands; the message is described in proto/tetrad/v1/types.proto."""
        return self._response.info

    @property
    def cached(self) -> bool:
        """It existed already."""
        return self._response.cached

    def _request(self, activations: ArrayLike, m: Rows | None, alpha: ArrayLike | None,
                 row_scale: ArrayLike | None, priority: str) -> Request:
        return Request(activations, self.weights, self.m if m is None else m, self.output_type, alpha, row_scale,
                       priority)


class Plan(PlanBase):
    __doc__ = PlanBase.__doc__

    def execute(self, activations: ArrayLike, *, m: Rows | None = None, alpha: ArrayLike | None = None,
                row_scale: ArrayLike | None = None, priority: str = "normal",
                call: CallOptions = DEFAULT_CALL) -> Result:
        """As :meth:`Client.execute`. m: other Offsets or Counts of the same capacity."""
        request = self._request(activations, m, alpha, row_scale, priority)
        client: Client = self._client
        return client._run(client._connection.execute(request, call, self.name))

    def release(self, *, call: CallOptions = DEFAULT_CALL) -> None:
        """Gives the handle back; leaving the context does it."""
        self._client._run(self._client._connection.release(self.name, call))

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            self.release()
        except Error:
            pass  # it ends by itself when it was not used for a while
