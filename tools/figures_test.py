# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Feeds tools/record-bars and tools/readme-numbers a small tree: what is accepted
stands in the README, what is not leaves everything as it was."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent
README = ("before\n<!-- numbers: tools/readme-numbers -->\n<!-- end of numbers -->\nbetween\n"
          "<!-- figures: tools/readme-numbers -->\n<!-- end of figures -->\nafter\n")
BARS = "# id\na.b\tmax\t2\tus\twhat\na.c\tmin\t14\tshapes\twhat\na.d\tgoal-min\t0.5\tshare\twhat\n"
CPU = {"cores": 2, "set": "avx2", "device": "cpu", "date": "2026-01-01", "repeats": 3, "peer": "p", "shape": "S1",
       "ours_ms": 1, "peer_ms": 2, "ratio": 2, "best_ratio": 2, "gflops": 3, "share_of_floor": 0.5}


def line(**changes):
    return {"id": "a.b", "value": 1.2345678, "spread": [1.1, 1.3], "unit": "us", "limit": 2.0, "ok": True,
            "device": "H200", "driver": "580", "clocks": "unknown", "binary_sha256": "00", "commit": "c0ffee",
            "date": "2026-01-02", **changes}


class FiguresTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="a tree "))
        self.addCleanup(shutil.rmtree, self.root)
        for name, text in {"README.md": README, "bench/bars.tsv": BARS,
                           "bench/results/cpu_gemm.jsonl": json.dumps(CPU) + "\n",
                           "tools/record-bars": (TOOLS / "record-bars").read_text(),
                           "tools/readme-numbers": (TOOLS / "readme-numbers").read_text()}.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

    def run_tool(self, name, *arguments):
        done = subprocess.run([self.root / "tools" / name, *map(str, arguments)], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def record(self, *lines):
        out = self.root / "out.jsonl"
        out.write_text("".join(json.dumps(one) + "\n" for one in lines))
        return self.run_tool("record-bars", out)

    def accepted(self):
        text = (self.root / "bench/results/bars.jsonl").read_text()
        return [json.loads(one) for one in text.splitlines()]

    def test_without_results_the_readme_says_so(self):
        self.assertEqual(self.run_tool("readme-numbers", "--check")[0], 1)
        self.assertEqual(self.run_tool("readme-numbers")[0], 0)
        self.assertIn("figures: tools/readme-numbers -->\nNot measured yet.\n<!--", (self.root / "README.md").read_text())
        self.assertEqual(self.run_tool("readme-numbers", "--check")[0], 0)

    def test_what_is_accepted_stands_in_the_readme(self):
        status, said = self.record(line(), line(id="a.c", value=14.0, spread=[14.0, 14.0], unit="shapes", limit=14.0),
                                   line(id="a.d", value=None, spread=None, unit="share", limit=0.5, ok=False,
                                        reason="no peer"))
        self.assertEqual(status, 0, said)
        readme = (self.root / "README.md").read_text()
        for expected in ("H200, driver 580, 2026-01-02, commit c0ffee:\n",
                         "| a.b | 1.235 us | 1.1 to 1.3 | at most 2 | yes |\n",
                         "| a.c | 14 shapes | 14 | at least 14 | yes |\n",
                         "| a.d | not measured |  | at least 0.5 (goal) | no |\n"):
            self.assertIn(expected, readme)
        self.assertTrue(readme.startswith("before\n") and "\nbetween\n" in readme and readme.endswith("after\n"))
        self.assertEqual(self.run_tool("readme-numbers", "--check")[0], 0)

    def test_lines_replace_those_of_the_same_id_in_the_order_of_the_definitions(self):
        self.assertEqual(self.record(line(id="a.c", limit=14.0, value=13.0))[0], 0)
        self.assertEqual(self.record(line())[0], 0)
        self.assertEqual(self.record(line(id="a.c", limit=14.0, value=14.0))[0], 0)
        self.assertEqual([(one["id"], one["value"]) for one in self.accepted()], [("a.b", 1.2345678), ("a.c", 14.0)])

    def test_what_is_no_result_is_refused_with_all_beside_it(self):
        self.assertEqual(self.record(line())[0], 0)
        for changes, expected in (({"id": "a.x"}, "a.x is not in bench/bars.tsv"),
                                  ({"id": "a.c", "limit": 13.0}, "a.c was judged by the limit 13.0, not 14.0"),
                                  ({"driver": "none", "device": "CPU"}, "a.b was measured on CPU, not on a GPU"),
                                  ({"commit": "c0ffee-dirty"}, "a.b is of commit c0ffee-dirty"),
                                  ({"commit": "unknown"}, "a.b is of commit unknown")):
            status, said = self.record(line(id="a.d", limit=0.5), line(**changes))
            self.assertEqual(status, 1)
            self.assertIn(expected, said)
            self.assertEqual([one["id"] for one in self.accepted()], ["a.b"])
        self.assertEqual(self.record()[0], 1)


if __name__ == "__main__":
    unittest.main()
