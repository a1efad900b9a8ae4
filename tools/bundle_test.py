# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Assembles a bundle from a build tree, moves it, and runs it with nothing of
this machine but glibc; checks that tools/check-bundle finds what is missing,
and that bin/run-gpu-tests counts right.

    bundle_test.py --built FOLDER
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent


def run(*command):
    """Exit status and all that was said, without the environment of the test."""
    done = subprocess.run(["env", "-i", "PATH=/usr/bin:/bin", *map(str, command)], check=False, cwd="/",
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def temporary_folder(test):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="a bundle "))
    test.addClassCleanup(shutil.rmtree, folder)
    return folder.resolve()


class BundleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = temporary_folder(cls)
        status, said = run(TOOLS / "bundle", "--built", OPTIONS.built, folder / "made")
        if status != 0:
            raise AssertionError(said)
        cls.said = said
        # Whatever still works now does not depend on where it was made.
        cls.bundle = (folder / "made").rename(folder / "moved")

    def check(self):
        return run(TOOLS / "check-bundle", self.bundle)

    def test_it_says_its_size_and_stays_below_the_limit(self):
        size = float(re.search(r"([\d.]+) MiB", self.said).group(1))
        self.assertGreater(size, 1)
        self.assertLess(size, 40)
        self.assertEqual(self.check()[0], 0)

    def test_quickstart_verifies_everything(self):
        status, said = run(self.bundle / "bin/quickstart")
        self.assertEqual(status, 0, said)
        self.assertIn("quickstart: everything verified", said)

    def test_figures_are_measured_with_the_daemon_beside_them(self):
        out = self.bundle.parent / "bars.jsonl"
        _, said = run(self.bundle / "bin/tetrad-bars", "--device", "cpu", "--only", "main.rpc", "--out", out)
        line = json.loads(out.read_text())
        self.assertEqual(line["id"], "main.rpc.unary_ratio", said)
        self.assertGreater(line["value"], 0, said)

    def test_a_library_that_is_missing_is_found_out(self):
        library = next((self.bundle / "lib").glob("libprotobuf.so.*"))
        library.rename(self.bundle.parent / library.name)
        try:
            status, said = self.check()
        finally:
            (self.bundle.parent / library.name).rename(library)
        self.assertEqual(status, 1)
        self.assertIn(f"bin/tetradd: {library.name} is neither in lib/ nor glibc's", said)
        self.assertRegex(said, rf"bin/tetradd: {re.escape(library.name)} would be ")

    def test_a_program_that_searches_elsewhere_is_found_out(self):
        program = self.bundle / "tests/elsewhere"
        shutil.copyfile("/bin/true", program)
        program.chmod(0o755)
        try:
            status, said = self.check()
        finally:
            program.unlink()
        self.assertEqual(status, 1)
        self.assertIn("tests/elsewhere: searches no path, not RPATH", said)

    def test_a_bundle_that_is_too_large_is_found_out(self):
        ballast = self.bundle / "share/ballast"
        with ballast.open("wb") as file:
            file.truncate(40 << 20)
        try:
            status, said = self.check()
        finally:
            ballast.unlink()
        self.assertEqual(status, 1)
        self.assertIn("the limit is", said)

    def test_what_is_in_the_folder_already_stays(self):
        self.assertEqual(run(TOOLS / "bundle", "--built", OPTIONS.built, self.bundle)[0], 2)


class RunGpuTestsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="a bundle "))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_tests(self, programs, *arguments):
        """`programs`: name -> body of a shell script."""
        for name, body in {**programs, "../bin/run-gpu-tests": (TOOLS / "run-gpu-tests").read_text()}.items():
            path = self.folder / "tests" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            (self.folder / "bin").mkdir(exist_ok=True)
            path.write_text(body if body.startswith("#!") else f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)
        (self.folder / "tests/gpu-tests.tsv").write_text("".join(f"{name}\t2\n" for name in programs))
        return run(self.folder / "bin/run-gpu-tests", *arguments)

    GOOD = "echo '[  PASSED  ] 3 tests.'"
    SKIPPED = "echo 'x.cc:1: Skipped'; echo 'no device'; echo '[  PASSED  ] 0 tests.'; echo '[  SKIPPED ] 2 tests, listed below:'"
    BAD = "echo '[  PASSED  ] 1 test.'; echo '[  FAILED  ] 2 tests, listed below:'; echo ' 2 FAILED TESTS'; exit 1"

    def test_passes_and_skips_are_counted(self):
        status, said = self.run_tests({"good": self.GOOD, "skipped": self.SKIPPED})
        self.assertEqual(status, 0, said)
        self.assertIn("gpu tests: 2 programs, 3 tests passed, 2 skipped, 0 failed", said)
        self.assertIn("no device", said)

    def test_a_machine_where_all_is_skipped_has_not_passed(self):
        status, said = self.run_tests({"skipped": self.SKIPPED})
        self.assertEqual(status, 1)
        self.assertIn("0 tests passed, 2 skipped, 0 failed", said)
        self.assertEqual(self.run_tests({})[0], 1)

    def test_failures_crashes_and_hangs_fail(self):
        for body, failed in ((self.BAD, 2), ("kill -SEGV $$", 1), ("sleep 50", 1), (f"{self.GOOD}; exit 3", 1)):
            status, said = self.run_tests({"good": self.GOOD, "other": body})
            self.assertEqual(status, 1, said)
            self.assertIn(f"skipped, {failed} failed", said)

    def test_one_by_name_and_under_another_program(self):
        status, said = self.run_tests({"good": self.GOOD, "bad": self.BAD}, "good")
        self.assertEqual(status, 0, said)
        self.assertIn("1 programs", said)
        self.assertEqual(self.run_tests({"bad": self.BAD}, "--under", "true --of bad")[0], 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--built", type=pathlib.Path, required=True)
    OPTIONS = parser.parse_args()
    unittest.main(argv=["bundle_test"])
