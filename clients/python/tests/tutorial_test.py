# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs docs/python.md: its daemon with its flags, its Python blocks one after the other in
one namespace. What a block prints must be the text block behind it."""
import contextlib
import io
import pathlib
import re
import shlex
import unittest

from served import OPTIONS, Daemon, Folder, main

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/python.md"
SOCKET = "unix:/tmp/tetrad.sock"


class TutorialTest(unittest.TestCase):
    def test_every_block(self):
        text = PAGE.read_text()
        blocks = [(text.count("\n", 0, match.start()) + 1, match[1], match[2])
                  for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)]
        (command,) = [body for _, kind, body in blocks if kind == "sh" and "bin/tetradd" in body]
        folder = Folder()
        self.addCleanup(folder.remove)
        words = shlex.split(command.replace(SOCKET, folder.address()).replace("tests/checkpoints/",
                                                                              f"{ROOT}/tests/checkpoints/"))
        pairs = dict(zip(words[1::2], words[2::2]))
        # These two the fixture says itself; it listens on a socket of its own, too.
        self.assertEqual((pairs.pop("--device"), pairs.pop("--http")), ("cpu", "off"))
        daemon = Daemon(OPTIONS.tetradd, "--lame-duck-seconds", "0", *(word for pair in pairs.items() for word in pair))
        self.addCleanup(daemon.stop)
        namespace, ran = {}, 0
        for (line, kind, body), (_, after, expected) in zip(blocks, [*blocks[1:], (0, "", "")]):
            if kind != "python":
                continue
            printed = io.StringIO()
            code = compile("\n" * line + body.replace(SOCKET, folder.address()), str(PAGE), "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, namespace)
            ran += 1
            with self.subTest(line=line):
                self.assertEqual(printed.getvalue(), expected if after == "text" else "")
        self.assertEqual(ran, text.count("```python"))
        self.assertGreater(ran, 8)


if __name__ == "__main__":
    main()
