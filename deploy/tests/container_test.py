# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads deploy/container/Containerfile and does what its last stage says with the programs of a build tree, in a
folder that has glibc and nothing else; then runs it as a container would: another root, read-only, the stage's
user, no capabilities. What no registry could be reached for is not tried here: the stage that compiles, and other
base images.

    container_test.py --built FOLDER
"""
import argparse
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import yaml

OPTIONS = argparse.Namespace()
ROOT = pathlib.Path(__file__).resolve().parents[2]
GLIBC = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2", "libmvec.so.1")
INSTRUCTIONS = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "STOPSIGNAL", "ENTRYPOINT"}
CLONE_NEWNS, MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 1, 32, 4096, 16384, 1 << 18


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "deploy/container/Containerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = [[]]
    for instruction in instructions():
        if instruction[0] == "FROM":
            found.append([])
        found[-1].append(instruction)
    return found


class ContainerfileTest(unittest.TestCase):
    def test_every_base_is_an_argument_with_a_default(self) -> None:
        head, *rest = stages()
        defaults = dict(value.split("=") for name, value in head if name == "ARG")
        bases = [value.split()[0] for stage in rest for name, value in stage if name == "FROM"]
        self.assertEqual(bases, [f"${{{name}}}" for name in defaults])
        self.assertTrue(all(re.fullmatch(r"debian:bookworm(-slim)?", value) for value in defaults.values()))

    def test_instructions_are_known_and_sources_exist(self) -> None:
        self.assertEqual({name for name, _ in instructions()} - INSTRUCTIONS, set())
        for name, value in instructions():
            if name == "COPY" and not value.startswith("--from="):
                for source in value.split()[:-1]:
                    self.assertTrue((ROOT / source).exists(), source)
            if name == "RUN" and not value.startswith("["):
                self.assertTrue(os.access(ROOT / value.split()[0], os.X_OK), value)
                self.assertIn(value, ("tools/install-packages build", "tools/bundle --daemon /bundle"))

    def test_packages_need_only_what_was_copied_before(self) -> None:
        """tools/install-packages runs on nothing but the files of the first COPY."""
        (copied,) = [value.split()[:-1] for name, value in stages()[1][:3] if name == "COPY"]
        with tempfile.TemporaryDirectory() as folder:
            for source in copied:
                pathlib.Path(folder, source).parent.mkdir(exist_ok=True)
                shutil.copy(ROOT / source, pathlib.Path(folder, source))
            done = subprocess.run([f"{folder}/tools/install-packages", "--dry-run", "build", "test"], check=False,
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_context_leaves_out_what_builds_leave_behind(self) -> None:
        ignored = (ROOT / ".dockerignore").read_text().splitlines()
        self.assertIn("/build", ignored)
        self.assertNotIn("/.git", ignored)

    def test_the_user_is_the_one_of_the_manifests(self) -> None:
        (user,) = [value for name, value in stages()[-1] if name == "USER"]
        daemonset = yaml.safe_load((ROOT / "deploy/kubernetes/base/daemonset.yaml").read_text())
        context = daemonset["spec"]["template"]["spec"]["securityContext"]
        self.assertEqual(user, f"{context['runAsUser']}:{context['runAsGroup']}")


def confined(root: pathlib.Path, user: int, group: int) -> None:
    """In the child: `root` as a read-only root file system but for /run/tetrad, as `user`."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def mount(source: str, target: str, flags: int) -> None:
        check(libc.mount(source.encode(), target.encode(), None, ctypes.c_ulong(flags), None))

    check(libc.unshare(CLONE_NEWNS))
    mount("none", "/", MS_REC | MS_PRIVATE)
    mount(str(root), str(root), MS_BIND)
    mount(f"{root}/run/tetrad", f"{root}/run/tetrad", MS_BIND)
    mount("/proc", f"{root}/proc", MS_BIND | MS_REC)  # the loader finds the program's folder in it
    mount("none", str(root), MS_BIND | MS_REMOUNT | MS_RDONLY)
    os.chroot(root)
    os.chdir("/")
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)  # from root, so all capabilities go


class RuntimeStageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        if os.geteuid() != 0:
            raise unittest.SkipTest("only root can change the root file system")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tetrad-container-"))
        cls.addClassCleanup(shutil.rmtree, folder)
        folder.chmod(0o755)
        cls.root = folder / "root"
        stage = stages()[-1]
        (bundle_command,) = [value for name, value in stages()[1] if name == "RUN" and "bundle" in value]
        subprocess.run([ROOT / "tools/bundle", "--built", OPTIONS.built, *bundle_command.split()[1:-1],
                        folder / "bundle"], check=True, stdout=subprocess.DEVNULL)
        cls.base()
        for name, value in stage:
            if name == "COPY":
                source, target = value.removeprefix("--from=build ").split()
                assert source == bundle_command.split()[-1], value
                shutil.copytree(folder / "bundle", cls.root / target.lstrip("/"))
        cls.user, cls.group = (int(part) for (name, value) in stage if name == "USER" for part in value.split(":"))
        (cls.entry,) = [json.loads(value) for name, value in stage if name == "ENTRYPOINT"]
        cls.checks = [json.loads(value) for name, value in stage if name == "RUN"]
        cls.socket = cls.root / "run/tetrad/tetrad.sock"
        cls.socket.parent.mkdir(parents=True)
        os.chown(cls.socket.parent, cls.user, cls.group)

    @classmethod
    def base(cls) -> None:
        """A base image with glibc, and what a kernel gives a container."""
        said = subprocess.run(["ldd", OPTIONS.built / "bin/tetradd"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        (cls.root / "proc").mkdir(parents=True)
        loader = re.search(r"^\s+(/lib64/\S+)", said, re.MULTILINE).group(1)
        libc = pathlib.Path(re.search(r"libc\.so\.6 => (\S+)", said).group(1)).parent
        for name in GLIBC:
            target = cls.root / str(libc).lstrip("/") / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(libc / name, target)
        target = cls.root / loader.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(loader, target)

    def start(self, *command: str) -> subprocess.Popen:
        return subprocess.Popen(command, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True,
                                preexec_fn=lambda: confined(self.root, self.user, self.group))

    def run_in_it(self, *command: str) -> tuple[int, str]:
        process = self.start(*command)
        said, _ = process.communicate(timeout=30)
        return process.returncode, said

    def test_the_checks_of_the_build_pass(self) -> None:
        self.assertEqual([command[0] for command in self.checks],
                         ["/opt/tetrad/bin/tetradd", "/opt/tetrad/bin/tetradctl"])
        for command in self.checks:
            status, said = self.run_in_it(*command)
            self.assertEqual(status, 0, said)
            self.assertRegex(said, r"\d+\.\d+\.\d+")

    def test_the_checks_of_the_build_find_a_base_that_lacks_something(self) -> None:
        library = next((self.root / "opt/tetrad/lib").glob("libprotobuf.so.*"))
        library.rename(self.root / "hidden")
        try:
            status, said = self.run_in_it(*self.checks[0])
        finally:
            (self.root / "hidden").rename(library)
        self.assertNotEqual(status, 0)
        self.assertIn(library.name, said)

    def test_it_serves_from_a_read_only_root_as_the_user(self) -> None:
        daemon = self.start(*self.entry, "--device=cpu", "--http=127.0.0.1:0", "--lame-duck-seconds=0")
        try:
            deadline = time.monotonic() + 20
            while not self.socket.exists():
                self.assertIsNone(daemon.poll(), "it ended")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            status, said = self.run_in_it("/opt/tetrad/bin/tetradctl", "status")
            self.assertEqual(status, 0, said)
            self.assertIn(f"\nUid:\t{self.user}\t", pathlib.Path(f"/proc/{daemon.pid}/status").read_text())
            daemon.send_signal(signal.SIGTERM)
            said, _ = daemon.communicate(timeout=30)
            self.assertEqual(daemon.returncode, 0, said)
        finally:
            daemon.kill()
            daemon.wait()
        status, said = self.run_in_it(*self.entry, "--device=cpu", "--listen=unix:/opt/tetrad/socket")
        self.assertEqual(status, 69, "the root file system can be written to")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--built", required=True, type=pathlib.Path)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
