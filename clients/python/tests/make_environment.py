# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel as a user would, out of a copy of the sources so that these stay
clean, and installs it into a fresh virtual environment that sees the system's packages:

    make_environment.py FOLDER     ->  FOLDER/bin/python, FOLDER/dist/tetrad-*.whl

The other tests run with that interpreter, so they test what is installed."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def copy_sources(folder):
    """The package and the schema, in the places they have in the tree."""
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "tests")
    shutil.copytree(ROOT / "clients/python", folder / "clients/python", ignore=ignored)
    shutil.copytree(ROOT / "proto", folder / "proto")
    return folder / "clients/python"


def build_wheel(source, into):
    """`source`: a folder or a source archive."""
    subprocess.run([*PIP, "wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", into, source],
                   check=True)
    (wheel,) = pathlib.Path(into).glob("*.whl")
    return wheel


def main():
    folder = pathlib.Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", folder], check=True)
    with tempfile.TemporaryDirectory() as copy:
        wheel = build_wheel(copy_sources(pathlib.Path(copy)), folder / "dist")
    # Installed without its dependencies: they are the system's, and whether these fit is what `check` tells.
    pip = [*PIP, "--python", folder / "bin/python"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", wheel], check=True)
    told = subprocess.run([*pip, "check"], check=False, stdout=subprocess.PIPE, text=True).stdout
    ours = [line for line in told.splitlines() if line.startswith("tetrad ")]
    if ours:
        sys.exit("\n".join(ours))


if __name__ == "__main__":
    main()
