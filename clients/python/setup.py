# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Adds to the build what pyproject.toml cannot say: the modules that protoc makes.

The schema is proto/ of this repository, or of the source archive, into which the
command sdist copies it. Needs protoc (PROTOC names another one). Services are not
generated: gRPC's generic calls need only the path and the two message types."""
import os
import pathlib
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA = HERE / "proto" if (HERE / "proto").is_dir() else HERE.parents[1] / "proto"
OURS = sorted(path.relative_to(SCHEMA).as_posix() for path in SCHEMA.glob("tetrad/v1/*.proto"))
# Compiled to descriptors that errors.py loads apart from all others: other packages
# bring google.rpc too, and a process may know each name only once.
DETAILS = ["google/rpc/status.proto", "google/rpc/error_details.proto"]


def generate(package_root):
    protoc = os.environ.get("PROTOC", "protoc")
    base = [protoc, f"--proto_path={SCHEMA}"]
    subprocess.run([*base, f"--python_out={package_root}", f"--pyi_out={package_root}", *OURS], check=True)
    subprocess.run([*base, "--include_imports",
                    f"--descriptor_set_out={pathlib.Path(package_root, 'tetrad', 'error_details.binpb')}",
                    *DETAILS], check=True)


class BuildWithSchema(build_py):
    def run(self):
        super().run()
        # An editable install takes the sources where they are.
        generate(HERE / "src" if getattr(self, "editable_mode", False) else self.build_lib)

    def get_outputs(self, include_bytecode=1):
        made = [f"{name[:-len('.proto')]}_pb2.{ending}" for name in OURS for ending in ("py", "pyi")]
        made.append("tetrad/error_details.binpb")
        return super().get_outputs(include_bytecode) + [os.path.join(self.build_lib, name) for name in made]


class SourcesWithSchema(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for name in OURS + DETAILS:
            target = pathlib.Path(base_dir, "proto", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SCHEMA / name, target)


setup(cmdclass={"build_py": BuildWithSchema, "sdist": SourcesWithSchema})
