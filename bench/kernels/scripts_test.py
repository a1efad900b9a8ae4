# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""plot.py, compare_builds.py and the arithmetic of torch_peers.py, without a GPU."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import compare_builds  # noqa: E402
import plot  # noqa: E402
import torch_peers  # noqa: E402


def line(activation, us, **more):
    return {"id": "S4", "activation": activation, "groups": 2, "k": 1536, "n": 4096, "m": [128, 384],
            "compute_floor_us": 8.0, "memory_floor_us": 3.0, "cold_us": [us, us - 0.5, us + 0.5],
            "device": "a <GPU>", "date": "2026-01-02", "peers": {}, **more}


class PlotTest(unittest.TestCase):
    def drawn(self, lines):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "lines.jsonl")
            source.write_text("".join(json.dumps(one) + "\n" for one in lines))
            done = subprocess.run([sys.executable, HERE / "plot.py", source, folder], check=False)
            return done.returncode, {path.name: path.read_text() for path in pathlib.Path(folder).glob("*.svg")}

    def test_a_picture_for_each_shape_with_a_bar_for_each_time(self):
        peers = {"cublas_streams": [18.5, 18, 19], "torch_grouped_mm": "no torch"}
        status, pictures = self.drawn([line("fp16", 11, peers=peers), line("nvfp4", 15),
                                       line("fp16", 40, id="S3"), {"id": "S2", "reason": "no"}])
        self.assertEqual((status, sorted(pictures)), (0, ["S3.svg", "S4.svg"]))
        root = ElementTree.fromstring(pictures["S4.svg"])
        space = "{http://www.w3.org/2000/svg}"
        bars = [bar for bar in root.findall(f"{space}rect") if bar.get("fill") in (plot.OURS, plot.PEER)]
        self.assertEqual(len(bars), 3)
        widths = [float(bar.get("width")) for bar in bars]
        for width, us in zip(widths, (11, 15, 18.5)):
            self.assertAlmostEqual(width / widths[0], us / 11, places=2)
        floor = next(one for one in root.findall(f"{space}line") if one.get("stroke") == plot.FLOOR)
        self.assertAlmostEqual((float(floor.get("x1")) - plot.LABEL) / widths[0], 8 / 11, places=2)
        self.assertIn("a &lt;GPU&gt;", pictures["S4.svg"])

    def test_nothing_to_draw_is_an_error(self):
        self.assertEqual(self.drawn([{"id": "S2", "reason": "no"}]), (1, {}))


class CompareBuildsTest(unittest.TestCase):
    def slower(self, before, after):
        return [worse for _, _, worse in compare_builds.verdicts({"x": before}, {"x": after}, 0.03)]

    def test_slower_is_what_most_rounds_and_the_medians_say(self):
        steady = [10.0, 10.1, 9.9, 10.0]
        self.assertEqual(self.slower(steady, steady), [False])
        self.assertEqual(self.slower(steady, [10.2] * 4), [False])  # within the tolerance
        self.assertEqual(self.slower(steady, [10.5] * 4), [True])
        self.assertEqual(self.slower([10.0] * 4, [9.0, 9.5, 11.0, 11.0]), [False])  # rounds disagree
        self.assertEqual(self.slower(steady, [10.0] * 3), [True])  # one was not timed

    def test_the_program_runs_builds_in_turn_and_tells_by_its_status(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, us in (("a", 10), ("b", 12)):
                program = pathlib.Path(folder, name, "bin", "tetrad-kernels")
                program.parent.mkdir(parents=True)
                text = json.dumps(line("fp16", us))
                program.write_text(f"#!/bin/sh\necho {name} >> {folder}/order\necho '{text}'\n")
                program.chmod(0o755)
            run = lambda *builds: subprocess.run(
                [sys.executable, HERE / "compare_builds.py", "--rounds", "3", *[f"{folder}/{b}" for b in builds]],
                check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            done = run("a", "b")
            self.assertEqual(done.returncode, 1)
            self.assertIn("S4 fp16: 10.00 us before, 12.00 us after, ratio 1.200 (1.200 to 1.200) SLOWER", done.stdout)
            self.assertEqual(pathlib.Path(folder, "order").read_text().split(), ["a", "b", "b", "a", "a", "b"])
            self.assertEqual(run("b", "a").returncode, 0)
            pathlib.Path(folder, "a/bin/tetrad-kernels").write_text("#!/bin/sh\nexit 1\n")
            self.assertEqual(run("a", "a").returncode, 2)


class TorchPeersTest(unittest.TestCase):
    def test_median_and_quartiles_are_values_that_were_measured(self):
        self.assertEqual(torch_peers.spread([5, 1, 4, 2, 3]), [3, 2, 4])
        self.assertEqual(torch_peers.spread([7]), [7, 7, 7])


if __name__ == "__main__":
    unittest.main()
