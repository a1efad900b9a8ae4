# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The installed package under mypy --strict, and a user's program against its types."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = """
import asyncio
import numpy as np
import tetrad

def blocking(client: tetrad.Client) -> float:
    with client.prepare("up", [1, 2], activation_type="fp16") as plan:
        result: tetrad.Result = plan.execute(np.zeros((3, 32), np.float16))
        reveal_type(client.status().state)
        reveal_type([answer.id for answer in client.execute_stream([])])
        return result.timings.device_us

async def awaited(client: tetrad.aio.Client) -> str:
    reveal_type(await client.weights())
    async for answer in client.execute_stream([]):
        reveal_type(answer.result().kernel)
    return (await client.execute(1, "up", [1])).weights

def wrong(client: tetrad.Client) -> None:
    client.drop(3)
    client.excute
"""
TOLD = ['note: Revealed type is "builtins.str"', 'note: Revealed type is "builtins.list[builtins.int]"',
        'note: Revealed type is "builtins.list[tetrad._operands.Weights]"', 'note: Revealed type is "builtins.str"',
        'error: Argument 1 to "drop" of "Client" has incompatible type "int"; expected "Union[Weights, str]"',
        'error: "Client" has no attribute "excute"; maybe "execute"?']


class TypesTest(unittest.TestCase):
    def test_package_and_program(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program.py")
            program.write_text(PROGRAM)
            config = pathlib.Path(folder, "pyproject.toml")
            config.write_text((HERE.parent / "pyproject.toml").read_text().replace('packages = ["tetrad"]', ""))
            # One run: most of its time is spent on NumPy's types.
            told = subprocess.run(
                [sys.executable, "-m", "mypy", "--config-file", config, "--no-error-summary", "--hide-error-codes",
                 "--cache-dir", folder, "-m", "program", "-p", "tetrad"],
                cwd=folder, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        self.assertEqual([line.partition(": ")[2] for line in told.splitlines()], TOLD, told)


if __name__ == "__main__":
    unittest.main()
