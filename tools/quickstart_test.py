# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs tools/quickstart, and its run step as a bundle has it, around a fake build,
daemon and command line: the exit status tells the truth, and whatever happens
no process and no file is left."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent

DAEMON = """#!/usr/bin/env python3
import os, signal, sys, time
def end(*_):
    print("stopping", flush=True)
    sys.exit(int(os.environ.get("FAKE_EXIT", "0")))
signal.signal(signal.SIGTERM, end)
open(os.environ["FAKE_PIDS"], "a").write(f"{os.getpid()}\\n")
print("a line of the log", flush=True)
if os.environ.get("FAKE_DAEMON") == "dies":
    sys.exit(3)
open(sys.argv[sys.argv.index("--listen") + 1].removeprefix("unix:"), "w").close()
while True:
    time.sleep(0.05)
"""
CLIENT = """#!/usr/bin/env python3
import os, sys, time
arguments = " ".join(sys.argv[1:])
if not os.path.exists(sys.argv[sys.argv.index("--endpoint") + 1].removeprefix("unix:")):
    sys.exit(3)
if "verify" in arguments:
    open(os.environ["FAKE_PIDS"], "a").write(f"{os.getpid()}\\n")
    print("verifying", flush=True)
    time.sleep(float(os.environ.get("FAKE_VERIFY_S", "0")))
failing = os.environ.get("FAKE_FAILS")
sys.exit(1 if failing and failing in arguments else 0)
"""


def alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


class QuickstartTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="a clone "))
        self.addCleanup(shutil.rmtree, self.root)
        self.scratch = self.root / "scratch"
        self.scratch.mkdir()
        self.pids = self.root / "pids"
        self.pids.touch()
        run_step = (TOOLS / "quickstart-run").read_text()
        for name, text in {"tools/quickstart": (TOOLS / "quickstart").read_text(),
                           "tools/quickstart-run": run_step, "bundle/bin/quickstart": run_step,
                           "bundle/bin/tetradd": DAEMON, "bundle/bin/tetradctl": CLIENT,
                           "tools/install-packages": "#!/bin/sh\n", "tools/build": "#!/bin/sh\n",
                           "build/release/bin/tetradd": DAEMON, "build/release/bin/tetradctl": CLIENT}.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

    def start(self, program="tools/quickstart", **fakes):
        environment = {**os.environ, "TMPDIR": str(self.scratch), "FAKE_PIDS": str(self.pids), **fakes}
        return subprocess.Popen([self.root / program], cwd="/", env=environment, start_new_session=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def finish(self, process):
        said = process.communicate(timeout=60)[0].decode()
        self.assertEqual(list(self.scratch.iterdir()), [], said)
        pids = [int(line) for line in self.pids.read_text().split()]
        self.assertTrue(pids, said)
        self.assertFalse([pid for pid in pids if alive(pid)], said)
        return process.returncode, said

    def test_success(self):
        status, said = self.finish(self.start())
        self.assertEqual(status, 0, said)
        self.assertIn("quickstart: everything verified", said)

    def test_the_run_step_finds_what_lies_beside_it(self):
        status, said = self.finish(self.start("bundle/bin/quickstart"))
        self.assertEqual(status, 0, said)
        self.assertIn("quickstart: everything verified", said)
        self.assertNotIn("build", said)

    def test_a_difference_fails_and_shows_the_log(self):
        for failing in ("verify", "load", "contest"):
            status, said = self.finish(self.start(FAKE_FAILS=failing))
            self.assertEqual(status, 1, failing)
            self.assertIn("a line of the log", said)
            self.assertNotIn("everything verified", said)

    def test_a_daemon_that_dies_fails_and_shows_the_log(self):
        status, said = self.finish(self.start(FAKE_DAEMON="dies"))
        self.assertEqual(status, 1)
        self.assertIn("the daemon ended before it was ready", said)
        self.assertIn("a line of the log", said)

    def test_a_daemon_that_ends_badly_fails(self):
        status, said = self.finish(self.start(FAKE_EXIT="4"))
        self.assertEqual(status, 1, said)
        self.assertIn("the daemon did not end well", said)

    def test_a_signal_stops_everything_at_once(self):
        for number, to_group in ((signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, False)):
            process = self.start(FAKE_VERIFY_S="50")
            deadline = time.monotonic() + 20
            known = len(self.pids.read_text().split())
            while len(self.pids.read_text().split()) < known + 2 and time.monotonic() < deadline:
                time.sleep(0.02)
            (os.killpg if to_group else os.kill)(process.pid, number)
            signalled = time.monotonic()
            status, said = self.finish(process)
            self.assertEqual(status, 128 + number, said)
            self.assertLess(time.monotonic() - signalled, 20)


if __name__ == "__main__":
    unittest.main()
