# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Feeds tools/check-layout and tools/check-headers small trees: one that is
right, and for each rule one that breaks it."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent
LICENCE = "// SPDX-FileCopyrightText: The Tetrad Authors\n// SPDX-License-Identifier: Apache-2.0\n"
HASHED = LICENCE.replace("//", "#")
DOCS = "docs"  # apart from the names of pages: those of this file do not exist
HEADER = LICENCE + "#pragma once\n"

GOOD = {
    "tools/dependencies.tsv": "abseil\tlibabsl-dev\t1\tabsl\tbuild\twhy\n",
    "CMakeLists.txt": HASHED + "tetrad_find_package(absl CONFIG)\nfind_package(absl)\n",
    "kernels/CMakeLists.txt": HASHED + "tetrad_library(k SOURCES a.cc)\ntetrad_test(t SOURCES cpu/b_test.cc)\n",
    "kernels/a.h": HEADER + "#include <vector>\nstd::vector<int> A();\n",
    "kernels/a.cc": LICENCE + '#include "kernels/a.h"\n',
    "kernels/cpu/b_test.cc": LICENCE + '#include "tests/fixture.h"\n',
    "engine/e.h": HEADER + '#include "kernels/a.h"\n#include "absl/status/status.h"\n',
    "server/s.h": HEADER + '#include "engine/e.h"\n#include "tetrad/v1/gemm.pb.h"\n#include <grpcpp/server.h>\n',
    "clients/c.h": HEADER + '#include "kernels/a.h"\n#include "tetrad/v1/gemm.pb.h"\n',
    "tests/fixture.h": HEADER + '#include "server/s.h"\n#include "engine/e.h"\n',
}

# (name of the case, files that replace or join GOOD's, what must be reported)
VIOLATIONS = [
    ("kernels include engine", {"kernels/a.h": HEADER + '#include "engine/e.h"\n'},
     "kernels/a.h:4: kernels/ must not include engine/"),
    ("engine includes server", {"engine/e.h": HEADER + '#include  "server/s.h"\n'},
     "engine/e.h:4: engine/ must not include server/"),
    ("server includes clients", {"server/s.h": HEADER + '#include "clients/c.h"\n'},
     "server/s.h:4: server/ must not include clients/"),
    ("clients include engine", {"clients/c.h": HEADER + '#include "engine/e.h"\n'},
     "clients/c.h:4: clients/ must not include engine/"),
    ("product includes tests", {"engine/e.h": HEADER + '#include "tests/fixture.h"\n'},
     "engine/e.h:4: engine/ must not include tests/"),
    ("engine knows gRPC", {"engine/e.h": HEADER + "#include <grpcpp/server.h>\n"},
     "engine/e.h:4: engine/ is the product without a network"),
    ("engine knows messages", {"engine/e.h": HEADER + '# include "tetrad/v1/gemm.pb.h"\n'},
     "engine/e.h:4: engine/ is the product without a network"),
    ("kernels know protobuf", {"kernels/a.h": HEADER + "#include <google/protobuf/message.h>\n"},
     "kernels/a.h:4: kernels/ knows no RPC"),
    ("engine knows Prometheus", {"engine/e.h": HEADER + "#include <prometheus/counter.h>\n"},
     "engine/e.h:4: engine/ is the product without a network"),
    ("server calls CUDA", {"server/s.h": HEADER + "#include <cuda_runtime.h>\n"},
     "server/s.h:4: server/ contains no CUDA call"),
    ("keeper calls CUDA", {"engine/keeper/k.h": HEADER + "#include <cuda.h>\n"},
     "engine/keeper/k.h:4: the keeper must live without CUDA"),
    ("device code leaks", {"clients/c.h": HEADER + '#include "kernels/ptx.cuh"\n'},
     "clients/c.h:4: device code stays in kernels/"),
    ("relative include", {"kernels/a.cc": LICENCE + '#include "a.h"\n'},
     "kernels/a.cc:3: include paths start at the root of the tree"),
    ("no licence", {"kernels/a.cc": '#include "kernels/a.h"\n'},
     "kernels/a.cc:1: does not begin with the two SPDX lines"),
    ("script without licence", {"tools/run": "#!/usr/bin/env bash\ntrue\n"},
     "tools/run:1: does not begin with the two SPDX lines"),
    ("no guard", {"kernels/a.h": LICENCE}, "kernels/a.h:1: header without #pragma once"),
    ("too long", {"kernels/a.cc": LICENCE + "\n" * 599}, "kernels/a.cc:601: 601 lines, the limit is 600"),
    ("vague name", {"engine/utils/x.h": HEADER}, "engine/utils/x.h:1: the name 'utils' says nothing"),
    ("promise", {f"{DOCS}/x.md": "TO" + "DO: write\n"}, f"{DOCS}/x.md:1: 'TO" + "DO'"),
    ("machine path", {f"{DOCS}/x.md": "see /ho" + "me/me/notes\n"}, f"{DOCS}/x.md:1: '/ho" + "me/m'"),
    ("disabled test", {"kernels/cpu/b_test.cc": LICENCE + "TEST(A, DISABLED" + "_B) {}\n"},
     "kernels/cpu/b_test.cc:3: 'DISABLED" + "_'"),
    ("test nobody builds", {"engine/e_test.cc": LICENCE},
     "engine/e_test.cc:1: no CMakeLists.txt of its folder or above names this source"),
    ("similar name is not the name", {"server/a.cc": LICENCE, "server/CMakeLists.txt": HASHED + "aa.cc a.cc.in a_test.cc\n"},
     "server/a.cc:1: no CMakeLists.txt of its folder or above names this source"),
    ("loop without the name", {"server/a_test.cc": LICENCE, "server/b_test.cc": LICENCE,
                               "server/CMakeLists.txt": HASHED + "foreach(name IN ITEMS b)\n ${name}_test.cc\n"},
     "server/a_test.cc:1: no CMakeLists.txt of its folder or above names this source"),
    ("dead link", {f"{DOCS}/x.md": "[here](../clients/c.h#top) [w](https://x.y) [not](gone.md)\n"},
     f"{DOCS}/x.md:1: {DOCS}/gone.md does not exist"),
    ("page that is not there", {"kernels/a.cc": LICENCE + f"// why: {DOCS}/x.md, how: {DOCS}/y.md\n",
                                f"{DOCS}/x.md": "x\n"},
     f"kernels/a.cc:3: {DOCS}/y.md does not exist"),
    ("unknown package", {"CMakeLists.txt": HASHED + "find_package(Boost REQUIRED)\n"},
     "CMakeLists.txt:3: Boost is not in tools/dependencies.tsv"),
    ("unknown program", {"cmake/x.cmake": HASHED + "find_program(P NAMES jq)\n"},
     "cmake/x.cmake:3: jq is not in tools/dependencies.tsv"),
]


def check(tool, *arguments):
    result = subprocess.run([sys.executable, str(TOOLS / tool), *map(str, arguments)], check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return result.returncode, result.stdout.decode()


class Tree(unittest.TestCase):
    def setUp(self):
        # A space in the path, on purpose.
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="a tree "))
        self.addCleanup(shutil.rmtree, self.root)

    def write(self, files):
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


class LayoutTest(Tree):
    def test_a_right_tree_passes_and_lengths_are_printed(self):
        self.write(GOOD)
        status, said = check("check-layout", self.root)
        self.assertEqual(status, 0, said)
        self.assertIn("7 files, median 5 lines", said)
        self.assertIn("longest server/s.h 6,", said)
        self.assertIn("layout: 0 violations", said)

    def test_each_violation_is_reported_and_nothing_else(self):
        for name, files, expected in VIOLATIONS:
            with self.subTest(name):
                self.setUp()
                self.write({**GOOD, **files})
                status, said = check("check-layout", self.root)
                self.assertEqual(status, 1, said)
                self.assertIn(expected, said)
                self.assertIn("layout: 1 violations", said)

    def test_build_folders_are_not_looked_at(self):
        self.write({**GOOD, "build/release/x.cc": "", "dist/y.h": ""})
        self.assertEqual(check("check-layout", self.root)[0], 0)

    def test_ignored_files_are_not_looked_at(self):
        self.write({**GOOD, ".gitignore": "/scratch/\n", "scratch/x.cc": ""})
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        self.assertEqual(check("check-layout", self.root)[0], 0)


class HeadersTest(Tree):
    def setUp(self):
        super().setUp()
        self.write({"kernels/a.h": "#pragma once\n#include <vector>\ninline std::vector<int> a;\n",
                    "kernels/b.h": '#pragma once\n#include "kernels/a.h"\ninline auto b = a;\n',
                    "kernels/a.cc": "#include <vector>\n", "server/s.h": "#pragma once\n"})
        entry = {"directory": str(self.root / "build"), "file": str(self.root / "kernels/a.cc"),
                 "arguments": ["c++", "-std=c++20", "-Wall", "-Werror", f"-I{self.root}", "-o", "a.o", "-c",
                               str(self.root / "kernels/a.cc")]}
        self.write({"build/compile_commands.json": json.dumps([entry])})

    def check(self):
        return check("check-headers", self.root / "build", self.root)

    def test_right_headers_are_compiled_once(self):
        self.assertEqual(self.check(), (0, "headers: 2 alone, 0 of them by the build, 2 compiled now, 0 failed, "
                                           "1 in parts that this build leaves out\n"))
        self.assertIn("0 compiled now, 0 failed", self.check()[1])

    def test_what_a_source_includes_first_the_build_has_compiled_alone(self):
        self.write({"kernels/a.cc": '#include "kernels/b.h"\n#include "kernels/a.h"\n'})
        self.assertIn("2 alone, 1 of them by the build, 1 compiled now, 0 failed", self.check()[1])
        self.write({"kernels/b.h": "inline int b = 1;\n"})
        self.assertIn("kernels/b.h:1: has no include guard", self.check()[1])

    def test_what_only_a_source_of_a_unity_build_includes_first_is_compiled(self):
        self.write({"kernels/z.cc": '#include "kernels/a.h"\n'})
        self.assertIn("2 alone, 0 of them by the build, 2 compiled now", self.check()[1])

    def test_a_changed_header_is_compiled_again_with_those_that_include_it(self):
        self.check()
        self.write({"kernels/a.h": "#pragma once\ninline int a = 1;\n"})
        self.assertIn("2 compiled now, 0 failed", self.check()[1])
        self.write({"kernels/b.h": "#pragma once\n"})
        self.assertIn("1 compiled now, 0 failed", self.check()[1])

    def test_a_header_that_leans_on_another_is_reported_every_time(self):
        self.write({"kernels/b.h": "#pragma once\ninline std::vector<int> b;\n"})
        for _ in range(2):
            status, said = self.check()
            self.assertEqual(status, 1)
            self.assertIn("kernels/b.h:1: does not compile alone", said)

    def test_a_header_that_cannot_be_included_twice_is_reported(self):
        self.write({"kernels/b.h": "inline int b = 1;\n"})
        self.assertIn("kernels/b.h:1: does not compile alone", self.check()[1])


if __name__ == "__main__":
    unittest.main()
