# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The asyncio client: the same calls as :class:`tetrad.Client`, awaited.

What the calls take, return and raise is said there, and is decided by the same code.
Cancelling a task cancels its call. Of one event loop, that in which it was connected."""
from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from types import TracebackType
from typing import Any, TypeVar, Union

import grpc
import grpc.aio

from . import _retry as rpcs
from ._client import PlanBase, _error_of, _serialize
from ._flows import Attempt, AwaitConnection, CancelRequest, Connection, Flow, StreamIds, Step, Ticket
from ._operands import Answer, ArrayLike, Request, Result, Rows, Weights
from ._options import DEFAULT_CALL, CallOptions, ClientOptions, prepare_channel
from ._progress import ProgressLike
from ._retry import Rpc
from .errors import DeadlineExceeded, Error, Unavailable, from_rpc
from .v1 import gemm_pb2, status_pb2

__all__ = ["Client", "Plan"]

T = TypeVar("T")

_READY = grpc.ChannelConnectivity.READY
_FAILED = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)


class _Channel:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        arguments, credentials = prepare_channel(connection.endpoint, connection.options, connection.token)
        target = connection.endpoint.target
        self.channel = (grpc.aio.insecure_channel(target, arguments) if credentials is None
                        else grpc.aio.secure_channel(target, credentials, arguments))
        self._methods: dict[str, Any] = {}

    def method(self, rpc: Rpc[Any, Any]) -> Any:
        if rpc.path not in self._methods:
            self._methods[rpc.path] = getattr(self.channel, rpcs.FORMS[rpc.service, rpc.method])(
                rpc.path, request_serializer=_serialize, response_deserializer=rpc.parse)
        return self._methods[rpc.path]

    async def _changed(self, state: grpc.ChannelConnectivity, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.channel.wait_for_state_change(state), seconds)
        except asyncio.TimeoutError:
            pass

    async def await_connection(self, deadline: float) -> None:
        limit = min(deadline, time.monotonic() + self._connection.options.connect_timeout)
        while (state := self.channel.get_state(try_to_connect=True)) is not _READY:
            if state in _FAILED:
                raise Unavailable(self._connection.unavailable_text())
            left = limit - time.monotonic()
            if left <= 0 and limit == deadline:
                raise DeadlineExceeded("the deadline passed before there was a connection", reason="DEADLINE")
            if left <= 0:
                raise Unavailable(f"no answer within {self._connection.options.connect_timeout} s")
            await self._changed(state, left)

    async def pause(self, until: float, or_connected: bool) -> None:
        while (left := until - time.monotonic()) > 0:
            state = self.channel.get_state(try_to_connect=True)
            if or_connected and state is _READY:
                return
            await self._changed(state, left)

    async def attempt(self, step: Attempt) -> Any:
        method = self.method(step.rpc)
        timeout = max(step.deadline - time.monotonic(), 0.0)
        call = method(step.requests, timeout=timeout, metadata=step.metadata)
        try:
            if step.heard is None:
                return await call
            async for message in call:
                step.heard(message)
            return None
        except grpc.aio.AioRpcError as error:
            raise _error_of(error) from None
        finally:
            call.cancel()  # of one that ended it does nothing

    async def perform(self, step: Step) -> Any:
        if isinstance(step, Attempt):
            return await self.attempt(step)
        if isinstance(step, AwaitConnection):
            return await self.await_connection(step.deadline)
        return await self.pause(step.until, step.or_connected)

    async def run(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                try:
                    value = await self.perform(step)
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
    """See :class:`tetrad.Client`. Get one by ``await Client.connect(...)``; ``async with`` closes it."""

    def __init__(self, connection: Connection, channel: _Channel) -> None:
        self._connection, self._channel, self._run = connection, channel, channel.run

    @classmethod
    async def connect(cls, endpoint: str, options: ClientOptions | None = None) -> Client:
        connection = Connection(endpoint, options or ClientOptions())
        channel = _Channel(connection)
        try:
            await channel.await_connection(float("inf"))
        except BaseException as error:
            await channel.channel.close()
            raise connection.named(error) if isinstance(error, Error) else error
        return cls(connection, channel)

    async def close(self) -> None:
        await self._channel.channel.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    @property
    def endpoint(self) -> str:
        return self._connection.endpoint.text

    @property
    def retries(self) -> int:
        return self._connection.retries

    async def status(self, *, call: CallOptions = DEFAULT_CALL) -> status_pb2.GetStatusResponse:
        return await self._run(self._connection.status(call))

    async def weights(self, *, call: CallOptions = DEFAULT_CALL) -> list[Weights]:
        return await self._run(self._connection.weights(call))

    async def upload(self, name: str, codes: ArrayLike, scales: ArrayLike, alpha: ArrayLike | None = None, *,
                     scale_layout: str = "linear", seal: bool = True, upload_key: str = "",
                     progress: ProgressLike = None, call: CallOptions = DEFAULT_CALL) -> Weights:
        """``progress`` is called in the event loop."""
        return await self._run(self._connection.upload(name, codes, scales, alpha, scale_layout, seal, upload_key,
                                                       progress, call))

    async def load(self, name: str, directory: str, pattern: str, *, ignore_input_scales: bool = False,
                   progress: ProgressLike = None, call: CallOptions = DEFAULT_CALL) -> Weights:
        return await self._run(self._connection.load(name, directory, pattern, ignore_input_scales, progress, call))

    async def seal(self, weights: Weights, *, call: CallOptions = DEFAULT_CALL) -> Weights:
        return await self._run(self._connection.seal(weights, call))

    async def drop(self, weights: Weights | str, *, call: CallOptions = DEFAULT_CALL) -> int:
        return await self._run(self._connection.drop(weights, call))

    async def execute(self, activations: ArrayLike, weights: Weights | str, m: Rows, *,
                      output_type: str | None = None, alpha: ArrayLike | None = None,
                      row_scale: ArrayLike | None = None, priority: str = "normal",
                      call: CallOptions = DEFAULT_CALL) -> Result:
        request = Request(activations, weights, m, output_type, alpha, row_scale, priority)
        return await self._run(self._connection.execute(request, call))

    async def prepare(self, weights: Weights | str, m: Rows, *, activation_type: str, output_type: str = "bf16",
                      scale_layout: str = "linear", row_scale: bool = False,
                      call: CallOptions = DEFAULT_CALL) -> Plan:
        """``async with await client.prepare(...) as plan:``"""
        response, known = await self._run(self._connection.prepare(weights, m, activation_type, output_type,
                                                                   scale_layout, row_scale, call))
        return Plan(self, response, known, m, output_type)

    async def execute_stream(self, requests: Union[Iterable[Union[Request, CancelRequest]],
                                                   AsyncIterable[Union[Request, CancelRequest]]], *,
                             call: CallOptions = DEFAULT_CALL) -> AsyncIterator[Answer]:
        """``async for answer in client.execute_stream(requests):``; ``requests`` may be asynchronous,
        and is read in a task of its own."""
        connection, ids = self._connection, StreamIds()
        await self._channel.await_connection(connection.deadline(call, connection.options.transfer_deadline))
        timeout = call.deadline or connection.options.transfer_deadline
        stream = self._channel.method(rpcs.EXECUTE_STREAM)(timeout=timeout, metadata=connection.metadata(call))

        async def send(request: Union[Request, CancelRequest]) -> None:
            if isinstance(request, CancelRequest):
                message = ids.cancel(request)
            else:
                message = ids.message(request, *await self._run(connection.encode(request, call)))
            await stream.write(message)

        async def send_all() -> None:
            try:
                if isinstance(requests, AsyncIterable):
                    async for request in requests:
                        await send(request)
                else:
                    for request in requests:
                        await send(request)
                await stream.done_writing()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass  # the stream has ended; reading it tells why
            except Exception:
                stream.cancel()
                raise

        sender = asyncio.ensure_future(send_all())
        try:
            while (said := await stream.read()) is not grpc.aio.EOF:
                encoded, weights = ids.take(said.id)
                yield await self._run(connection.answer(said.id, encoded, weights, said, call))
            code = await stream.code()
            if code is not grpc.StatusCode.OK:
                if sender.done():
                    sender.result()
                trailers = [(each[0], each[1]) for each in await stream.trailing_metadata() or ()]
                raise connection.named(from_rpc(code.value[0], await stream.details() or "", trailers))
        except grpc.aio.AioRpcError as error:
            if sender.done():
                sender.result()
            raise connection.named(_error_of(error)) from None
        except asyncio.CancelledError:
            # Of the stream, by what the requests raised, or of this task.
            if sender.done() and not sender.cancelled():
                sender.result()
            raise
        finally:
            stream.cancel()
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def submit(self, activations: ArrayLike, weights: Weights | str, m: Rows, *,
                     output_type: str | None = None, alpha: ArrayLike | None = None,
                     row_scale: ArrayLike | None = None, priority: str = "normal", idempotency_key: str = "",
                     timeout: float = 0, keep: float = 0, call: CallOptions = DEFAULT_CALL) -> Ticket:
        request = Request(activations, weights, m, output_type, alpha, row_scale, priority)
        return await self._run(self._connection.submit(request, idempotency_key, timeout, keep, call))

    async def wait(self, ticket: Ticket, timeout: float = 30, *, forget: bool = False,
                   call: CallOptions = DEFAULT_CALL) -> Answer | None:
        return await self._run(self._connection.wait(ticket, timeout, forget, call))

    async def cancel(self, ticket: Ticket, *, call: CallOptions = DEFAULT_CALL) -> bool:
        return await self._run(self._connection.cancel(ticket, call))


class Plan(PlanBase):
    """See :class:`tetrad.Plan`."""

    async def execute(self, activations: ArrayLike, *, m: Rows | None = None, alpha: ArrayLike | None = None,
                      row_scale: ArrayLike | None = None, priority: str = "normal",
                      call: CallOptions = DEFAULT_CALL) -> Result:
        request = self._request(activations, m, alpha, row_scale, priority)
        client: Client = self._client
        return await client._run(client._connection.execute(request, call, self.name))

    async def release(self, *, call: CallOptions = DEFAULT_CALL) -> None:
        await self._client._run(self._client._connection.release(self.name, call))

    async def __aenter__(self) -> Plan:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        try:
            await self.release()
        except Error:
            pass  # it ends by itself when it was not used for a while
