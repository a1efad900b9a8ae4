# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests with a daemon have in common: the daemon, and a way to break connections."""
import argparse
import pathlib
import shutil
import socket
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/foreign"))
from daemon import Daemon  # noqa: E402

__all__ = ["Daemon", "Folder", "OPTIONS", "Proxy", "main"]
OPTIONS = argparse.Namespace()


class Folder:
    """A temporary folder for sockets and files."""

    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="tetrad-python-"))

    def address(self, name="socket"):
        return f"unix:{self.path / name}"

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


class Proxy:
    """Hands bytes on between a socket of its own and a daemon's. Its first connection is cut when the client
    has sent `cut_after` bytes; `sent` counts what clients sent over all connections."""

    def __init__(self, path, daemon_path, cut_after):
        self.sent = 0
        self.connections = 0
        self._cut_after = cut_after
        self._daemon_path = daemon_path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            daemon = socket.socket(socket.AF_UNIX)
            daemon.connect(self._daemon_path)
            cut = self._cut_after if self.connections == 1 else None
            threading.Thread(target=self._pump, args=(client, daemon, cut, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(daemon, client, None, False), daemon=True).start()

    def _pump(self, source, target, cut, counted):
        done = 0
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
                done += len(data)
                if counted:
                    self.sent += len(data)
                if cut is not None and done >= cut:
                    break
        except OSError:
            pass
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self._listener.close()


def main(*flags):
    parser = argparse.ArgumentParser()
    parser.add_argument("--tetradd", required=True)
    for flag in flags:
        parser.add_argument(flag, required=True)
    _, rest = parser.parse_known_args(namespace=OPTIONS)
    unittest.main(argv=sys.argv[:1] + rest)
