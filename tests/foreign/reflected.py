# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""A client that knows nothing of Tetrad: gRPC's Python implementation, and the
schema as the daemon itself tells it by server reflection. Message classes and
calls are made from that, so what such a client cannot do, a generic tool cannot.

Only the reflection protocol and google.rpc are compiled here (by protoc, into
descriptors), as every such tool has them."""
import pathlib
import subprocess
import tempfile

import grpc
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, message_factory

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


def compile_protos(folder, files):
    """The descriptors of `files` below `folder`, with what they import."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", f"--proto_path={folder}", "--include_imports",
                        f"--descriptor_set_out={out.name}", *files], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes()).file


class Schema:
    """Message classes and method descriptors out of file descriptors."""

    def __init__(self, files):
        self.pool = descriptor_pool.DescriptorPool()
        for module in (any_pb2, duration_pb2):
            self.pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        waiting = {file.name: file for file in files}
        known = {"google/protobuf/any.proto", "google/protobuf/duration.proto"}
        while waiting:
            ready = [name for name, file in waiting.items() if known.issuperset(file.dependency)]
            assert ready, f"imports are missing: {sorted(waiting)}"
            for name in ready:
                file = waiting.pop(name)
                if name not in known:
                    self.pool.AddSerializedFile(file.SerializeToString())
                known.add(name)
        self.factory = message_factory.MessageFactory(self.pool)

    def message(self, name):
        return self.factory.GetPrototype(self.pool.FindMessageTypeByName(name))

    def service(self, name):
        return self.pool.FindServiceByName(name)


def method_callable(channel, schema, method):
    """The call of a method descriptor, in the form its streams ask for."""
    proto = descriptor_pb2.MethodDescriptorProto()
    method.CopyToProto(proto)
    kind = f"{'stream' if proto.client_streaming else 'unary'}_{'stream' if proto.server_streaming else 'unary'}"
    answer = schema.factory.GetPrototype(method.output_type)
    return getattr(channel, kind)(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString)


class Reflected:
    """Every service of a daemon, found by reflection."""

    def __init__(self, channel, grpc_protos):
        self.channel = channel
        reflection = Schema(compile_protos(grpc_protos, ["grpc/reflection/v1alpha/reflection.proto"]))
        self._request = reflection.message("grpc.reflection.v1alpha.ServerReflectionRequest")
        method = reflection.service(REFLECTION).methods_by_name["ServerReflectionInfo"]
        self._info = method_callable(channel, reflection, method)
        (listed,) = self._ask(list_services="")
        self.services = sorted(service.name for service in listed.list_services_response.service)
        self.schema = Schema(self._files())
        self.errors = Schema(compile_protos(ROOT / "proto", ["google/rpc/status.proto",
                                                             "google/rpc/error_details.proto"]))

    def _ask(self, **question):
        return list(self._info(iter([self._request(**question)]), timeout=10))

    def _files(self):
        files = {}
        for service in self.services:
            if service == REFLECTION:
                continue
            (answer,) = self._ask(file_containing_symbol=service)
            for data in answer.file_descriptor_response.file_descriptor_proto:
                file = descriptor_pb2.FileDescriptorProto.FromString(data)
                files[file.name] = file
        missing = {name for file in files.values() for name in file.dependency} - set(files)
        while missing:
            name = missing.pop()
            (answer,) = self._ask(file_by_filename=name)
            for data in answer.file_descriptor_response.file_descriptor_proto:
                file = descriptor_pb2.FileDescriptorProto.FromString(data)
                files[file.name] = file
                missing |= set(file.dependency) - set(files)
        return list(files.values())

    def methods(self):
        """Full names of all methods but those of reflection itself."""
        return sorted(f"{service}/{method.name}" for service in self.services if service != REFLECTION
                      for method in self.schema.service(service).methods)

    def call(self, name):
        """The callable of "tetrad.v1.Gemm/Execute"."""
        service, method = name.split("/")
        return method_callable(self.channel, self.schema,
                               self.schema.service(service).methods_by_name[method])

    def new(self, name, /, **fields):
        """A message of tetrad.v1."""
        return self.schema.message(f"tetrad.v1.{name}")(**fields)

    def outcome(self, error):
        """(code name, reason, {field: description}, retry seconds or None) of a failed call."""
        reason, fields, retry = "", {}, None
        for key, value in error.trailing_metadata() or ():
            if key != "grpc-status-details-bin":
                continue
            for detail in self.errors.message("google.rpc.Status").FromString(value).details:
                kind = detail.TypeName()
                message = self.errors.message(kind).FromString(detail.value)
                if kind == "google.rpc.ErrorInfo":
                    assert message.domain == "tetrad", message
                    reason = message.reason
                elif kind == "google.rpc.BadRequest":
                    fields.update((each.field, each.description) for each in message.field_violations)
                elif kind == "google.rpc.RetryInfo":
                    retry = message.retry_delay.ToTimedelta().total_seconds()
        return error.code().name, reason, fields, retry


def connect(address):
    limit = 512 << 20
    return grpc.insecure_channel(address, options=[
        ("grpc.max_receive_message_length", limit), ("grpc.max_send_message_length", limit),
        ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)])
