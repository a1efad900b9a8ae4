# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""A tetradd process of its own, in a temporary folder, for one test."""
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time


class Daemon:
    def __init__(self, program, *flags):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tetrad-foreign-"))
        self.log = self.folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [program, "--device", "cpu", "--listen", self.address, "--http", "127.0.0.1:0", *flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while b"event=ready" not in self.log.read_bytes():
            if self.process.poll() is not None:
                raise RuntimeError(self.log.read_text())
            time.sleep(0.01)

    @property
    def address(self):
        return f"unix:{self.folder}/socket"

    def stop(self):
        """The exit status of an orderly end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=60)
        finally:
            self.process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
