# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""What both clients do when the daemon, the connection or the credential is not what it was."""
import asyncio
import hashlib
import pathlib
import re
import signal
import subprocess
import time
import unittest

import numpy as np

import tetrad
from served import OPTIONS, Daemon, Folder, Proxy, main

QUICK = ("--lame-duck-seconds", "0", "--drain-seconds", "1")


async def awaited(client, name, *given, **named):
    """A call of either client; one of tetrad.Client is made on a thread."""
    method = getattr(client, name)
    if isinstance(client, tetrad.Client):
        return await asyncio.to_thread(method, *given, **named)
    return await method(*given, **named)


async def blocking(*given):
    return await asyncio.to_thread(tetrad.Client.connect, *given)


CONNECTS = {"asyncio": tetrad.aio.Client.connect, "blocking": blocking}


def both(test):
    """Runs `async def test(self, connect)` for each client."""
    def run(self):
        for name, connect in CONNECTS.items():
            with self.subTest(name):
                asyncio.run(test(self, connect))
    return run


def stand_still(daemon):
    """Stops the process, and returns when each of its threads has stopped."""
    daemon.process.send_signal(signal.SIGSTOP)
    tasks = pathlib.Path(f"/proc/{daemon.process.pid}/task")
    while any(stat.read_text().rpartition(")")[2].split()[0] != "T" for stat in tasks.glob("*/stat")):
        time.sleep(0.001)


def small_weights():
    return np.full((1, 8, 16), 0x22, np.uint8), np.full((1, 8, 2), 0x38, np.uint8)  # all 1


ONES = np.ones((2, 32), np.float16)  # times that: 32


class ReplacedDaemonTest(unittest.IsolatedAsyncioTestCase):
    async def test_calls_wait_for_the_next_daemon(self):
        folder, daemons = Folder(), []
        self.addCleanup(folder.remove)

        def start():
            daemons.append(Daemon(OPTIONS.tetradd, *QUICK, "--listen", folder.address()))
        start()
        try:
            options = tetrad.ClientOptions(attempts=100)
            clients = [await connect(folder.address(), options) for connect in CONNECTS.values()]
            await awaited(clients[0], "upload", "w", *small_weights())
            for client in clients:
                self.assertTrue(((await awaited(client, "execute", ONES, "w", [2])).output == 32).all())
            daemons[0].stop()
            for client in clients:
                with self.assertRaisesRegex(tetrad.Unavailable, f"^UNAVAILABLE: {folder.address()}: nobody accepts"):
                    await awaited(client, "execute", ONES, "w", [2], call=tetrad.CallOptions(deadline=0.3))
            patient = tetrad.CallOptions(deadline=60)
            # What never left is sent again, also where twice is not as once.
            calls = [asyncio.create_task(awaited(client, *call, call=patient)) for client in clients
                     for call in (("status",), ("execute", ONES, "w", [2]))]
            await asyncio.to_thread(start)
            for told, refused in (calls[:2], calls[2:]):
                self.assertEqual(((await told).state, (await told).weights), ("serving", 0))
                with self.assertRaises(tetrad.NotFound) as caught:
                    await refused
                self.assertEqual(caught.exception.reason, "WEIGHTS_NOT_FOUND")
            for client in clients:
                self.assertGreater(client.retries, 2)
                await awaited(client, "close")
        finally:
            daemons[-1].stop()


class RecoveryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Folder()
        cls.certificate, key = cls.folder.path / "crt.pem", cls.folder.path / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-keyout", key, "-out", cls.certificate], check=True, stderr=subprocess.DEVNULL)
        access = cls.folder.path / "access.toml"
        access.write_text('anonymous_unix = ["client", "operator"]\nanonymous_tcp = ["client"]\n'
                          '[[tokens]]\nname = "t"\ngroups = ["client"]\n'
                          f'sha256 = "{hashlib.sha256(b"new").hexdigest()}"\n')
        cls.daemon = Daemon(OPTIONS.tetradd, *QUICK, "--access", str(access), "--listen", "127.0.0.1:0",
                            "--tls-certificate", str(cls.certificate), "--tls-key", str(key))

    @classmethod
    def tearDownClass(cls):
        cls.daemon.process.send_signal(signal.SIGCONT)
        status = cls.daemon.stop()
        cls.folder.remove()
        assert status == 0, "the daemon did not end in order"

    @both
    async def test_nobody_there(self, connect):
        with self.assertRaisesRegex(tetrad.NotFound, "is the daemon running"):
            await connect("unix:/nowhere/at/all")
        with self.assertRaisesRegex(tetrad.Unavailable, "127.0.0.1:1: nobody accepts connections there"):
            await connect("127.0.0.1:1")
        with self.assertRaises(tetrad.FailedPrecondition):
            await connect(f"unix:{__file__}")

    @both
    async def test_deadlines(self, connect):
        client = await connect(self.daemon.address, tetrad.ClientOptions(deadline=0.3))
        stand_still(self.daemon)
        began = time.monotonic()
        with self.assertRaises(tetrad.DeadlineExceeded) as caught:
            await awaited(client, "status")
        self.assertIsInstance(caught.exception, TimeoutError)
        self.assertLess(time.monotonic() - began, 5)
        self.daemon.process.send_signal(signal.SIGCONT)
        self.assertEqual((await awaited(client, "status", call=tetrad.CallOptions(deadline=30))).state, "serving")
        await awaited(client, "close")

    @both
    async def test_an_upload_goes_on_where_it_broke(self, connect):
        path = self.folder.path / f"proxy-{connect.__name__}"
        proxy = Proxy(path, self.daemon.address[len("unix:"):], cut_after=6 << 20)
        self.addCleanup(proxy.close)
        n, k = 4096, 4096
        rng = np.random.default_rng(3)
        codes, scales = rng.integers(0, 256, (1, n, k // 2), np.uint8), np.full((1, n, k // 16), 0x30, np.uint8)
        total, told = codes.size + scales.size, []
        client = await connect(f"unix:{path}")
        weights = await awaited(client, "upload", "w", codes, scales, progress=lambda done, total: told.append(done))
        self.assertEqual((told[-1], told), (total, sorted(set(told))))
        self.assertEqual(proxy.connections, 2)
        # All of it again would be 6 MiB more than all of it.
        self.assertLess(proxy.sent, total + (4 << 20))
        rows = np.zeros((3, k), np.float16)
        rows[range(3), [0, 1, 4095]] = 1  # one-hot rows pick columns of weights
        got = (await awaited(client, "execute", rows, weights, [3], output_type="fp32")).output
        expected = tetrad.nvfp4.dequantize(tetrad.nvfp4.Quantized(codes[0], scales[0]))[:, [0, 1, 4095]].T
        np.testing.assert_array_equal(got, expected)
        await awaited(client, "close")

    @both
    async def test_a_key_goes_on_in_another_call(self, connect):
        client = await connect(self.daemon.address)
        codes, scales = np.full((1, 4096, 2048), 0x22, np.uint8), np.full((1, 4096, 256), 0x38, np.uint8)

        name, mine = f"kept-{connect.__name__}", f"key-{connect.__name__}"

        def gives_up(done, total):
            if done > 4 << 20:
                raise KeyboardInterrupt
        for key in ("", mine):
            with self.assertRaises(KeyboardInterrupt):
                await awaited(client, "upload", name, codes, scales, upload_key=key, progress=gives_up)
            # Under a key of its own nothing is left; under the caller's it is kept.
            kept = [each.sealed for each in await awaited(client, "weights") if each.name == name]
            self.assertEqual(kept, [False] if key else [])
        told = []
        await awaited(client, "upload", name, codes, scales, upload_key=mine,
                  progress=lambda done, total: told.append(done))
        self.assertGreater(told[0], 4 << 20)
        with self.assertRaises(tetrad.AlreadyExists):
            await awaited(client, "upload", name, codes, scales, [2.0], upload_key=mine)
        await awaited(client, "close")

    @both
    async def test_token_file_is_read_again(self, connect):
        file = self.folder.path / "token"
        file.write_text("old\n")
        client = await connect(self.daemon.address, tetrad.ClientOptions(token_file=str(file)))
        with self.assertRaises(tetrad.Unauthenticated) as caught:
            await awaited(client, "status")
        self.assertEqual((caught.exception.reason, client.retries), ("BAD_CREDENTIAL", 0))
        file.write_text("new\n")
        self.assertEqual((await awaited(client, "status")).state, "serving")
        self.assertEqual(client.retries, 1)
        with self.assertRaises(tetrad.PermissionDenied) as caught:
            await awaited(client, "drop", "w")
        self.assertEqual(caught.exception.reason, "NOT_ALLOWED")
        await awaited(client, "close")

    @both
    async def test_tls(self, connect):
        address = re.search(r"grpc=\S*,(127\.0\.0\.1:\d+)", self.daemon.log.read_text()).group(1)
        tls = tetrad.TlsOptions(root_certificates_file=str(self.certificate), server_name="localhost")
        client = await connect(address, tetrad.ClientOptions(tls=tls, token="new"))
        self.assertEqual((await awaited(client, "status")).state, "serving")
        await awaited(client, "close")
        for options in (tetrad.ClientOptions(tls=tetrad.TlsOptions(root_certificates_file=str(self.certificate),
                                                                   server_name="another")),
                        tetrad.ClientOptions(tls=tetrad.TlsOptions())):
            with self.assertRaisesRegex(tetrad.Unavailable, "refused the other's certificate"):
                await connect(address, options)
        with self.assertRaisesRegex(tetrad.InvalidArgument, "PEM"):
            await connect(address, tetrad.ClientOptions(tls=tetrad.TlsOptions(root_certificates_file=__file__)))

    def test_a_cancelled_task_ends_its_call(self):
        async def cancelled():
            async with await tetrad.aio.Client.connect(self.daemon.address) as client:
                stand_still(self.daemon)
                task = asyncio.create_task(client.status())
                await asyncio.sleep(0.05)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.daemon.process.send_signal(signal.SIGCONT)
                self.assertEqual((await client.status()).state, "serving")
        asyncio.run(cancelled())


if __name__ == "__main__":
    main()
