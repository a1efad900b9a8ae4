# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""What every call does, without doing it: the part that both clients share.

A flow is a generator that yields steps (wait for a connection, make one attempt, pause)
and is sent what came of each, or has the :class:`Error` thrown into it. Client performs
the steps by blocking, aio.Client by awaiting; neither knows anything else of a call. So
repetition, resumption, checks and conversions exist once."""
from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar, Union

from . import _retry as rpcs
from ._operands import (Answer, Encoded, Request, Result, Rows, Weights, answer_error, make_signature, weights_of,
                        weights_operands)
from ._options import BearerToken, CallOptions, ClientOptions, Endpoint, check_key, check_times, random_key
from ._progress import ProgressLike, reporter
from ._retry import CallRetries, Resumption, RetryBudget, Rpc
from .errors import Code, Error, Internal, InvalidArgument, NotFound, refused
from .v1 import gemm_pb2, status_pb2, weights_pb2

T = TypeVar("T")
Q = TypeVar("Q")
R = TypeVar("R")

_LONGEST_CALL = 10 * 365 * 86400.0
_CHUNK = 1 << 20
_MOST_RANGES = 1024  # that the daemon tells of an operand
_FORGET_SECONDS = 2.0


# Steps. Deadlines are of time.monotonic().
@dataclasses.dataclass(frozen=True)
class AwaitConnection:
    """Until connected. Unavailable as soon as connecting failed, without waiting for the next try."""

    deadline: float


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt of a method. ``requests`` is the request, or an iterator of them where the client
    streams. Returns the response; where the daemon streams, None after ``heard`` got each message."""

    rpc: Rpc[Any, Any]
    requests: Any
    deadline: float
    metadata: list[tuple[str, str]]
    heard: Callable[[Any], None] | None = None


@dataclasses.dataclass(frozen=True)
class Pause:
    """Until then; with ``or_connected`` only until there is a connection."""

    until: float
    or_connected: bool


Step = Union[AwaitConnection, Attempt, Pause]
Flow = Generator[Step, Any, T]


class Connection:
    """What the calls of one client have in common; thread-safe."""

    def __init__(self, endpoint: str, options: ClientOptions) -> None:
        check_times(options)
        self.endpoint = Endpoint.parse(endpoint)
        self.options = options
        self.endpoint.check_reachable()
        self.token = BearerToken(options.token, options.token_file)
        self.retries = 0
        self._budget = RetryBudget()
        self._known: dict[str, Weights] = {}  # by the name that was asked for

    def unavailable_text(self) -> str:
        if self.options.tls is not None and not self.endpoint.path:
            return "nobody accepts connections there, or one side refused the other's certificate"
        return "nobody accepts connections there"

    def deadline(self, call: CallOptions, default: float) -> float:
        return time.monotonic() + min(call.deadline or default, _LONGEST_CALL)

    def metadata(self, call: CallOptions) -> list[tuple[str, str]]:
        return self.token.metadata() + call.metadata()

    def named(self, error: Error) -> Error:
        """Unavailable comes from the transport as often as from the daemon, and then says nothing
        about whom it tried to reach."""
        if error.code is Code.UNAVAILABLE:
            error.message = f"{self.endpoint.text}: {error.message}"
        return error

    # --- one call, repeated where that is safe (docs/cpp-client.md)

    def repeated(self, rpc: Rpc[Any, Any], call: CallOptions, default: float, attempt: Callable[[float], Flow[T]],
                 last: Callable[[], bool] = lambda: False) -> Flow[T]:
        """``last``: others saw something of the attempt, so it is not to be repeated."""
        deadline = self.deadline(call, default)
        tries = CallRetries(rpc.repeat, self.options.attempts, deadline)
        while True:
            generation = self.token.generation
            sent = False
            try:
                yield AwaitConnection(deadline)
                sent = True
                return (yield from attempt(deadline))
            except Error as error:
                failure = error
            # Refused before anything of the request was looked at.
            if (not last() and failure.code is Code.UNAUTHENTICATED and self.token.renew(generation)
                    and tries.once_more()):
                self.retries += 1
                continue
            now = time.monotonic()
            delay = None if last() else tries.after(failure, sent, now, random.random())
            if delay is None or not self._budget.spend(now):
                raise self.named(failure)
            yield Pause(now + delay, or_connected=not sent)
            self.retries += 1

    def unary(self, rpc: Rpc[Q, R], request: Q, call: CallOptions, default: float | None = None) -> Flow[R]:
        def attempt(deadline: float) -> Flow[R]:
            return (yield Attempt(rpc, request, deadline, self.metadata(call)))  # type: ignore[no-any-return]

        return self.repeated(rpc, call, default or self.options.deadline, attempt)

    # --- status and weights

    def status(self, call: CallOptions) -> Flow[status_pb2.GetStatusResponse]:
        return self.unary(rpcs.GET_STATUS, status_pb2.GetStatusRequest(), call)

    def weights(self, call: CallOptions) -> Flow[list[Weights]]:
        listed = yield from self.unary(rpcs.LIST_WEIGHTS, weights_pb2.ListWeightsRequest(), call)
        return [weights_of(each) for each in listed.weights]

    def seal(self, weights: Weights, call: CallOptions) -> Flow[Weights]:
        request = weights_pb2.SealRequest(name=weights.name, version=weights.version)
        return weights_of((yield from self.unary(rpcs.SEAL, request, call)).weights)

    def drop(self, weights: Weights | str, call: CallOptions) -> Flow[int]:
        ref = weights.ref if isinstance(weights, Weights) else weights
        return (yield from self.unary(rpcs.DROP, weights_pb2.DropRequest(weights=ref), call)).dropped

    def load(self, name: str, directory: str, pattern: str, ignore_input_scales: bool, progress: ProgressLike,
             call: CallOptions) -> Flow[Weights]:
        request = weights_pb2.LoadRequest(name=name, directory=directory, pattern=pattern,
                                          ignore_input_scales=ignore_input_scales)
        report = reporter(progress, name)
        messages: list[weights_pb2.LoadProgress] = []

        def heard(message: weights_pb2.LoadProgress) -> None:
            messages[:] = [message]
            report(message.bytes_done, message.bytes_total)

        def attempt(deadline: float) -> Flow[None]:
            yield Attempt(rpcs.LOAD, request, deadline, self.metadata(call), heard)

        yield from self.repeated(rpcs.LOAD, call, self.options.transfer_deadline, attempt, lambda: bool(messages))
        if not messages or not messages[0].HasField("weights"):
            raise Internal("the daemon ended a load without saying what it loaded")
        return weights_of(messages[0].weights, messages[0].notes)

    def upload(self, name: str, codes: Any, scales: Any, alpha: Any, scale_layout: str, seal: bool, upload_key: str,
               progress: ProgressLike, call: CallOptions) -> Flow[Weights]:
        own_key = call.resume and not upload_key
        key = random_key() if own_key else upload_key
        header, code_plane, scale_plane = weights_operands(name, codes, scales, alpha, scale_layout, seal, key)
        sending = _Sending(header, {1: code_plane, 2: scale_plane}, reporter(progress, name))
        deadline = self.deadline(call, self.options.transfer_deadline)
        resumption = Resumption(call.resume, self.options.resume_patience, deadline, time.monotonic())
        # A key of the caller's may be that of an upload which broke off before this call.
        ask = call.resume and not own_key
        while True:
            left = dataclasses.replace(call, deadline=max(deadline - time.monotonic(), 0.001))
            try:
                ranges = sending.everything()
                if ask:
                    ranges = yield from self._missing(sending, left)
                    resumption.reached(sending.total - sum(size for _, _, size in ranges), time.monotonic())
                ask = True
                left_now = max(deadline - time.monotonic(), 0.001)
                chunks = sending.chunks(ranges, resumption)
                response = yield Attempt(rpcs.UPLOAD, chunks, time.monotonic() + left_now, self.metadata(call))
                sending.finished()
                return weights_of(response.weights)
            except Error as error:
                failure = error
            if sending.failure is None:
                now = time.monotonic()
                wait = resumption.again(failure, now, random.random())
                if wait is not None:
                    yield Pause(now + wait, or_connected=False)
                    continue
            # Nobody else knows the key, so nothing need be kept for it.
            if own_key and (sending.failure is not None or failure.code is not Code.UNAVAILABLE):
                yield from self._forget(header)
            raise sending.failure or self.named(failure)

    def _missing(self, sending: _Sending, call: CallOptions) -> Flow[list[tuple[int, int, int]]]:
        question = weights_pb2.GetUploadRequest(name=sending.header.name, upload_key=sending.header.upload_key)
        try:
            kept = yield from self.unary(rpcs.GET_UPLOAD, question, call)
        except NotFound:
            return sending.everything()  # never begun, expired, or lost with its daemon
        # One that is complete is answered when its header comes, if that is equal.
        return sending.everything() if kept.HasField("weights") else sending.missing(kept)

    def _forget(self, header: weights_pb2.UploadHeader) -> Flow[None]:
        brief = CallOptions(deadline=_FORGET_SECONDS)
        question = weights_pb2.GetUploadRequest(name=header.name, upload_key=header.upload_key)
        try:
            kept = yield from self.unary(rpcs.GET_UPLOAD, question, brief)
            if not kept.HasField("weights"):
                yield from self.drop(f"{header.name}@{kept.version}", brief)
        except Error:
            pass  # the daemon forgets by itself, later

    # --- grouped GEMMs

    def shapes(self, weights: Weights | str, call: CallOptions, anew: bool = False) -> Flow[Weights]:
        """Weights as the daemon has them; of a name it is asked once, and again if they may be others."""
        if isinstance(weights, Weights):
            return weights
        if anew or weights not in self._known:
            name, at, version = weights.partition("@")
            fitting = [each for each in (yield from self.weights(call))
                       if each.name == name and (not at or str(each.version) == version)]
            if not fitting:
                raise NotFound(f"no weights {weights!r}", reason="WEIGHTS_NOT_FOUND")
            # What is not sealed yet is the daemon's to refuse.
            self._known[weights] = max(fitting, key=lambda each: (each.sealed, each.version))
        return self._known[weights]

    def encode(self, request: Request, call: CallOptions, plan: str = "") -> Flow[tuple[Encoded, Weights]]:
        fresh = not isinstance(request.weights, str) or request.weights not in self._known
        weights = yield from self.shapes(request.weights, call)
        try:
            return Encoded(request, weights.groups, plan), weights
        except InvalidArgument:
            if fresh:
                raise
        # The name may mean other weights by now.
        weights = yield from self.shapes(request.weights, call, anew=True)
        return Encoded(request, weights.groups, plan), weights

    def decode(self, encoded: Encoded, weights: Weights, response: gemm_pb2.ExecuteResponse,
               call: CallOptions) -> Flow[Result]:
        result = encoded.decode(response, weights.groups)
        if result is None:
            weights = yield from self.shapes(response.weights, call, anew=True)
            result = encoded.decode(response, weights.groups)
        if result is None:
            raise Internal(f"an output of {len(response.output)} bytes does not fit {response.weights}")
        return result

    def execute(self, request: Request, call: CallOptions, plan: str = "") -> Flow[Result]:
        encoded, weights = yield from self.encode(request, call, plan)
        response = yield from self.unary(rpcs.EXECUTE, encoded.message, call)
        return (yield from self.decode(encoded, weights, response, call))

    def prepare(self, weights: Weights | str, m: Rows, activation_type: str, output_type: str, scale_layout: str,
                row_scale: bool, call: CallOptions) -> Flow[tuple[gemm_pb2.PrepareResponse, Weights]]:
        known = yield from self.shapes(weights, call)
        signature, _ = make_signature(m, activation_type, output_type, scale_layout, [n for n, _ in known.groups])
        signature.row_scale = row_scale
        signature.weights = weights if isinstance(weights, str) else weights.ref
        response = yield from self.unary(rpcs.PREPARE, gemm_pb2.PrepareRequest(signature=signature), call)
        return response, (yield from self.shapes(response.weights, call))

    def release(self, plan: str, call: CallOptions) -> Flow[None]:
        yield from self.unary(rpcs.RELEASE, gemm_pb2.ReleaseRequest(plan=plan), call)

    # --- tickets

    def submit(self, request: Request, key: str, timeout: float, keep: float, call: CallOptions) -> Flow[Ticket]:
        encoded, weights = yield from self.encode(request, call)
        message = gemm_pb2.SubmitRequest(execute=encoded.message, timeout_seconds=timeout, keep_seconds=keep,
                                         idempotency_key=check_key("idempotency_key", key) if key else random_key())
        response = yield from self.unary(rpcs.SUBMIT_WITH_KEY, message, call)
        return Ticket(response.ticket, response.repeated, encoded, weights)

    def wait(self, ticket: Ticket, timeout: float, forget: bool, call: CallOptions) -> Flow[Answer | None]:
        if not timeout >= 0:
            raise refused("timeout", timeout, "at least 0 seconds")
        rpc = rpcs.WAIT_AND_FORGET if forget else rpcs.WAIT
        began = time.monotonic()

        def attempt(deadline: float) -> Flow[gemm_pb2.WaitResponse]:
            left = max(timeout - (time.monotonic() - began), 0.0)  # of one that is repeated, what is left
            message = gemm_pb2.WaitRequest(ticket=ticket.name, timeout_seconds=left, forget=forget)
            return (yield Attempt(rpc, message, deadline, self.metadata(call)))  # type: ignore[no-any-return]

        # The time to wait may be for ever; a call's may not.
        longest = self.options.deadline + min(timeout, self.options.transfer_deadline)
        response = yield from self.repeated(rpc, call, longest, attempt)
        if not response.done:
            return None
        return (yield from self.answer(0, ticket.encoded, ticket.weights, response, call))

    def cancel(self, ticket: Ticket, call: CallOptions) -> Flow[bool]:
        return (yield from self.unary(rpcs.CANCEL, gemm_pb2.CancelRequest(ticket=ticket.name), call)).cancelled

    def answer(self, id: int, encoded: Encoded, weights: Weights, said: Any, call: CallOptions) -> Flow[Answer]:
        """Of a stream's answer or a ticket's outcome."""
        if said.code:
            return Answer(id, None, answer_error(said))
        return Answer(id, (yield from self.decode(encoded, weights, said.response, call)), None)


@dataclasses.dataclass(frozen=True)
class Ticket:
    """A request that outlives its call (docs/tickets.md). name: the daemon's. repeated: it was
    submitted under its key before, and nothing new runs."""

    name: str
    repeated: bool
    encoded: Encoded = dataclasses.field(repr=False)
    weights: Weights = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class CancelRequest:
    """In an execute_stream: ends the request under way that has this id."""

    id: int


class StreamIds:
    """The requests of one execute_stream that wait for their answers."""

    def __init__(self) -> None:
        self._next = 0
        self._under_way: dict[int, tuple[Encoded, Weights]] = {}

    def message(self, request: Request, encoded: Encoded, weights: Weights) -> gemm_pb2.ExecuteStreamRequest:
        id = self._next if request.id is None else request.id
        if not 0 <= id < 2**64:
            raise refused("id", id, "from 0 to 2^64 - 1")
        if id in self._under_way:
            raise refused("id", id, "one that no request under way has", reason="DUPLICATE_ID")
        self._next = max(self._next, id + 1) % 2**64
        self._under_way[id] = encoded, weights
        # Its activations need not be kept for the answer.
        message = gemm_pb2.ExecuteStreamRequest(id=id, execute=encoded.message, timeout_seconds=request.timeout or 0)
        encoded.message = gemm_pb2.ExecuteRequest()
        return message

    @staticmethod
    def cancel(request: CancelRequest) -> gemm_pb2.ExecuteStreamRequest:
        return gemm_pb2.ExecuteStreamRequest(id=request.id, cancel=gemm_pb2.ExecuteStreamRequest.Cancel())

    def take(self, id: int) -> tuple[Encoded, Weights]:
        if id not in self._under_way:
            raise Internal(f"an answer to {id}, which nobody asked")
        return self._under_way.pop(id)


class _Sending:
    """The operands of one upload, whatever has to be sent of them. Ranges are (operand, offset, bytes)."""

    def __init__(self, header: weights_pb2.UploadHeader, planes: dict[int, Any], report: Callable[[int, int], None],
                 ) -> None:
        self.header = header
        self.total = sum(plane.size for plane in planes.values())
        self.failure: BaseException | None = None  # of the caller's progress function
        self._planes, self._report, self._told = planes, report, 0

    def everything(self) -> list[tuple[int, int, int]]:
        return [(operand, 0, plane.size) for operand, plane in self._planes.items()]

    def missing(self, kept: weights_pb2.GetUploadResponse) -> list[tuple[int, int, int]]:
        out: list[tuple[int, int, int]] = []
        for operand, ranges in ((1, kept.missing_codes), (2, kept.missing_scales)):
            size = self._planes[operand].size
            for each in ranges:
                offset = min(each.offset, size)
                out.append((operand, offset, min(each.bytes, size - offset)))
            # A list that may have been cut ends in all that follows: the daemon leaves alone what it has.
            if len(ranges) >= _MOST_RANGES:
                out[-1] = (operand, out[-1][1], size - out[-1][1])
        return out

    def chunks(self, ranges: Iterable[tuple[int, int, int]], resumption: Resumption) -> Iterator[Any]:
        """The messages of one stream. If progress raises they end, so the daemon refuses what is incomplete."""
        ranges = list(ranges)
        done = self.total - sum(size for _, _, size in ranges)
        yield weights_pb2.UploadRequest(header=self.header)
        for operand, begin, size in ranges:
            named = weights_pb2.WeightsOperand.Name(operand)
            for offset, data in self._planes[operand].pieces(begin, size, _CHUNK):
                yield weights_pb2.UploadRequest(
                    chunk=weights_pb2.UploadChunk(operand=named, offset=offset, data=data))
                done += len(data)
                if done > self._told:
                    self._told = done
                    resumption.sent(time.monotonic())
                    try:
                        self._report(done, self.total)
                    except BaseException as failure:  # raised by the flow, not by the transport's thread
                        self.failure = failure
                        return

    def finished(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._told < self.total:
            self._report(self.total, self.total)

