# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs tetrad-bars on the CPU: each chosen figure has its line, those that
cannot be measured fail with a reason, and the exit status tells the truth.

    bars_test.py --program tetrad-bars --source FOLDER
"""
import argparse
import json
import pathlib
import subprocess
import tempfile
import unittest

FIELDS = ["id", "value", "spread", "unit", "limit", "ok", "device", "driver", "clocks", "binary_sha256",
          "commit", "date"]


def defined(prefix):
    text = (OPTIONS.source / "bench/bars.tsv").read_text()
    rows = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return [row for row in rows if row[0].startswith(prefix)]


def run(*arguments):
    done = subprocess.run([OPTIONS.program, *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


class BarsTest(unittest.TestCase):
    def check_line(self, line, row):
        self.assertEqual([field for field in line if field != "reason"], FIELDS)
        self.assertEqual((line["id"], line["limit"], line["unit"]), (row[0], float(row[2]), row[3]))
        self.assertIsInstance(line["ok"], bool)
        self.assertRegex(line["binary_sha256"], "^[0-9a-f]{64}$")
        self.assertRegex(line["date"], r"^\d{4}-\d\d-\d\d$")
        self.assertTrue(line["commit"])
        if line["value"] is None:
            self.assertIsNone(line["spread"])
            self.assertFalse(line["ok"])
            self.assertTrue(line["reason"])
        else:
            low, high = line["spread"]
            self.assertLessEqual(low, high)

    def test_the_contest_holds_on_the_cpu(self):
        status, lines, said = run("--device", "cpu", "--only", "main.contest")
        self.assertEqual((status, len(lines)), (0, 1), said)
        self.check_line(lines[0], defined("main.contest")[0])
        self.assertTrue(lines[0]["ok"])
        self.assertEqual(lines[0]["value"], 14)
        self.assertIn("CPU", lines[0]["device"])

    def test_the_daemon_answers_beside_the_program(self):
        _, lines, said = run("--device", "cpu", "--only", "main.rpc")
        self.assertEqual(len(lines), 1, said)
        self.check_line(lines[0], defined("main.rpc")[0])
        self.assertGreater(lines[0]["value"], 0, said)

    def test_a_stream_is_driven_beside_single_calls(self):
        _, lines, said = run("--device", "cpu", "--only", "service.rpc")
        self.assertEqual(len(lines), 1, said)
        self.check_line(lines[0], defined("service.rpc")[0])
        self.assertGreater(lines[0]["value"], 0, said)

    def test_figures_without_code_or_device_fail_and_none_is_left_out(self):
        for prefix in ("sm90.S1", "main.replay", "main.portable"):
            status, lines, said = run("--device", "cpu", "--only", prefix)
            rows = defined(prefix)
            self.assertEqual(status, 1, said)
            self.assertEqual(len(lines), len(rows))
            for line, row in zip(lines, rows):
                self.check_line(line, row)
                self.assertIsNone(line["value"])

    def test_a_goal_alone_fails_nobody(self):
        status, lines, _ = run("--device", "cpu", "--only", "sm90.S1.fp16.goal")
        self.assertEqual((status, lines[0]["ok"]), (0, False))

    def test_lines_go_to_a_file_too(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "bars.jsonl")
            _, lines, _ = run("--device", "cpu", "--only", "moe.", "--out", out)
            self.assertEqual([json.loads(line) for line in out.read_text().splitlines()], lines)
            self.assertEqual(len(lines), len(defined("moe.")))

    def test_what_measures_nothing_is_told_apart(self):
        for arguments in (["--only", "nothing."], ["--device", "tpu"], ["--bars", "/nowhere"],
                          ["--out", "/nowhere/x"]):
            status, lines, said = run(*arguments)
            self.assertEqual((status, lines), (2, []), said)

    def test_without_a_device_every_figure_fails(self):
        status, lines, _ = run("--only", "main.random")
        if lines[0]["device"] != "none":
            self.skipTest("this machine has a CUDA device")
        self.assertEqual(status, 1)
        self.assertTrue(lines[0]["reason"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    OPTIONS = parser.parse_args()
    unittest.main(argv=["bars_test"])
