# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that a request can have wrong, over the whole surface, one table
(bad_input_cases.py): each case is refused with its code, reason and field, in
bounded and printable words, leaves nothing behind, and the next good request
works."""
import argparse
import pathlib
import struct
import sys
import time
import unittest

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bad_input_cases import CODES, GROUPS, K, M, N, ONE_CODES, ONE_SCALE, ROWS, SCALES, World, all_cases  # noqa: E402
from daemon import Daemon  # noqa: E402
from reflected import Reflected, connect  # noqa: E402

OPTIONS = argparse.Namespace()
SECONDS = 60
LEAST_CASES = 120
# What a client of the usual settings takes as trailers.
MOST_DETAIL_BYTES = 8 << 10


class BadInputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(OPTIONS.tetradd, "--checkpoint-root", OPTIONS.checkpoints, "--threads", "1",
                            "--max-inline-bytes", "1000000")
        cls.channel = connect(cls.daemon.address)
        cls.api = Reflected(cls.channel, OPTIONS.grpc_protos)
        cls.world = cls.make_world(cls.api)
        cls.good = cls.world.execute()
        cls.good_output = struct.pack("<f", K) * (ROWS * N)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        assert cls.daemon.stop() == 0, "the daemon did not end in order"

    @classmethod
    def call(cls, method, request, seconds=SECONDS):
        answer = cls.api.call(f"tetrad.v1.{method}")(iter(request) if isinstance(request, list) else request,
                                                     timeout=seconds)
        return list(answer) if isinstance(answer, grpc.Future) and hasattr(answer, "__next__") else answer

    @classmethod
    def make_world(cls, api):
        world = World(api, None, None, None, None)
        cls.call("Weights/Upload", world.upload(world.header(name="good")))
        other = world.header(name="other", groups=[api.new("GroupDims", n=2 * N, k=K)])
        cls.call("Weights/Upload", world.upload(other, ONE_CODES * 2 * CODES, ONE_SCALE * 2 * SCALES))
        unsealed = cls.call("Weights/Upload", [world.header(name="unsealed", seal=False)])
        world.unsealed = unsealed.weights.version
        world.plan = cls.call("Gemm/Prepare", world.prepare()).plan
        cls.events = api.call("tetrad.v1.Memory/Attach")(api.new("AttachRequest"))
        world.lease = next(cls.events).lease
        world.blocks = [cls.call("Memory/Allocate", api.new("AllocateRequest", lease=world.lease, bytes=4096)).block.block
                        for _ in range(3)]
        world.ticket = cls.call("Gemm/Submit", api.new("SubmitRequest", execute=world.execute(),
                                                       idempotency_key="taken")).ticket
        return world

    def status(self):
        status = self.call("Status/GetStatus", self.api.new("GetStatusRequest"))
        return {field: getattr(status, field) for field in
                ("in_flight", "plan_handles", "weights", "weights_bytes", "leases", "blocks", "block_bytes")}

    def refusal(self, method, request, seconds=SECONDS):
        with self.assertRaises(grpc.RpcError) as caught:
            self.call(method, request, seconds)
        return caught.exception

    def check_good_request(self):
        self.assertEqual(self.call("Gemm/Execute", self.good).output, self.good_output)

    def check_bounded(self, error):
        self.assertTrue(all(" " <= c <= "~" for c in error.details()), error.details())
        size = len(error.details()) + sum(len(value) * 4 // 3 for _, value in error.trailing_metadata() or ())
        self.assertLess(size, MOST_DETAIL_BYTES)

    def test_every_case(self):
        cases = all_cases()
        self.assertGreaterEqual(len(cases), LEAST_CASES)
        before = self.status()
        for name, method, make, code, reason, field in cases:
            with self.subTest(name):
                error = self.refusal(method, make(self.world))
                got_code, got_reason, fields, retry = self.api.outcome(error)
                said = f"{got_code} {got_reason} {fields} {error.details()[:300]}"
                if code is not None:
                    self.assertEqual(got_code, code, said)
                self.assertNotEqual(got_code, "UNKNOWN", said)
                self.assertNotEqual(got_code, "INTERNAL", said)
                self.assertTrue(got_reason, said)
                if reason is not None:
                    self.assertEqual(got_reason, reason, said)
                if field is not None and got_code == "INVALID_ARGUMENT":
                    self.assertTrue(any(field in each for each in fields), said)
                self.assertEqual(retry is not None, got_code == "RESOURCE_EXHAUSTED", said)
                self.check_bounded(error)
                self.check_good_request()
        self.assertEqual(self.status(), before)
        print(f"{len(cases)} cases")

    def test_the_same_in_a_stream(self):
        """Every bad Execute is answered in its stream, which goes on."""
        cases = [case for case in all_cases() if case[1] == "Gemm/Execute"]
        requests = [self.api.new("ExecuteStreamRequest", id=2 * i, execute=case[2](self.world))
                    for i, case in enumerate(cases)]
        good = [self.api.new("ExecuteStreamRequest", id=2 * i + 1, execute=self.good) for i in range(len(cases))]
        mixed = [each for pair in zip(requests, good) for each in pair]
        answers = {answer.id: answer for answer in self.call("Gemm/ExecuteStream", mixed)}
        self.assertEqual(len(answers), len(mixed))
        for i, (name, _, _, code, _, _) in enumerate(cases):
            with self.subTest(name):
                refused, served = answers[2 * i], answers[2 * i + 1]
                self.assertEqual((served.code, served.response.output), (0, self.good_output))
                self.assertEqual(grpc_code(refused.code), code, refused.message[:300])
                self.assertTrue(refused.details)

    def test_deadlines(self):
        call = self.api.call("tetrad.v1.Gemm/Execute")
        self.assertEqual(call(self.good).output, self.good_output)  # none
        for seconds in (60, 1e6, 5e9):  # the last is the longest this library can send
            self.assertEqual(call(self.good, timeout=seconds).output, self.good_output)
        for seconds in (0, 1e-9):
            for _ in range(20):
                try:  # deadlines travel in milliseconds, rounded up: this may be in time
                    self.assertEqual(call(self.good, timeout=seconds).output, self.good_output)
                except grpc.RpcError as error:
                    self.assertEqual(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
            self.check_good_request()

    def test_metadata(self):
        call = self.api.call("tetrad.v1.Gemm/Execute")
        for metadata in ((("x-request-id", "a b"),), (("x-request-id", "r" * 1000),), (("traceparent", "nonsense"),),
                         (("authorization", "Bearer x"),), (("unknown-bin", bytes(range(256))),)):
            with self.subTest(metadata[0][0]):
                self.assertEqual(call(self.good, metadata=metadata, timeout=SECONDS).output, self.good_output)
        with self.assertRaises(grpc.RpcError) as caught:
            call(self.good, metadata=(("x-much", "m" * 100_000),), timeout=SECONDS)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.check_good_request()

    def test_limits_by_one(self):
        """Operands and reply of max_inline_bytes pass, with one element more they do not."""
        def request(rows):
            signature = self.world.signature(exact=self.api.new("RowCounts", m=[rows, 0]), output_type=2)
            return self.world.execute(signature, inline_operands=self.world.inline(
                activations=b"\x80\x3f" * (rows * K)))

        row_bytes = 2 * K + 2 * N
        fits = 1_000_000 // row_bytes
        self.assertEqual(len(self.call("Gemm/Execute", request(fits)).output), fits * N * 2)
        error = self.refusal("Gemm/Execute", request(fits + 1))
        self.assertEqual(self.api.outcome(error)[:2], ("INVALID_ARGUMENT", "MESSAGE_TOO_LARGE"))
        self.assertIn("1000000", error.details())
        self.check_good_request()

    def test_thousands_of_bad_groups_arrive(self):
        groups = 5000
        header = self.world.header(name="many", groups=[self.api.new("GroupDims", n=1, k=32)], group_count=groups)
        self.call("Weights/Upload", self.world.upload(header, ONE_CODES * 16 * groups, ONE_SCALE * 2 * groups))
        error = self.refusal("Gemm/Prepare", self.world.prepare(
            weights="many", exact=self.api.new("RowCounts", m=[-1] * groups)))
        code, reason, fields, _ = self.api.outcome(error)
        self.assertEqual((code, reason), ("INVALID_ARGUMENT", "FIELD_OUT_OF_RANGE"))
        self.assertGreater(len(fields), 1)
        self.check_bounded(error)
        self.call("Weights/Drop", self.api.new("DropRequest", weights="many"))

    def test_reply_of_two_gibibytes_is_refused_before_anything_is_computed(self):
        daemon = Daemon(OPTIONS.tetradd, "--max-inline-bytes", str(1900 << 20))
        with connect(daemon.address) as channel:
            api = Reflected(channel, OPTIONS.grpc_protos)
            world = World(api, None, None, None, None)
            n = 4096
            header = world.header(name="good", groups=[api.new("GroupDims", n=n, k=32)], group_count=1)
            api.call("tetrad.v1.Weights/Upload")(iter(world.upload(
                header, ONE_CODES * (n * 16), ONE_SCALE * (n * 2))), timeout=SECONDS)
            rows = (2 << 30) // (4 * n)
            request = world.execute(world.signature(exact=api.new("RowCounts", m=[rows])),
                                    inline_operands=world.inline(activations=bytes(rows * 64)))
            began = time.monotonic()
            with self.assertRaises(grpc.RpcError) as caught:
                api.call("tetrad.v1.Gemm/Execute")(request, timeout=SECONDS)
            self.assertEqual(api.outcome(caught.exception)[:2], ("INVALID_ARGUMENT", "MESSAGE_TOO_LARGE"))
            self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(daemon.stop(), 0)


def grpc_code(number):
    return next(code.name for code in grpc.StatusCode if code.value[0] == number)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tetradd", required=True)
    parser.add_argument("--grpc-protos", required=True)
    parser.add_argument("--checkpoints", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
