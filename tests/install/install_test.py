# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Installs the build tree into a folder, moves that folder, builds a project of
somebody else against it and runs it against the installed daemon.

    install_test.py --cmake CMAKE --build FOLDER --version VERSION
"""
import argparse
import pathlib
import subprocess
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
READY_SECONDS = 60


def run(*command, succeeds=True):
    """Standard output of a command; what it printed where it ended otherwise."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if (done.returncode == 0) != succeeds:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tetrad-install.")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        staged = cls.folder / "staged"
        run(OPTIONS.cmake, "--install", OPTIONS.build, "--prefix", staged)
        # Whatever still works now does not depend on where it was installed.
        cls.prefix = staged.rename(cls.folder / "moved")

    def configure(self, version, succeeds=True):
        return run(OPTIONS.cmake, "-G", "Ninja", "-S", HERE / "consumer", "-B", self.folder / f"build-{version}",
                   f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DWANTED_VERSION={version}", succeeds=succeeds)

    def start_daemon(self):
        """The installed tetradd, ready, and where it listens."""
        address = f"unix:{self.folder}/s"
        log = self.folder / "log"
        with open(log, "w") as out:
            daemon = subprocess.Popen(
                [self.prefix / "bin/tetradd", "--device", "cpu", "--listen", address, "--http", "off",
                 "--lame-duck-seconds", "0"], stderr=out)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        limit = time.monotonic() + READY_SECONDS
        while "event=ready" not in log.read_text():
            self.assertIsNone(daemon.poll(), log.read_text())
            self.assertLess(time.monotonic(), limit, log.read_text())
            time.sleep(0.05)
        return daemon, address

    def test_a_foreign_project_builds_and_talks_to_the_installed_daemon(self):
        self.configure(OPTIONS.version)
        build = self.folder / f"build-{OPTIONS.version}"
        run(OPTIONS.cmake, "--build", build)
        daemon, address = self.start_daemon()
        self.assertEqual(run(build / "consumer", address), f"{OPTIONS.version} serving\n")
        self.assertIn("serving", run(self.prefix / "bin/tetradctl", "-e", address, "status"))
        daemon.terminate()
        self.assertEqual(daemon.wait(timeout=60), 0)
        self.assertIn("no socket at", run(build / "consumer", address, succeeds=False))

    def test_another_version_is_not_taken_for_ours(self):
        refused = " ".join(self.configure("99.0", succeeds=False).split())
        self.assertIn('compatible with requested version "99.0"', refused)

    def test_no_installed_text_names_the_build_or_the_first_prefix(self):
        texts = [path for pattern in ("*.cmake", "*.h", "*.proto") for path in self.prefix.rglob(pattern)]
        self.assertGreater(len(texts), 10)
        for path in texts:
            text = path.read_text()
            for folder in (str(TREE), str(self.folder / "staged")):
                self.assertNotIn(folder, text, path)

    def test_the_headers_are_those_that_users_may_include(self):
        include = self.prefix / "include"
        headers = sorted(str(path.relative_to(include)) for path in include.rglob("*.h"))
        self.assertIn("tetrad/clients/cpp/client.h", headers)
        self.assertIn("tetrad/v1/gemm.grpc.pb.h", headers)
        self.assertEqual([name for name in headers if not name.startswith("tetrad/")], [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--version", required=True)
    OPTIONS = parser.parse_args()
    unittest.main(argv=["install_test"])
