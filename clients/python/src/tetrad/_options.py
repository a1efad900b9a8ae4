# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""How a client connects and shows who it is: endpoints, TLS, tokens, time limits."""
from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
import stat
import threading
from collections.abc import Sequence

import grpc

from .errors import FailedPrecondition, InvalidArgument, NotFound, PermissionDenied

_LONGEST_SOCKET_PATH = 107
_LARGEST_FILE = 1 << 20
_LONGEST_TOKEN = 4096
_NAME = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f-]{1,256}")


@dataclasses.dataclass(frozen=True)
class TlsOptions:
    """Files in PEM form, read when the client connects."""

    root_certificates_file: str | None = None  # None: those of the system
    certificate_file: str | None = None  # of this client, with its key_file
    key_file: str | None = None
    server_name: str | None = None  # in the daemon's certificate; None: the endpoint's host


@dataclasses.dataclass(frozen=True)
class ClientOptions:
    """Times are in seconds.

    A token, or a file that holds one, is shown with every call. The file is read again
    when the daemon refuses what was in it, and the call made again (of ``upload`` and
    ``execute_stream`` the next one shows it). It is not sent over plain TCP to another
    machine."""

    connect_timeout: float = 5.0
    deadline: float = 60.0  # of calls without bulk transfer
    transfer_deadline: float = 1800.0  # of upload, load and an execute_stream as a whole
    attempts: int = 4  # of a call that may be repeated; 1: none is
    resume_patience: float = 60.0  # how long an upload tries to go on while the daemon takes nothing
    max_message_bytes: int = 1 << 30  # sent or received
    tls: TlsOptions | None = None  # of TCP; a Unix socket is spoken to plainly
    token: str = ""
    token_file: str = ""


@dataclasses.dataclass(frozen=True)
class CallOptions:
    """What one call may say beside its arguments.

    deadline: seconds for the call with all its repetitions; None: the client's.
    request_id: its name in the daemon's log, ``[A-Za-z0-9._:/+=-]{1,128}``; empty: the
    daemon makes one up. traceparent: W3C Trace Context; what is not of that form is not
    sent. resume: an upload goes on after a broken connection."""

    deadline: float | None = None
    request_id: str = ""
    traceparent: str = ""
    resume: bool = True

    def __post_init__(self) -> None:
        if self.request_id and not _NAME.fullmatch(self.request_id):
            raise InvalidArgument(f"request_id {self.request_id!r}: wanted 1 to 128 of [A-Za-z0-9._:/+=-]",
                                  reason="FIELD_MALFORMED")
        if self.deadline is not None and not self.deadline > 0:
            raise InvalidArgument(f"deadline {self.deadline}: wanted more than 0 seconds", reason="FIELD_OUT_OF_RANGE")

    def metadata(self) -> list[tuple[str, str]]:
        out = []
        if self.request_id:
            out.append(("x-request-id", self.request_id))
        if _TRACEPARENT.fullmatch(self.traceparent):
            out.append(("traceparent", self.traceparent))
        return out


DEFAULT_CALL = CallOptions()


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """``unix:PATH`` or ``HOST:PORT``."""

    text: str
    path: str = ""  # of a Unix socket
    host: str = ""

    @staticmethod
    def parse(text: str) -> Endpoint:
        def malformed(why: str) -> InvalidArgument:
            return InvalidArgument(f"endpoint {text!r}: {why}; expected unix:PATH or HOST:PORT",
                                   reason="FIELD_MALFORMED")

        if text.startswith("unix:"):
            path = text[len("unix:"):]
            if not path or path.startswith("//") or "\0" in path:
                raise malformed("the path is empty, begins with // or contains NUL")
            if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
                raise malformed(f"a socket path has at most {_LONGEST_SOCKET_PATH} bytes")
            return Endpoint(text, path=path)
        if "://" in text:
            raise malformed("a scheme such as http:// is not taken")
        host, colon, port = text.rpartition(":")
        if not colon:
            raise malformed("the port is missing")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise malformed("an IPv6 address needs brackets, as in [::1]:8472")
        if not host or re.search(r"[/\[\]@\s]", host):
            raise malformed("the host is empty or contains a character no host name has")
        if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
            raise malformed("the port must be a number from 1 to 65535")
        return Endpoint(text, host=host)

    @property
    def target(self) -> str:
        return self.text if self.path else f"dns:///{self.text}"

    def stays_here(self) -> bool:
        """Whether what is sent there can be seen on this machine only."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check_reachable(self) -> None:
        """Refuses a Unix socket that is not there or not ours, which gRPC only calls unavailable."""
        if not self.path:
            return
        try:
            mode = os.stat(self.path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"no socket at {self.path}; is the daemon running and listening there?") from None
        except OSError as error:
            raise PermissionDenied(f"socket {self.path}: {error.strerror}") from None
        if not stat.S_ISSOCK(mode):
            raise FailedPrecondition(f"{self.path} is not a socket")
        if not os.access(self.path, os.W_OK):
            raise PermissionDenied(f"socket {self.path}: permission denied")


class BearerToken:
    """What the client shows as authorization; thread-safe."""

    def __init__(self, token: str, file: str) -> None:
        if token and file:
            raise InvalidArgument("token and token_file exclude each other", reason="FIELD_CONFLICT")
        self._file = file
        self._lock = threading.Lock()
        self._value = _checked_token(token, "token") if token else _read_token(file) if file else ""
        self._generation = 0

    @property
    def generation(self) -> int:
        with self._lock:
            return self._generation

    def metadata(self) -> list[tuple[str, str]]:
        with self._lock:
            return [("authorization", f"Bearer {self._value}")] if self._value else []

    def renew(self, generation: int) -> bool:
        """Reads the file again; true if there is another token than that of ``generation``."""
        if not self._file:
            return False
        try:
            value = _read_token(self._file)
        except (OSError, InvalidArgument):
            value = ""  # what is there stays: the daemon has the last word
        with self._lock:
            if value and value != self._value:
                self._value = value
                self._generation += 1
            return self._generation != generation


def prepare_channel(endpoint: Endpoint, options: ClientOptions,
                    token: BearerToken) -> tuple[list[tuple[str, object]], grpc.ChannelCredentials | None]:
    """The arguments of a channel, and its credentials; None: plain."""
    tls = None if endpoint.path else options.tls
    if token.metadata() and tls is None and not endpoint.stays_here():
        raise FailedPrecondition(f"{endpoint.text}: a token is not sent in the clear to another machine; use TLS")
    # The numbers are those of the C++ client (clients/cpp/channel.cc), which says why.
    limit = max(1, min(options.max_message_bytes, 2**31 - 1))
    arguments: list[tuple[str, object]] = [
        ("grpc.max_send_message_length", limit), ("grpc.max_receive_message_length", limit),
        ("grpc.http2.max_frame_size", (1 << 24) - 1), ("grpc.http2.lookahead_bytes", 64 << 20),
        ("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.min_reconnect_backoff_ms", 5_000), ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0),
        # Repeating is _retry.py's: gRPC's own knows neither reason nor delay.
        ("grpc.enable_retries", 0),
    ]
    if tls is None:
        return arguments, None
    if (tls.certificate_file is None) != (tls.key_file is None):
        raise InvalidArgument("tls: certificate_file and key_file belong together", reason="FIELD_CONFLICT")
    if tls.server_name:
        arguments.append(("grpc.ssl_target_name_override", tls.server_name))
    return arguments, grpc.ssl_channel_credentials(
        _read_pem("tls.root_certificates_file", tls.root_certificates_file),
        _read_pem("tls.key_file", tls.key_file), _read_pem("tls.certificate_file", tls.certificate_file))


def random_key() -> str:
    """A name of 128 random bits."""
    return os.urandom(16).hex()


def check_key(field: str, key: str) -> str:
    if not _NAME.fullmatch(key):
        raise InvalidArgument(f"{field} {key!r}: wanted 1 to 128 of [A-Za-z0-9._:/+=-]", reason="FIELD_MALFORMED")
    return key


def check_times(options: ClientOptions) -> None:
    fields: Sequence[str] = ("connect_timeout", "deadline", "transfer_deadline", "attempts")
    for field in fields:
        if not getattr(options, field) > 0:
            raise InvalidArgument(f"{field} {getattr(options, field)}: wanted more than 0")


def _read_small_file(option: str, path: str) -> bytes:
    with open(path, "rb") as file:
        data = file.read(_LARGEST_FILE + 1)
    if len(data) > _LARGEST_FILE:
        raise FailedPrecondition(f"{option} {path}: more than {_LARGEST_FILE} bytes")
    return data


def _read_pem(option: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    data = _read_small_file(option, path)
    # The library would take anything and fail every handshake without a word.
    if b"-----BEGIN " not in data:
        raise InvalidArgument(f"{option}: {path} holds nothing in PEM form", reason="FIELD_MALFORMED")
    return data


def _read_token(file: str) -> str:
    return _checked_token(_read_small_file("token_file", file).decode("latin-1").strip(), f"token_file {file}")


def _checked_token(token: str, source: str) -> str:
    if not 1 <= len(token) <= _LONGEST_TOKEN or not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
        raise InvalidArgument(f"{source}: a token has 1 to {_LONGEST_TOKEN} letters, digits and -._~+/= only",
                              reason="FIELD_MALFORMED")
    return token
