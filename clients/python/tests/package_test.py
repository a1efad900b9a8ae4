# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The wheel and what it installs. Run by the interpreter of make_environment.py."""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

import tetrad

HERE = pathlib.Path(__file__).resolve().parent
OPTIONS = argparse.Namespace()


def wheel_names(wheel):
    return sorted(name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("tetrad/"))


class PackageTest(unittest.TestCase):
    def test_it_is_the_installed_one_that_is_tested(self):
        self.assertTrue(tetrad.__file__.startswith(sys.prefix + "/"), tetrad.__file__)

    def test_version_is_the_projects(self):
        self.assertEqual(tetrad.__version__, OPTIONS.version)
        daemon = subprocess.run([OPTIONS.tetradd, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual(re.match(r"tetradd (\S+)", daemon).group(1), tetrad.__version__)

    def test_wheel_has_schema_types_and_sources(self):
        (wheel,) = pathlib.Path(sys.prefix, "dist").glob("*.whl")
        names = wheel_names(wheel)
        for path in (HERE.parents[2] / "proto/tetrad/v1").glob("*.proto"):
            self.assertIn(f"tetrad/v1/{path.stem}_pb2.py", names)
            self.assertIn(f"tetrad/v1/{path.stem}_pb2.pyi", names)
        sources = {f"tetrad/{path.name}" for path in (HERE.parent / "src/tetrad").iterdir() if path.is_file()}
        self.assertLessEqual(sources | {"tetrad/py.typed", "tetrad/error_details.binpb"}, set(names))

    def test_source_archive_makes_the_same_wheel(self):
        sys.path.insert(0, str(HERE))
        from make_environment import build_wheel, copy_sources
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            package = copy_sources(folder / "copy")
            subprocess.run([sys.executable, "setup.py", "-q", "sdist", "--dist-dir", folder / "sdist"], cwd=package,
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            (archive,) = (folder / "sdist").iterdir()
            made = wheel_names(build_wheel(archive, folder / "wheel"))
        (installed,) = pathlib.Path(sys.prefix, "dist").glob("*.whl")
        self.assertEqual(made, wheel_names(installed))

    def test_lives_with_another_packages_google_rpc(self):
        # Packages for Google's services register these names in the pool of the process.
        script = """if True:
            from google.protobuf import descriptor_pb2, descriptor_pool
            other = descriptor_pb2.FileDescriptorProto(name="google/rpc/status.proto", package="google.rpc")
            other.message_type.add(name="Status").field.add(name="other", number=7, type=9, label=1)
            descriptor_pool.Default().AddSerializedFile(other.SerializeToString())
            import sys, tetrad
            print(tetrad.errors.make_error(14, "gone"), "torch" in sys.modules)
            """
        told = subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual(told, "UNAVAILABLE: gone False\n")

    def test_everything_public_has_a_docstring(self):
        for name in tetrad.__all__:
            self.assertTrue((getattr(tetrad, name).__doc__ or "").strip(), name)
        for name, member in vars(tetrad.Client).items():
            if not name.startswith("_") and callable(member) and name != "close":
                self.assertTrue(member.__doc__, name)

    def test_blocking_and_asyncio_have_the_same_calls(self):
        import inspect

        def calls(kind):
            return {name: str(inspect.signature(member)).partition(" -> ")[0] for name, member in vars(kind).items()
                    if inspect.isfunction(member) and not name.startswith("_") and name != "execute_stream"}
        self.assertEqual(calls(tetrad.Client), calls(tetrad.aio.Client))
        self.assertEqual(calls(tetrad.Plan), calls(tetrad.aio.Plan))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tetradd", required=True)
    parser.add_argument("--version", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
