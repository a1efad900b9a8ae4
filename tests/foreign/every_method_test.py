# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Drives every method of the daemon with gRPC's Python implementation and the
schema it tells by reflection. A method that exists and is not driven here fails
the last test.

The GEMM has a result that can be told without arithmetic: weights that are all
code 2 (1.0) at scale 1 sum up a row of activations that are 1, so each element
is K, times what alpha says."""
import argparse
import pathlib
import struct
import sys
import unittest

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import Daemon  # noqa: E402
from reflected import Reflected, connect  # noqa: E402

OPTIONS = argparse.Namespace()
N, K, M = 24, 64, 3
ONE_CODES = b"\x22"  # two E2M1 codes of 1.0
ONE_SCALE = b"\x38"  # UE4M3 1.0
ONE_BF16 = struct.pack("<H", 0x3F80)
SECONDS = 60


def upload_messages(api, name, seal=True, key="", groups=2):
    new = api.new
    yield new("UploadRequest", header=new("UploadHeader", name=name, groups=[new("GroupDims", n=N, k=K)],
                                          group_count=groups, seal=seal, upload_key=key))
    for operand, data in ((1, ONE_CODES * (groups * N * K // 2)), (2, ONE_SCALE * (groups * N * K // 16))):
        yield new("UploadRequest", chunk=new("UploadChunk", operand=operand, data=data))


def signature(api, weights):
    return api.new("Signature", weights=weights, activation_type=3, output_type=3,
                   exact=api.new("RowCounts", m=[M, M - 1]))


def execute_request(api, weights, alpha=()):
    rows = 2 * M - 1
    return api.new("ExecuteRequest", signature=signature(api, weights),
                   inline_operands=api.new("InlineOperands", activations=ONE_BF16 * (rows * K), alpha=alpha))


def expected_output(alpha=(1.0, 1.0)):
    return b"".join(struct.pack("<f", K * a) * (rows * N) for a, rows in zip(alpha, (M, M - 1)))


class EveryMethodTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(OPTIONS.tetradd, "--checkpoint-root", OPTIONS.checkpoints)
        cls.channel = connect(cls.daemon.address)
        cls.api = Reflected(cls.channel, OPTIONS.grpc_protos)
        cls.driven = set()
        cls.weights = cls.call(cls, "Weights/Upload", upload_messages(cls.api, "ones")).weights

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        assert cls.daemon.stop() == 0, "the daemon did not end in order"

    def call(self, name, request):
        full = name if name.startswith("grpc.") else f"tetrad.v1.{name}"
        self.driven.add(full)
        return self.api.call(full)(request, timeout=SECONDS)

    def new(self, name, /, **fields):
        return self.api.new(name, **fields)

    def attach(self, resume=""):
        events = self.call("Memory/Attach", self.new("AttachRequest", resume=resume))
        return events, next(events).lease

    def test_weights(self):
        (progress,) = list(self.call("Weights/Load", self.new(
            "LoadRequest", name="loaded", directory="modelopt",
            pattern="model.layers.0.mlp.experts.{expert}.up_proj")))[-1:]
        self.assertTrue(progress.weights.sealed)
        waiting = self.call("Weights/Upload", upload_messages(self.api, "sealed-later", seal=False)).weights
        self.assertFalse(waiting.sealed)
        sealed = self.call("Weights/Seal", self.new("SealRequest", name=waiting.name, version=waiting.version))
        self.assertTrue(sealed.weights.sealed)
        names = {each.name for each in self.call("Weights/List", self.new("ListWeightsRequest")).weights}
        self.assertLessEqual({"ones", "loaded", "sealed-later"}, names)
        self.assertEqual(self.call("Weights/Drop", self.new("DropRequest", weights="sealed-later")).dropped, 1)

    def test_an_upload_that_breaks_off_goes_on(self):
        def broken():
            messages = upload_messages(self.api, "resumed", key="key-1")
            yield next(messages)
            yield next(messages)
            never.result(timeout=SECONDS)  # the stream stays open until it is cancelled

        import concurrent.futures
        never = concurrent.futures.Future()
        self.driven.add("tetrad.v1.Weights/Upload")
        call = self.api.call("tetrad.v1.Weights/Upload").future(broken(), timeout=SECONDS)
        ask = self.new("GetUploadRequest", name="resumed", upload_key="key-1")
        missing = None
        while missing is None or missing.missing_codes:  # until the first chunk has arrived
            try:
                missing = self.call("Weights/GetUpload", ask)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)
        call.cancel()
        never.set_result(None)
        self.assertEqual([(each.offset, each.bytes) for each in missing.missing_scales], [(0, 2 * N * K // 16)])
        header, _, scales = upload_messages(self.api, "resumed", key="key-1")
        done = self.call("Weights/Upload", iter([header, scales]))
        self.assertTrue(done.weights.sealed)
        self.assertEqual(self.call("Weights/GetUpload", ask).weights.version, done.weights.version)

    def test_execute(self):
        prepared = self.call("Gemm/Prepare", self.new("PrepareRequest", signature=signature(self.api, "ones")))
        request = execute_request(self.api, "ones", alpha=(2.0, 0.5))
        self.assertEqual(self.call("Gemm/Execute", request).output, expected_output((2.0, 0.5)))
        request.plan = prepared.plan
        self.assertEqual(self.call("Gemm/Execute", request).output, expected_output((2.0, 0.5)))
        self.call("Gemm/Release", self.new("ReleaseRequest", plan=prepared.plan))

    def test_execute_stream(self):
        requests = [self.new("ExecuteStreamRequest", id=i, execute=execute_request(self.api, "ones", alpha=(i, 1.0)))
                    for i in range(1, 6)]
        answers = {answer.id: answer for answer in self.call("Gemm/ExecuteStream", iter(requests))}
        self.assertEqual(sorted(answers), [1, 2, 3, 4, 5])
        for i, answer in answers.items():
            self.assertEqual((answer.code, answer.response.output), (0, expected_output((i, 1.0))))

    def test_tickets(self):
        submit = self.new("SubmitRequest", execute=execute_request(self.api, "ones"), idempotency_key="a-key")
        first = self.call("Gemm/Submit", submit)
        self.assertFalse(first.repeated)
        again = self.call("Gemm/Submit", submit)
        self.assertEqual((again.ticket, again.repeated), (first.ticket, True))
        (event,) = list(self.call("Gemm/Watch", self.new("WatchRequest", tickets=[first.ticket])))
        self.assertEqual((event.ticket, event.code), (first.ticket, 0))
        wait = self.new("WaitRequest", ticket=first.ticket, timeout_seconds=SECONDS)
        for _ in range(2):
            outcome = self.call("Gemm/Wait", wait)
            self.assertEqual((outcome.done, outcome.code, outcome.response.output), (True, 0, expected_output()))
        self.assertFalse(self.call("Gemm/Cancel", self.new("CancelRequest", ticket=first.ticket)).cancelled)

    def test_memory(self):
        events, lease = self.attach()
        block = self.call("Memory/Allocate", self.new("AllocateRequest", lease=lease, bytes=4096)).block
        write = [self.new("WriteRequest", block=block.block, offset=16, write_key="w"),
                 self.new("WriteRequest", data=b"abc" * 100)]
        self.assertEqual(self.call("Memory/Write", iter(write)).bytes, 300)
        written = self.call("Memory/GetWrite", self.new("GetWriteRequest", block=block.block, write_key="w"))
        self.assertEqual((written.offset, written.bytes, written.under_way), (16, 300, False))
        read = self.call("Memory/Read", self.new("ReadRequest", block=block.block, offset=16, bytes=301))
        self.assertEqual(b"".join(part.data for part in read), b"abc" * 100 + b"\0")
        listed = self.call("Memory/List", self.new("ListBlocksRequest", lease=lease)).blocks
        self.assertEqual([each.block for each in listed], [block.block])
        self.call("Memory/Free", self.new("FreeRequest", block=block.block))
        self.call("Memory/Detach", self.new("DetachRequest", lease=lease))
        self.assertEqual(list(events), [])  # it ends in order

    def test_status_and_health(self):
        self.assertEqual(self.call("Status/GetStatus", self.new("GetStatusRequest")).state, "serving")
        health = self.api.schema.message("grpc.health.v1.HealthCheckRequest")
        self.assertEqual(self.call("grpc.health.v1.Health/Check", health()).status, 1)
        watch = self.call("grpc.health.v1.Health/Watch", health(service="tetrad.v1.Gemm"))
        self.assertEqual(next(watch).status, 1)
        watch.cancel()

    def test_admin(self):
        previous = self.call("Admin/SetLogLevel", self.new("SetLogLevelRequest", level="warning")).previous
        self.assertEqual(previous, "info")
        self.call("Admin/SetLogLevel", self.new("SetLogLevelRequest", level=previous))
        events, lease = self.attach()
        self.assertEqual(self.call("Admin/EndLease", self.new("EndLeaseRequest", lease=lease)).client,
                         "anonymous@unix")
        self.assertEqual(list(events), [])  # it ends in order

    def test_drain(self):
        daemon = Daemon(OPTIONS.tetradd, "--lame-duck-seconds", "0", "--drain-seconds", "5")
        with connect(daemon.address) as channel:
            api = Reflected(channel, OPTIONS.grpc_protos)
            self.driven.add("tetrad.v1.Admin/Drain")
            answer = api.call("tetrad.v1.Admin/Drain")(api.new("DrainRequest"), timeout=SECONDS)
            self.assertEqual(answer.drain_seconds, 5)
        self.assertEqual(daemon.process.wait(timeout=SECONDS), 0)
        daemon.stop()

    def test_zz_nothing_is_left_out(self):
        self.assertEqual(sorted(self.driven), self.api.methods())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tetradd", required=True)
    parser.add_argument("--grpc-protos", required=True)
    parser.add_argument("--checkpoints", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
