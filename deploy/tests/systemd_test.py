# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The unit of deploy/systemd: systemd's own tools find nothing wrong with it and rate it as well confined, its time
limits and folders fit the daemon's configuration, and that configuration starts. No service is started.

    systemd_test.py --tetradd PROGRAM
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

OPTIONS = argparse.Namespace()
SYSTEMD = pathlib.Path(__file__).resolve().parents[1] / "systemd"
NODE = SYSTEMD.parent / "kubernetes/node"
TEARDOWN_SECONDS = 3  # as in manifests_test.py
MAX_EXPOSURE = 20  # tenths; systemd calls less than 20 "OK"
# What the unit's dependencies are, as empty units: the machine need not have a manager.
STUBS = {name: "[Unit]\n" for name in ("sysinit.target", "basic.target", "shutdown.target", "multi-user.target",
                                       "network-online.target", "system.slice")}
STUBS |= {"-.mount": "[Mount]\nWhat=none\nWhere=/\n", "tmp.mount": "[Mount]\nWhat=none\nWhere=/tmp\n",
          "nvidia-persistenced.service": "[Service]\nExecStart=/bin/true\n"}


def run(*command: object, **environment: str) -> tuple[int, str]:
    done = subprocess.run([str(part) for part in command], check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          env={"PATH": os.environ["PATH"], **environment})
    return done.returncode, done.stdout


class UnitTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="tetrad-systemd-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = (SYSTEMD / "tetradd.service").read_text()
        lines = [line.partition("=") for line in self.text.splitlines() if "=" in line and line[0] != "#"]
        self.settings: dict[str, list[str]] = {}
        for name, _, value in lines:
            self.settings.setdefault(name, []).append(value)

    def one(self, name: str) -> str:
        (value,) = self.settings[name]
        return value

    def configuration(self, **environment: str) -> dict[str, tuple[str, str]]:
        """{option: (value, source)} of the configuration that is shipped."""
        status, said = run(OPTIONS.tetradd, "--config", SYSTEMD / "tetradd.toml", "--print-config", **environment)
        self.assertEqual(status, 0, said)
        found = re.findall(r"^(\w+) = (.*?)\s+# (.*)$", said, re.MULTILINE)
        return {name: (value.strip('"[]'), source) for name, value, source in found}

    def unit(self, text: str) -> pathlib.Path:
        """The unit with the program of the build, among stubs of what it refers to."""
        for name, text_of_stub in STUBS.items():
            (self.folder / name).write_text(text_of_stub)
        path = self.folder / "tetradd.service"
        # A machine that only tests may be without procps, which every host with systemd has.
        path.write_text(text.replace("/usr/bin/tetradd", str(OPTIONS.tetradd)).replace("/bin/kill", "/bin/true"))
        return path

    def verified(self, text: str) -> tuple[int, str]:
        return run("systemd-analyze", "verify", "--man=no", self.unit(text), SYSTEMD_UNIT_PATH=str(self.folder))

    def test_systemd_finds_nothing_wrong(self) -> None:
        self.assertEqual(self.verified(self.text), (0, ""))

    def test_systemd_would_find_mistakes(self) -> None:
        for old, new in (("ProtectSystem=strict", "ProtectSystem=strictly"), ("RestartSec=", "RestartSeconds="),
                         ("@system-service", "@system-services"), ("/usr/bin/tetradd", "/usr/bin/tetraddd/x")):
            self.assertIn(old, self.text)
            self.assertNotEqual(self.verified(self.text.replace(old, new)), (0, ""), new)

    def exposure(self, text: str) -> tuple[int, str]:
        return run("systemd-analyze", "security", "--offline=yes", "--no-pager", f"--threshold={MAX_EXPOSURE}",
                   self.unit(text), SYSTEMD_UNIT_PATH=str(self.folder))

    def test_it_is_confined(self) -> None:
        status, said = self.exposure(self.text)
        self.assertEqual(status, 0, said)
        self.assertNotEqual(self.exposure(self.text.replace("SystemCallFilter", "#").replace("Protect", "#"))[0], 0)

    def test_a_drain_is_not_cut_off(self) -> None:
        configuration = self.configuration()
        times = [int(configuration[name][0]) for name in ("lame_duck_seconds", "drain_seconds")]
        self.assertGreaterEqual(int(self.one("TimeoutStopSec")), sum(times) + TEARDOWN_SECONDS)
        self.assertNotIn("KillSignal", self.settings, "SIGTERM is what drains")

    def test_it_is_of_the_type_that_the_daemon_is(self) -> None:
        speaks = b"NOTIFY_SOCKET" in OPTIONS.tetradd.read_bytes()
        self.assertEqual(self.one("Type"), "notify" if speaks else "exec")

    def test_a_wrong_configuration_is_not_tried_again(self) -> None:
        wrong = self.folder / "wrong.toml"
        wrong.write_text("listens = []\n")
        status, _ = run(OPTIONS.tetradd, "--config", wrong)
        self.assertIn(str(status), self.one("RestartPreventExitStatus").split())

    def test_files_lie_where_the_unit_lets_it_write(self) -> None:
        configuration = self.configuration()
        runtime, state = f"/run/{self.one('RuntimeDirectory')}/", f"/var/lib/{self.one('StateDirectory')}"
        self.assertTrue(configuration["listen"][0].strip('"').startswith(f"unix:{runtime}"))
        self.assertTrue(configuration["crash_report"][0].startswith(f"{state}/"))
        self.assertTrue(configuration["checkpoint_root"][0].startswith(state))
        self.assertIn("/etc/tetrad/tetradd.toml", self.one("ExecStart"))

    def test_the_configuration_starts(self) -> None:
        text = (SYSTEMD / "tetradd.toml").read_text()
        for path in ("/run/tetrad", "/var/lib/tetrad"):
            self.assertIn(path, text)
            text = text.replace(path, str(self.folder))
        file = self.folder / "tetradd.toml"
        for old, new in ((":9464", ":0"), ('"auto"', '"cpu"'), ("lame_duck_seconds = 5", "lame_duck_seconds = 0")):
            self.assertIn(old, text)
            text = text.replace(old, new)
        file.write_text(text)
        with (self.folder / "log").open("wb") as log:
            daemon = subprocess.Popen([OPTIONS.tetradd, "--config", file], umask=int(self.one("UMask"), 8), env={},
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            said = b""
            while b"event=ready" not in said:
                said = (self.folder / "log").read_bytes()
                self.assertIsNone(daemon.poll(), said)
                time.sleep(0.02)
            self.assertEqual(stat.S_IMODE((self.folder / "tetrad.sock").stat().st_mode), 0o660)
            daemon.send_signal(signal.SIGTERM)
            self.assertEqual(daemon.wait(timeout=30), 0)
        finally:
            daemon.kill()
            daemon.wait()

    def test_the_user_of_the_unit_is_made(self) -> None:
        (self.folder / "etc").mkdir()
        status, said = run("systemd-sysusers", f"--root={self.folder}", SYSTEMD / "tetrad.sysusers.conf")
        self.assertEqual(status, 0, said)
        user = re.search(rf"^{self.one('User')}:x:(\d+):(\d+):", (self.folder / "etc/passwd").read_text(), re.MULTILINE)
        group = re.search(rf"^{self.one('Group')}:x:(\d+):", (self.folder / "etc/group").read_text(), re.MULTILINE)
        self.assertEqual(user.group(2), group.group(1))
        self.assertNotEqual(user.group(1), "0")

    def test_the_folder_of_a_node_is_made_for_the_user_of_the_pods(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("only root can make folders of others")
        status, said = run("systemd-tmpfiles", "--create", f"--root={self.folder}", NODE / "tetrad.tmpfiles.conf")
        self.assertEqual(status, 0, said)
        made = (self.folder / "run/tetrad").stat()
        self.assertEqual((made.st_uid, made.st_gid, stat.S_IMODE(made.st_mode)), (65532, 65532, 0o2750))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tetradd", required=True, type=pathlib.Path)
    OPTIONS, rest = parser.parse_known_args()
    OPTIONS.tetradd = OPTIONS.tetradd.resolve()
    if shutil.which("systemd-analyze") is None:
        raise SystemExit("no systemd-analyze: tools/install-packages test brings it")
    unittest.main(argv=sys.argv[:1] + rest)
