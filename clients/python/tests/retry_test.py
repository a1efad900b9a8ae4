# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""When calls are repeated, without any daemon: time and chance are injected."""
import io
import os
import pathlib
import re
import sys
import unittest
from unittest import mock

import tetrad
from tetrad import _flows, _progress, _retry
from tetrad._options import DEFAULT_CALL, Endpoint
from tetrad._retry import CallRetries, Repeat, Resumption, RetryBudget

CPP_RULES = pathlib.Path(__file__).resolve().parents[2] / "cpp/retry.cc"
# Names of the C++ enumeration where one method has two.
VARIANTS = {"SUBMIT_WITH_KEY": "SubmitWithKey", "WAIT_AND_FORGET": "WaitAndForget"}


class RulesTest(unittest.TestCase):
    def test_rules_are_those_of_the_cpp_client(self):
        cpp = {rpc: (method, Repeat[re.sub(r"(?<!^)([A-Z])", r"_\1", repeat).upper()])
               for rpc, method, repeat in re.findall(r'\{Rpc::k(\w+), "tetrad\.v1\.([\w.]+)", k(\w+)\}',
                                                     CPP_RULES.read_text())}
        self.assertGreater(len(cpp), 25)
        ours = {name: value for name, value in vars(_retry).items() if isinstance(value, _retry.Rpc)}
        self.assertGreater(len(ours), 10)
        for name, rpc in ours.items():
            known = VARIANTS.get(name, name.title().replace("_", ""))
            self.assertEqual(cpp[known], (f"{rpc.service}.{rpc.method}", rpc.repeat), name)

    def test_each_method_has_the_messages_of_the_schema(self):
        for name, rpc in vars(_retry).items():
            if isinstance(rpc, _retry.Rpc):
                file = rpc.request.DESCRIPTOR.file
                method = file.services_by_name[rpc.service].methods_by_name[rpc.method]
                self.assertEqual((method.input_type, method.output_type),
                                 (rpc.request.DESCRIPTOR, rpc.response.DESCRIPTOR), name)


class CallRetriesTest(unittest.TestCase):
    def after(self, repeat, error, sent, **times):
        return CallRetries(repeat, times.get("attempts", 4), 100.0).after(error, sent, times.get("now", 0.0), 0.0)

    def test_what_is_repeated(self):
        gone = tetrad.Unavailable("gone")
        draining = tetrad.Unavailable("draining", reason="DRAINING")
        full = tetrad.ResourceExhausted("full", retry_delay=0.5)
        large = tetrad.ResourceExhausted("a message too large")
        never, refused, always = Repeat.NEVER, Repeat.IF_REFUSED, Repeat.ALWAYS
        for repeat, error, sent, again in (
                (never, gone, False, False), (never, full, True, False),
                (refused, gone, True, False), (refused, gone, False, True), (refused, draining, True, True),
                (refused, full, True, True), (refused, large, True, False),
                (always, gone, True, True), (always, full, True, True), (always, large, True, False),
                (always, tetrad.InvalidArgument("no"), True, False), (always, tetrad.DeadlineExceeded("no"), True, False)):
            with self.subTest(repeat=repeat, error=error, sent=sent):
                self.assertEqual(self.after(repeat, error, sent) is not None, again)

    def test_pauses_double_and_the_daemons_delay_is_the_least(self):
        tries = CallRetries(Repeat.ALWAYS, 9, 1e9)
        pauses = [tries.after(tetrad.Unavailable("gone"), True, 0.0, 0.0) for _ in range(8)]
        self.assertEqual(pauses, [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5])
        self.assertIsNone(tries.after(tetrad.Unavailable("gone"), True, 0.0, 0.0))
        self.assertAlmostEqual(CallRetries(Repeat.ALWAYS, 2, 1e9).after(
            tetrad.ResourceExhausted("full", retry_delay=3), True, 0.0, 0.5), 3.3)

    def test_no_pause_beyond_the_deadline(self):
        self.assertIsNone(self.after(Repeat.ALWAYS, tetrad.Unavailable("gone"), True, now=99.96))

    def test_budget(self):
        budget = RetryBudget()
        self.assertEqual(sum(budget.spend(0.0) for _ in range(150)), 100)
        self.assertEqual(sum(budget.spend(1.0) for _ in range(50)), 10)

    def test_resumption_needs_patience_and_gets_it_anew(self):
        gone = tetrad.Unavailable("gone")
        resumption = Resumption(True, 1.0, 1000.0, 0.0)
        self.assertEqual([resumption.again(gone, 0.0, 1.0) for _ in range(3)], [0.05, 0.1, 0.2])
        self.assertIsNone(resumption.again(gone, 0.9, 1.0))
        resumption.reached(10, 0.9)
        self.assertEqual(resumption.again(gone, 1.0, 1.0), 0.05)
        self.assertIsNone(resumption.again(tetrad.Aborted("TAKEN_OVER"), 1.0, 1.0))
        self.assertIsNone(Resumption(False, 9.0, 1000.0, 0.0).again(gone, 0.0, 1.0))


class WaitTest(unittest.TestCase):
    def test_one_that_is_repeated_waits_for_what_is_left(self):
        now = [1000.0]
        ticket = _flows.Ticket("t", False, None, None)
        with mock.patch("time.monotonic", lambda: now[0]):
            flow = _flows.Connection("127.0.0.1:1", tetrad.ClientOptions()).wait(ticket, 200.0, False, DEFAULT_CALL)
            self.assertIsInstance(next(flow), _flows.AwaitConnection)
            first = flow.send(None)
            self.assertEqual(first.requests.timeout_seconds, 200.0)
            now[0] += 30
            self.assertIsInstance(flow.throw(tetrad.Unavailable("the connection broke")), _flows.Pause)
            now[0] += 1
            self.assertIsInstance(flow.send(None), _flows.AwaitConnection)
            second = flow.send(None)
            self.assertEqual(second.requests.timeout_seconds, 169.0)
            self.assertEqual(second.deadline, first.deadline)
            flow.close()


class EndpointTest(unittest.TestCase):
    def test_what_is_taken(self):
        for text, target in (("unix:/a/b", "unix:/a/b"), ("unix:a", "unix:a"), ("h:1", "dns:///h:1"),
                             ("[::1]:8472", "dns:///[::1]:8472")):
            self.assertEqual(Endpoint.parse(text).target, target)

    def test_what_is_refused(self):
        for text in ("", "unix:", "unix:///a", "unix:" + "a" * 108, "http://h:1", "h", "h:", "h:0", "h:65536", "h:x",
                     "::1:80", ":1", "a b:1"):
            with self.subTest(text), self.assertRaises(tetrad.InvalidArgument):
                Endpoint.parse(text)

    def test_tokens_stay_on_this_machine_without_tls(self):
        options = tetrad.ClientOptions(token="secret", connect_timeout=0.1)
        with self.assertRaisesRegex(tetrad.FailedPrecondition, "in the clear"):
            tetrad.Client.connect("192.0.2.1:9", options)
        self.assertTrue(Endpoint.parse("127.3.2.1:9").stays_here())
        self.assertFalse(Endpoint.parse("128.0.0.1:9").stays_here())

    def test_options_are_checked(self):
        for make in (lambda: tetrad.CallOptions(request_id="a b"), lambda: tetrad.CallOptions(deadline=0),
                     lambda: tetrad.Client.connect("h:1", tetrad.ClientOptions(deadline=-1)),
                     lambda: tetrad.Client.connect("h:1", tetrad.ClientOptions(token="a", token_file="b")),
                     lambda: tetrad.Client.connect("localhost:1", tetrad.ClientOptions(token="a b"))):
            with self.assertRaises(tetrad.InvalidArgument):
                make()


class ProgressTest(unittest.TestCase):
    def test_bar_on_a_terminal_only(self):
        with mock.patch.object(sys, "stderr", io.StringIO()) as out:
            report = _progress.reporter(True, "up")
            report(5, 10)
            self.assertEqual(out.getvalue(), "")
        leader, follower = os.openpty()
        with os.fdopen(follower, "w") as terminal, mock.patch.object(sys, "stderr", terminal):
            report = _progress.reporter(True, "up")
            report(5_000_000, 10_000_000)
            report(10_000_000, 10_000_000)
        shown = os.read(leader, 4096).decode()
        os.close(leader)
        self.assertRegex(shown, r"^\rup \[#{15} {15}\]  50 %  5\.0 of 10\.0 MB, ")
        self.assertRegex(shown, r"\rup \[#{30}\] 100 %  10\.0 of 10\.0 MB, \d+ MB/s\x1b\[K\r?\n$")

    def test_bar_is_not_drawn_more_often_than_seen(self):
        out, now = io.StringIO(), [0.0]
        bar = _progress.Bar("up", out, lambda: now[0])
        for i in range(100):
            now[0] = i * 0.01
            bar(i, 100)
        self.assertEqual(out.getvalue().count("\r"), 10)


if __name__ == "__main__":
    unittest.main()
