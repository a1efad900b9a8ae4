# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Three daemons on three ports and the client of fleet.py: requests spread over them, one daemon is drained under
load and no request is lost, weights are placed without a directory and survive a daemon that goes.

    balance_test.py --tetradd PROGRAM --grpc-protos FOLDER
"""
import argparse
import collections
import concurrent.futures
import pathlib
import re
import signal
import sys
import threading
import time
import unittest
import urllib.request

import grpc

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests/foreign")]
from daemon import Daemon  # noqa: E402
from every_method_test import execute_request, expected_output, upload_messages  # noqa: E402
from fleet import Fleet, owners, spreading_channel  # noqa: E402
from reflected import Reflected, connect, method_callable  # noqa: E402

OPTIONS = argparse.Namespace()
DAEMONS, CLIENTS, REQUESTS = 3, 4, 120
LAME_DUCK_SECONDS = 3


def started() -> Daemon:
    daemon = Daemon(OPTIONS.tetradd, "--listen", "127.0.0.1:0", "--lame-duck-seconds", str(LAME_DUCK_SECONDS),
                    "--threads", "1")
    (line,) = [line for line in daemon.log.read_text().splitlines() if "event=ready" in line]
    daemon.tcp = re.search(r"grpc=\S*?(127\.0\.0\.1:\d+)", line).group(1)
    daemon.http = re.search(r"http=(\S+)", line).group(1)
    return daemon


def executed(daemon: Daemon) -> int:
    """Execute calls that this daemon answered well, as its metrics have it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{daemon.http}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    return int(re.search(r'^tetrad_requests_total\{(?=.*"tetrad.v1.Gemm/Execute")(?=.*code="OK").*\} (\d+)', page,
                         re.MULTILINE).group(1))


class PlacementTest(unittest.TestCase):
    NAMES = [f"layer.{i}/experts" for i in range(2000)]

    def test_everybody_computes_the_same_and_each_daemon_gets_its_part(self) -> None:
        daemons = [f"node-{i}" for i in range(8)]
        first = collections.Counter(owners(name, daemons)[0] for name in self.NAMES)
        self.assertEqual(set(first), set(daemons))
        # 2000 / 8 = 250, standard deviation 15: within five of them.
        self.assertTrue(all(abs(count - 250) < 75 for count in first.values()), first)
        for name in self.NAMES[:50]:
            self.assertEqual(owners(name, reversed(daemons), 3), owners(name, daemons, 3))

    def test_only_what_must_move_moves(self) -> None:
        daemons = [f"node-{i}" for i in range(8)]
        moved = 0
        for name in self.NAMES:
            before, after = owners(name, daemons, 2), owners(name, daemons[:-1], 2)
            self.assertEqual(len(set(before)), 2)
            self.assertEqual([each for each in before if each != daemons[-1]], after[:2 - (daemons[-1] in before)])
            moved += before != after
        self.assertTrue(400 < moved < 600, moved)  # a quarter: two copies on eight daemons


class BalanceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        with concurrent.futures.ThreadPoolExecutor() as threads:
            cls.daemons = [future.result() for future in [threads.submit(started) for _ in range(DAEMONS)]]
        for daemon in cls.daemons:
            cls.addClassCleanup(daemon.stop)
            cls.addClassCleanup(daemon.process.kill)  # before that: only the one that a test drains has to end well
        channel = connect(cls.daemons[0].address)
        cls.addClassCleanup(channel.close)
        cls.api = Reflected(channel, OPTIONS.grpc_protos)

    def call(self, channel: grpc.Channel, name: str, request: object) -> object:
        service, method = f"tetrad.v1.{name}".split("/")
        method = self.api.schema.service(service).methods_by_name[method]
        return method_callable(channel, self.api.schema, method)(request, timeout=30)

    def upload(self, daemon: Daemon, weights: str) -> None:
        with connect(daemon.tcp) as channel:
            self.call(channel, "Weights/Upload", upload_messages(self.api, weights))

    def execute(self, channel: grpc.Channel, weights: str) -> bool:
        answer = self.call(channel, "Gemm/Execute", execute_request(self.api, weights))
        return answer.output == expected_output()

    def wait_for_all(self, channel: grpc.Channel, weights: str, daemons: list[Daemon]) -> None:
        """A channel begins with the first connection it has: requests until every daemon got one."""
        before = [executed(daemon) for daemon in daemons]
        deadline = time.monotonic() + 20
        while any(executed(daemon) == count for daemon, count in zip(daemons, before)):
            self.assertLess(time.monotonic(), deadline, "a daemon gets no requests")
            self.execute(channel, weights)

    def test_a_weights_are_placed_on_their_owners_and_survive_one(self) -> None:
        fleet = Fleet({f"node-{i}": daemon.tcp for i, daemon in enumerate(self.daemons)}, copies=2)
        self.addCleanup(fleet.close)
        daemon_of = dict(zip(fleet.daemons, self.daemons))
        names = ["up", "gate", "q", "k", "o"]
        for name in names:
            for owner in fleet.owners(name):
                self.upload(daemon_of[owner], name)
        self.assertEqual(len({tuple(sorted(fleet.owners(name))) for name in names}), 3, "all pairs are there")
        for name in names:
            for _ in range(3):
                self.assertTrue(self.execute(fleet.channel(name), name))
        # A fleet that lost a daemon: whatever had a copy there has another, which is the first choice now.
        smaller = Fleet({name: address for name, address in fleet.daemons.items() if name != "node-2"}, copies=1)
        self.addCleanup(smaller.close)
        for name in names:
            self.assertTrue(self.execute(smaller.channel(name), name))

    def test_b_requests_spread_and_a_drain_loses_none(self) -> None:
        for daemon in self.daemons:
            self.upload(daemon, "everywhere")
        channel = spreading_channel("ipv4:" + ",".join(daemon.tcp for daemon in self.daemons))
        self.addCleanup(channel.close)
        self.wait_for_all(channel, "everywhere", self.daemons)

        before = [executed(daemon) for daemon in self.daemons]
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            right = list(clients.map(lambda _: self.execute(channel, "everywhere"), range(REQUESTS)))
        self.assertTrue(all(right))
        shares = [executed(daemon) - count for daemon, count in zip(self.daemons, before)]
        self.assertEqual(sum(shares), REQUESTS)
        for share in shares:  # in turn, so all the same but for who was asked last
            self.assertAlmostEqual(share, REQUESTS / DAEMONS, delta=CLIENTS)

        drained, *rest = self.daemons
        over = threading.Event()

        def client(_: int) -> tuple[int, int]:
            done = wrong = 0
            while not over.is_set():
                wrong += not self.execute(channel, "everywhere")
                done += 1
            return done, wrong

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            running = [clients.submit(client, i) for i in range(CLIENTS)]
            try:
                drained.process.send_signal(signal.SIGTERM)
                # It says at once that it drains and would go on taking requests; it is asked no more.
                time.sleep(LAME_DUCK_SECONDS / 3)
                first = executed(drained), sum(map(executed, rest))
                time.sleep(LAME_DUCK_SECONDS / 3)
                second = executed(drained), sum(map(executed, rest))
                self.assertEqual(drained.process.wait(timeout=60), 0)
                counts = [executed(daemon) for daemon in rest]
                while any(executed(daemon) - count < 10 for daemon, count in zip(rest, counts)):
                    time.sleep(0.02)
            finally:
                over.set()
            outcomes = [future.result() for future in running]  # raises what a request ended with
        self.assertEqual([wrong for _, wrong in outcomes], [0] * CLIENTS)
        self.assertIn("calls_cut_off=0", drained.log.read_text())
        self.assertEqual(second[0], first[0], "it was still asked")
        self.assertGreater(second[1], first[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tetradd", required=True)
    parser.add_argument("--grpc-protos", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
