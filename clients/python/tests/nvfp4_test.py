# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""tetrad.nvfp4 and tetrad.bf16 against what the daemon's own code wrote
(golden/nvfp4.jsonl, by golden_nvfp4.cc), bit for bit."""
import argparse
import json
import pathlib
import subprocess
import sys
import unittest
import zlib

import numpy as np

import tetrad
from tetrad import bf16, nvfp4

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden/nvfp4.jsonl"
OPTIONS = argparse.Namespace(golden_program=None)
TYPES = [np.dtype("<f4"), np.dtype("<f2"), np.dtype("<u2")]


def crc(array):
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def lines(kind):
    with open(GOLDEN, encoding="utf-8") as file:
        return [entry for entry in map(json.loads, file) if kind in entry]


def numbers(text, kind="<f4"):
    return np.frombuffer(bytes.fromhex(text), kind)


def mixed(index):
    """As golden_nvfp4.cc mixes."""
    z = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(32)).astype(np.uint32)


class GoldenTest(unittest.TestCase):
    def test_the_file_is_what_the_daemons_code_gives_now(self):
        if OPTIONS.golden_program is None:
            self.skipTest("--golden-program is not given")
        written = subprocess.run([OPTIONS.golden_program], check=True, stdout=subprocess.PIPE).stdout
        self.assertEqual(written, GOLDEN.read_bytes())

    def test_cases(self):
        refused = 0
        for case in lines("case"):
            with self.subTest(case["case"]):
                x = numbers(case["x"], TYPES[case["type"]]).reshape(case["rows"], case["k"])
                scale = numbers(case["global_scale"])[0]
                rows = numbers(case["row_scale"]) if case["row_scale"] else None
                if case.get("refused"):
                    refused += 1
                    with self.assertRaises(tetrad.InvalidArgument):
                        nvfp4.quantize(x, scale, rows)
                    continue
                q = nvfp4.quantize(x, scale, rows)
                self.assertEqual(q.codes.tobytes().hex(), case["codes"])
                self.assertEqual(q.scales.tobytes().hex(), case["linear"])
                blocked = q.blocked()
                self.assertEqual(crc(blocked.scales), case["blocked"])
                self.assertEqual(crc(nvfp4.dequantize(q)), case["values"])
                self.assertEqual(crc(nvfp4.dequantize(blocked)), case["values"])
                self.assertEqual(nvfp4.row_scales(x).tobytes().hex(), case["row_scales"])
                # The scale of all values is that of the one row that holds them all.
                flat = nvfp4.row_scales(x.reshape(1, -1))
                self.assertEqual(np.float32(nvfp4.global_scale(x)), flat[0])
        self.assertGreater(refused, 5)

    def test_large(self):
        for case in lines("large"):
            with self.subTest(type=case["large"]):
                rows, k, seed = case["rows"], case["k"], case["seed"]
                bits = mixed(seed + np.arange(rows * k, dtype=np.uint64)).reshape(rows, k)
                if case["large"] == 0:
                    x = ((bits & 0x807FFFFF) | ((115 + bits // 4 % 16) << 23)).astype("<u4").view("<f4")
                elif case["large"] == 1:
                    x = ((bits & 0x83FF) | ((8 + (bits >> 16) % 16) << 10)).astype("<u2").view("<f2")
                else:
                    x = ((bits & 0x807F) | ((115 + (bits >> 16) % 16) << 7)).astype("<u2")
                self.assertEqual(crc(x), case["x"])
                row = np.arange(rows)
                factor = np.ldexp(1 + mixed(seed + 77 * row.astype(np.uint64)) % 1024 / 1024, row % 5 - 4)
                factor = factor.astype(np.float32)
                self.assertEqual(crc(factor), case["row_scale"])
                q = nvfp4.quantize(x, numbers(case["global_scale"])[0], factor)
                self.assertEqual(crc(q.codes), case["codes"])
                self.assertEqual(crc(q.scales), case["linear"])
                self.assertEqual(crc(q.blocked().scales), case["blocked"])
                self.assertEqual(crc(nvfp4.dequantize(q)), case["values"])

    def test_every_pattern(self):
        pattern = np.arange(65536, dtype=np.uint16)
        lower = np.array([0x7FFF, 0x8000, 0x8001], np.uint32)[pattern % 3]
        with np.errstate(invalid="ignore"):
            products = nvfp4.decode_e2m1(pattern & 15) * nvfp4.decode_ue4m3(pattern >> 8)
        products.view(np.uint32)[np.isnan(products)] = 0x7FFFFFFF
        wide = bf16.decode(pattern)
        half = pattern.view(np.float16).astype(np.float32)
        computed = {
            "bf16 patterns to e2m1": nvfp4.encode_e2m1(wide),
            "bf16 patterns to ue4m3": nvfp4.encode_ue4m3(wide),
            "fp16 patterns to e2m1": nvfp4.encode_e2m1(half),
            "fp16 patterns to ue4m3": nvfp4.encode_ue4m3(half),
            "bf16 patterns to fp32": wide,
            "fp32 to bf16": bf16.encode((pattern.astype(np.uint32) << 16 | lower).view(np.float32)),
            "products of codes and scales": products,
        }
        golden = {entry["table"]: entry["crc"] for entry in lines("table")}
        self.assertEqual({name: crc(values) for name, values in computed.items()}, golden)


class LayoutTest(unittest.TestCase):
    def test_blocked_and_back_and_the_formula(self):
        for rows, k in ((1, 32), (127, 64), (128, 96), (300, 160), (0, 64)):
            scales = np.random.default_rng(rows).integers(1, 256, (rows, k // 16), np.uint8)
            plane = nvfp4.to_blocked(scales)
            self.assertEqual(plane.size, nvfp4.plane_bytes("blocked", rows, k))
            np.testing.assert_array_equal(nvfp4.to_linear(plane, rows, k), scales)
            self.assertEqual(np.count_nonzero(plane), scales.size)  # padding is zero
            for r, j in ((0, 0), (rows // 2, k // 32), (rows - 1, k // 16 - 1)) if rows else ():
                at = (r // 128 * -(-k // 64) + j // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + j % 4
                self.assertEqual(plane[at], scales[r, j])

    def test_planes_of_groups(self):
        q = nvfp4.quantize(np.random.default_rng(1).standard_normal((200, 64), np.float32))
        parts = [nvfp4.to_blocked(q.scales[a:b]) for a, b in ((0, 70), (70, 70), (70, 200))]
        np.testing.assert_array_equal(q.blocked([70, 0, 130]).scales, np.concatenate(parts))
        with self.assertRaisesRegex(tetrad.InvalidArgument, "m: .*200 rows"):
            q.blocked([70, 131])

    def test_pack_and_unpack(self):
        codes = np.random.default_rng(2).integers(0, 16, (3, 5, 64), np.uint8)
        packed = nvfp4.pack(codes)
        self.assertEqual(packed[1, 2, 3], codes[1, 2, 6] | codes[1, 2, 7] << 4)
        np.testing.assert_array_equal(nvfp4.unpack(packed), codes)
        with self.assertRaises(tetrad.InvalidArgument):
            nvfp4.pack(codes[..., :63])


class RefusalTest(unittest.TestCase):
    def test_row_and_column_are_told(self):
        x = np.ones((40000, 64), np.float32)  # in more than one part
        x[35000, 17] = np.inf
        for refuse in (nvfp4.quantize, nvfp4.row_scales, nvfp4.global_scale):
            with self.assertRaisesRegex(tetrad.InvalidArgument, "row 35000 column 17: inf"):
                refuse(x)

    def test_shapes_and_types(self):
        for x, told in ((np.ones((2, 33), np.float32), "multiple of 32"), (np.ones(32, np.float32), "rows, K"),
                        (np.ones((2, 32)), "float64"), (np.ones((2, 32), np.int32), "int32")):
            with self.assertRaisesRegex(tetrad.InvalidArgument, told):
                nvfp4.quantize(x)

    def test_weights_by_group(self):
        x = np.random.default_rng(3).standard_normal((2, 3, 32)).astype(np.float32) * [[[1]], [[100]]]
        q = nvfp4.quantize_weights(x.astype(np.float32))
        self.assertEqual((q.codes.shape, q.scales.shape), ((2, 3, 16), (2, 3, 2)))
        self.assertEqual(q.scales.max(axis=(1, 2)).tolist(), [0x7E, 0x7E])  # each group meets the top
        one = nvfp4.quantize(x[1].astype(np.float32), float(q.alpha[1]))
        np.testing.assert_array_equal(q.codes[1], one.codes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--golden-program")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
