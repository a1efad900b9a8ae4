# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Both clients against a daemon on the CPU. Each case runs twice: with tetrad.aio.Client, and
with tetrad.Client behind a thin wrapper that lets its calls be awaited.

Operands are exact data: every partial sum has an FP32 value, so results must have the bits of
a NumPy reference in FP64."""
import unittest

import numpy as np

import tetrad
from served import OPTIONS, Daemon, main
from tetrad import bf16, nvfp4

GROUPS, N, K = 4, 40, 96
M = [3, 0, 9, 1]
ROWS = sum(M)
ALPHA = np.array([1, 0.3, -0.7, 1e-3], np.float32)
# UE4M3 of 0.5, 0.875, 1, 1.5, 2: mantissas of all kinds, few exponents.
SCALES = np.array([0x30, 0x36, 0x38, 0x3C, 0x40], np.uint8)


def random_nvfp4(rng, *shape):
    codes = rng.integers(0, 256, (*shape[:-1], shape[-1] // 2), np.uint8)
    return codes, rng.choice(SCALES, (*shape[:-1], shape[-1] // 16))


def values(codes, scales):
    """FP64 of codes and linear scales."""
    return nvfp4.decode_e2m1(nvfp4.unpack(codes)).astype(np.float64) * np.repeat(nvfp4.decode_ue4m3(scales), 16, -1)


def reference(a, b, m, alpha, row_scale, output_type):
    """Groups of C as docs/numerics.md, section 1, defines them; `a` and `b` are exact in FP64."""
    parts, at = [], 0
    for g, rows in enumerate(m):
        exact = a[at:at + rows] @ b[g].T
        c = exact.astype(np.float32)
        assert (c == exact).all(), "not exact data"
        c = c * np.float32(alpha[g])
        if row_scale is not None:
            c = c * row_scale[at:at + rows, None]
        parts.append(c)
        at += rows
    c = np.concatenate(parts)
    return {"fp16": lambda: c.astype(np.float16), "bf16": lambda: bf16.encode(c), "fp32": lambda: c}[output_type]()


class Awaited:
    """A tetrad.Client whose calls can be awaited like those of tetrad.aio.Client."""

    def __init__(self, client):
        self.client = client

    def __getattr__(self, name):
        found = getattr(self.client, name)
        if not callable(found):
            return found
        if name == "execute_stream":
            return lambda *given, **named: self._each(found(*given, **named))

        async def call(*given, **named):
            made = found(*given, **named)
            return Awaited(made) if isinstance(made, tetrad.Plan) else made
        return call

    @staticmethod
    async def _each(answers):
        try:
            for answer in answers:
                yield answer
        finally:
            answers.close()

    async def __aenter__(self):
        self.client.__enter__()
        return self

    async def __aexit__(self, *exception):
        self.client.__exit__(*exception)


class Cases:
    daemon = None  # one for both classes

    @classmethod
    def setUpClass(cls):
        cls = Cases
        if cls.daemon is not None:
            return
        cls.daemon = Daemon(OPTIONS.tetradd, "--checkpoint-root", OPTIONS.checkpoints, "--lame-duck-seconds", "0")
        rng = np.random.default_rng(8)
        cls.codes, cls.scales = random_nvfp4(rng, GROUPS, N, K)
        cls.b = values(cls.codes, cls.scales)
        cls.rng = rng
        with tetrad.Client.connect(cls.daemon.address) as client:
            cls.weights = client.upload("main", cls.codes, cls.scales, ALPHA)

    async def asyncSetUp(self):
        self.client = await tetrad.aio.Client.connect(self.daemon.address)

    async def asyncTearDown(self):
        await self.client.close()

    def integers(self, rows=ROWS):
        return self.rng.integers(-8, 9, (rows, K)).astype(np.float64)

    def same(self, output, expected):
        self.assertEqual(output.dtype, expected.dtype)
        np.testing.assert_array_equal(output + 0 if output.dtype != np.uint16 else output & np.where(
            output == 0x8000, 0x7FFF, 0xFFFF), expected + 0 if expected.dtype != np.uint16 else expected & np.where(
                expected == 0x8000, 0x7FFF, 0xFFFF))  # -0 equals +0

    # --- results

    async def test_every_pair_of_types(self):
        x = self.integers()
        q = nvfp4.Quantized(*random_nvfp4(self.rng, ROWS, K))
        row_scale = self.rng.standard_normal(ROWS).astype(np.float32)
        for activations, a in ((x.astype(np.float16), x), (bf16.encode(x), x), (q, values(q.codes, q.scales)),
                               (q.blocked(M), values(q.codes, q.scales))):
            for output_type in ("fp16", "bf16", "fp32"):
                for rows in (None, row_scale):
                    result = await self.client.execute(activations, self.weights, M, output_type=output_type,
                                                       row_scale=rows)
                    self.same(result.output, reference(a, self.b, M, ALPHA, rows, output_type))
        self.assertEqual([len(group) for group in result.groups], M)
        self.assertEqual(result.weights, self.weights.ref)
        self.assertTrue(result.kernel.startswith("cpu."))
        self.assertGreater(result.timings.device_us, 0)

    async def test_types_that_are_not_said(self):
        x = self.integers()
        self.assertEqual((await self.client.execute(x.astype(np.float16), "main", M)).output.dtype, np.float16)
        result = await self.client.execute(bf16.encode(x), "main", M)
        self.same(result.output, reference(x, self.b, M, ALPHA, None, "bf16"))

    async def test_quantized_brings_its_factors(self):
        codes, scales = random_nvfp4(self.rng, ROWS, K)
        rows = np.linspace(0.5, 2, ROWS, dtype=np.float32)
        q = nvfp4.Quantized(codes, scales, 0.25, rows)
        result = await self.client.execute(q, self.weights, M, output_type="fp32", priority="high")
        alpha = ALPHA * np.float32(0.25)
        self.same(result.output, reference(values(codes, scales), self.b, M, alpha, rows, "fp32"))
        with self.assertRaisesRegex(tetrad.InvalidArgument, "^INVALID_ARGUMENT .FIELD_CONFLICT.: alpha"):
            await self.client.execute(q, self.weights, M, alpha=ALPHA)

    async def test_rows_that_the_device_reads(self):
        x, capacity = self.integers(20), 20
        expected = reference(x[:ROWS], self.b, M, ALPHA, None, "fp32")
        offsets = tetrad.Offsets(np.cumsum([0, *M]), capacity)
        result = await self.client.execute(x.astype(np.float16), self.weights, offsets, output_type="fp32")
        self.same(np.concatenate(result.groups), expected)
        self.assertFalse(result.output[ROWS:].any())
        reserved = max(M)
        x = self.integers(GROUPS * reserved)
        counts = tetrad.Counts(M, reserved)
        result = await self.client.execute(x.astype(np.float16), self.weights, counts, output_type="fp32")
        live = np.concatenate([x[g * reserved:g * reserved + m] for g, m in enumerate(M)])
        self.same(np.concatenate(result.groups), reference(live, self.b, M, ALPHA, None, "fp32"))
        with self.assertRaises(tetrad.InvalidArgument) as caught:
            await self.client.execute(x.astype(np.float16), self.weights, tetrad.Counts([1, 2, 3, 99], reserved))
        self.assertEqual(caught.exception.reason, "COUNTS_BEYOND_CAPACITY")

    async def test_groups_of_different_width(self):
        b = [random_nvfp4(self.rng, n, K) for n in (8, 24)]
        weights = await self.client.upload("widths", [codes for codes, _ in b], [scales for _, scales in b])
        self.assertEqual(weights.groups, ((8, K), (24, K)))
        x = self.integers(5)
        result = await self.client.execute(x.astype(np.float16), weights, [2, 3], output_type="fp32")
        for g, part in enumerate((x[:2], x[2:])):
            self.same(result.groups[g], (part @ values(*b[g]).T).astype(np.float32))
        with self.assertRaises(ValueError):
            result.output

    async def test_plan(self):
        x = self.integers()
        async with await self.client.prepare("main", M, activation_type="fp16", output_type="fp32") as plan:
            for _ in range(2):
                result = await plan.execute(x.astype(np.float16), alpha=[2, 2, 2, 2])
                self.same(result.output, reference(x, self.b, M, ALPHA * 2, None, "fp32"))
            self.assertEqual(plan.info.rows, ROWS)
        with self.assertRaises(tetrad.Aborted) as caught:
            await plan.execute(x.astype(np.float16))
        self.assertEqual(caught.exception.reason, "STALE_HANDLE")

    async def test_tensors(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed")
        x = self.integers()
        for dtype, name in ((torch.float16, "fp16"), (torch.bfloat16, "bf16")):
            result = await self.client.execute(torch.tensor(x).to(dtype), self.weights, M)
            self.assertEqual(result.output.dtype, dtype)
            expected = reference(x, self.b, M, ALPHA, None, "fp32")
            self.assertTrue(torch.equal(result.output, torch.tensor(expected).to(dtype)), name)

    # --- weights

    async def test_weights_live_from_upload_to_drop(self):
        blocked = [nvfp4.to_blocked(each) for each in self.scales]
        told = []
        uploaded = await self.client.upload("later", self.codes, blocked, scale_layout="blocked", seal=False,
                                            progress=lambda done, total: told.append((done, total)))
        self.assertEqual(told[-1], (self.codes.size + sum(each.size for each in blocked),) * 2)
        self.assertEqual(told, sorted(told))
        self.assertFalse(uploaded.sealed)
        x = self.integers()
        with self.assertRaises(tetrad.FailedPrecondition) as caught:
            await self.client.execute(x.astype(np.float16), "later", M)
        self.assertEqual(caught.exception.reason, "WEIGHTS_NOT_SEALED")
        sealed = await self.client.seal(uploaded)
        self.assertEqual((sealed.sealed, sealed.ref, sealed.scale_layout), (True, uploaded.ref, "blocked"))
        result = await self.client.execute(x.astype(np.float16), "later", M, output_type="fp32")
        self.same(result.output, reference(x, self.b, M, np.ones(4), None, "fp32"))
        self.assertIn(sealed, await self.client.weights())
        self.assertEqual(await self.client.drop(sealed), 1)
        with self.assertRaises(tetrad.NotFound) as caught:
            await self.client.drop("later")
        self.assertEqual(caught.exception.reason, "WEIGHTS_NOT_FOUND")

    async def test_a_name_that_means_other_shapes_now(self):
        x = self.integers(2)
        for n, k in ((8, K), (16, K), (16, 32)):  # the client has seen the name with the shapes before
            codes, scales = random_nvfp4(self.rng, 1, n, k)
            await self.client.upload("changing", codes, scales)
            result = await self.client.execute(x[:, :k].astype(np.float16), "changing", [2], output_type="fp32")
            self.same(result.output, (x[:, :k] @ values(codes, scales)[0].T).astype(np.float32))
            await self.client.drop("changing")

    async def test_load(self):
        told = []
        weights = await self.client.load("loaded", "modelopt", "model.layers.0.mlp.experts.{expert}.up_proj",
                                         progress=lambda done, total: told.append((done, total)))
        self.assertTrue(weights.sealed and weights.alpha and weights.source.startswith("checkpoint:modelopt:"))
        self.assertEqual(told[-1][0], told[-1][1])
        def gives_up(done, total):
            raise KeyError("mine")
        with self.assertRaisesRegex(KeyError, "mine"):
            await self.client.load("loaded", "modelopt", "model.layers.0.mlp.experts.{expert}.up_proj",
                                   progress=gives_up)
        for folder, reason in (("nowhere", "FILE_NOT_FOUND"), ("../up", "FIELD_MALFORMED")):
            with self.assertRaises(tetrad.Error) as caught:
                await self.client.load("loaded", folder, "p")
            self.assertEqual(caught.exception.reason, reason)

    # --- streams and tickets

    async def test_stream(self):
        x = [self.integers() for _ in range(20)]
        requests = [tetrad.Request(each.astype(np.float16), "main", M, "fp32", id=None if i % 2 else 1000 + i)
                    for i, each in enumerate(x)]
        answers = {answer.id: answer async for answer in self.client.execute_stream(requests)}
        ids = list(range(1000, 1020))  # where none is said it is counted on from the one before
        self.assertEqual(sorted(answers), ids)
        for i, each in zip(ids, x):
            self.same(answers[i].result().output, reference(each, self.b, M, ALPHA, None, "fp32"))

    async def test_error_of_one_request_leaves_the_stream(self):
        x = self.integers().astype(np.float16)
        beyond = tetrad.Request(np.zeros((4 * GROUPS, K), np.float16), "main", tetrad.Counts([99] * GROUPS, 4))
        requests = [tetrad.Request(x, "main", M), beyond, tetrad.CancelRequest(77), tetrad.Request(x, "main", M)]
        answers = {answer.id: answer async for answer in self.client.execute_stream(requests)}
        self.assertEqual({id: answer.error and answer.error.reason for id, answer in answers.items()},
                         {0: None, 1: "COUNTS_BEYOND_CAPACITY", 2: None})
        with self.assertRaises(tetrad.InvalidArgument):
            answers[1].result()

    async def test_what_the_requests_raise_ends_the_stream(self):
        x = self.integers().astype(np.float16)

        def requests():
            yield tetrad.Request(x, "main", M)
            yield tetrad.Request(x, "main", [1, 2])
        with self.assertRaisesRegex(tetrad.InvalidArgument, "^INVALID_ARGUMENT .SIZE_MISMATCH.: m: 2 values"):
            async for _ in self.client.execute_stream(requests()):
                pass

        def failing():
            yield tetrad.Request(x, "main", M)
            raise KeyError("mine")
        with self.assertRaisesRegex(KeyError, "mine"):
            async for _ in self.client.execute_stream(failing()):
                pass

    async def test_a_stream_may_be_left(self):
        x = self.integers().astype(np.float16)
        stream = self.client.execute_stream(tetrad.Request(x, "main", M) for _ in range(10000))
        async for answer in stream:
            self.assertEqual(answer.result().output.shape, (ROWS, N))
            break
        await stream.aclose()
        self.assertEqual((await self.client.status()).state, "serving")

    async def test_tickets(self):
        x = self.integers()
        submit = dict(output_type="fp32", idempotency_key="mine:" + self.kind)
        ticket = await self.client.submit(x.astype(np.float16), self.weights, M, **submit)
        again = await self.client.submit(x.astype(np.float16), self.weights, M, **submit)
        self.assertEqual((again.name, ticket.repeated, again.repeated), (ticket.name, False, True))
        for _ in range(2):
            answer = await self.client.wait(again)
            self.same(answer.result().output, reference(x, self.b, M, ALPHA, None, "fp32"))
        self.assertFalse(await self.client.cancel(ticket))
        with self.assertRaises(tetrad.AlreadyExists) as caught:
            await self.client.submit((x + 1).astype(np.float16), self.weights, M, **submit)
        self.assertEqual(caught.exception.reason, "KEY_REUSED")
        await self.client.wait(ticket, forget=True)
        for _ in range(100):  # once the answer was handed to the network
            try:
                await self.client.wait(ticket, 0.01)
            except tetrad.NotFound as error:
                self.assertEqual(error.reason, "TICKET_NOT_FOUND")
                break
        else:
            self.fail("the ticket was not forgotten")

    async def test_an_outcome_that_is_an_error(self):
        n, rows = 2048, 2048  # many milliseconds, for which the second one waits
        zeros, scales = np.zeros((1, n, n // 2), np.uint8), np.ones((1, n, n // 16), np.uint8)
        weights = await self.client.upload("large", zeros, scales)
        x = np.zeros((rows, n), np.float16)
        first = await self.client.submit(x, weights, [rows])
        second = await self.client.submit(x, weights, [rows])
        self.assertIsNone(await self.client.wait(second, 0))
        self.assertTrue(await self.client.cancel(second))
        answer = await self.client.wait(second)
        self.assertIsInstance(answer.error, tetrad.Cancelled)
        with self.assertRaises(tetrad.Cancelled):
            answer.result()
        self.assertFalse((await self.client.wait(first)).result().output.any())

    # --- errors

    async def test_the_daemons_errors_are_whole(self):
        bad = self.scales.copy()
        bad[1, 2, 3] = 0xFF
        with self.assertRaises(tetrad.InvalidArgument) as caught:
            await self.client.upload("bad", self.codes, bad, call=tetrad.CallOptions(request_id="my-id-7"))
        self.assertEqual((caught.exception.reason, caught.exception.request_id), ("ILLEGAL_SCALE", "my-id-7"))
        self.assertNotIn("bad", [each.name for each in await self.client.weights()])
        with self.assertRaises(tetrad.InvalidArgument) as caught:
            await self.client.upload("no spaces", self.codes, self.scales)
        error = caught.exception
        self.assertEqual((error.code, error.reason, error.fields, error.metadata["value"]),
                         (tetrad.Code.INVALID_ARGUMENT, "FIELD_MALFORMED", ("header.name",), "no spaces"))
        self.assertIn("1 to 128 characters", error.violations[0].description)
        self.assertIsInstance(error, ValueError)

    async def test_wrong_shapes_never_leave(self):
        x = np.zeros((ROWS, K), np.float16)
        q = nvfp4.Quantized(*random_nvfp4(self.rng, ROWS, K))
        execute, upload = self.client.execute, self.client.upload
        for call, field, value, limit in (
                (lambda: execute(x, self.weights, [3, 0, 9]), "m", "3 values", "4: rows of each group"),
                (lambda: execute(x, self.weights, [3, 0, 9, 2]), "m", "14 rows", "13, the rows of activations"),
                (lambda: execute(x, self.weights, [14, -1, 0, 0]), "m[1]", "-1", "at least 0"),
                (lambda: execute(x, self.weights, [13.0, 0, 0, 0]), "m", "float64", "whole numbers"),
                (lambda: execute(x[:, :64], self.weights, M), "activations", "(13, 64)", "K = 96"),
                (lambda: execute(x.astype(np.float32), self.weights, M), "activations", "float32", "float16, uint16"),
                (lambda: execute(x, self.weights, M, alpha=[1, 2]), "alpha", "2 values", "4"),
                (lambda: execute(x, self.weights, M, row_scale=[1]), "row_scale", "1 values", "13"),
                (lambda: execute(x, self.weights, M, output_type="fp8"), "output_type", "'fp8'", "fp16, bf16, fp32"),
                (lambda: execute(x, self.weights, M, priority="now"), "priority", "'now'", "high, normal, low"),
                (lambda: execute(nvfp4.Quantized(q.codes, q.scales[:5]), self.weights, M), "activations.scales",
                 "(5, 6)", "(13, 6)"),
                (lambda: upload("w", self.codes, self.scales[:, :9]), "scales[0]", "(9, 6)", "[40, 6]"),
                (lambda: upload("w", self.codes, self.scales[:1]), "scales", "1 values", "4"),
                (lambda: upload("w", self.codes[..., :40], self.scales), "codes[0]", "(40, 40)", "multiple of 32"),
                (lambda: upload("w", self.codes, self.scales, [1]), "alpha", "1 values", "4"),
                (lambda: upload("w", [], []), "codes", "no groups", "at least one"),
                (lambda: upload("w", self.codes, self.scales, upload_key="a b"), "upload_key", "a b", "128")):
            with self.subTest(field=field, value=value):
                with self.assertRaises(tetrad.InvalidArgument) as caught:
                    await call()
                error = caught.exception
                self.assertEqual(error.request_id, "", "the daemon was asked")
                for part in (field, value, limit):
                    self.assertIn(part, error.message)
                if error.metadata:
                    self.assertEqual(error.metadata["field"], field)


class AsyncioTest(Cases, unittest.IsolatedAsyncioTestCase):
    kind = "asyncio"

    async def test_requests_may_be_asynchronous(self):
        x = self.integers()

        async def requests():
            for i in range(3):
                yield tetrad.Request(x.astype(np.float16), self.weights, M, "fp32", id=i)
        answers = [answer async for answer in self.client.execute_stream(requests())]
        self.assertEqual(sorted(answer.id for answer in answers), [0, 1, 2])
        self.same(answers[0].result().output, reference(x, self.b, M, ALPHA, None, "fp32"))


class BlockingTest(Cases, unittest.IsolatedAsyncioTestCase):
    kind = "blocking"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shared = tetrad.Client.connect(cls.daemon.address)

    @classmethod
    def tearDownClass(cls):
        cls.shared.close()

    async def asyncSetUp(self):
        self.client = Awaited(self.shared)

    async def asyncTearDown(self):
        pass


def tearDownModule():
    if Cases.daemon is not None:
        assert Cases.daemon.stop() == 0, "the daemon did not end in order"


if __name__ == "__main__":
    main("--checkpoints")
