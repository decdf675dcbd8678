"""``python -m penstock``: what works here, and how to build against the wheel's library."""
from __future__ import annotations

import argparse
import io
import sys

import penstock

from ._install import compile_flags, link_flags


def _check(arguments: argparse.Namespace) -> int:
    findings = penstock.check(arguments.path)
    for finding in findings:
        print(finding)
    needed = {"rows", "files"}
    return 1 if any(f.name in needed and not f.works for f in findings) else 0


def _info(arguments: argparse.Namespace) -> int:
    print(f"penstock {penstock.__version__}")
    try:
        print(f"headers: {penstock.get_include()}")
        print(f"CMake package: {penstock.get_cmake_dir()}")
    except FileNotFoundError as error:
        print(f"headers: {error.strerror}")
    with penstock.Runtime(log="stderr") as runtime:
        print(f"back end: {runtime.backend} ({', '.join(runtime.device_names)}), {runtime.io}")
        width = max(len(name) for name in runtime.settings())
        for name, value in runtime.settings().items():
            print(f"{name:<{width}}  {value}")
    return 0


def _cflags(arguments: argparse.Namespace) -> int:
    print(" ".join(compile_flags()))
    return 0


def _ldflags(arguments: argparse.Namespace) -> int:
    print(" ".join(link_flags()))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="what works here, and what to do about the rest")
    check.add_argument("path", nargs="?", default=None,
                       help="a folder or file that is to be read (default: this folder)")
    check.set_defaults(run=_check)
    commands.add_parser("info", help="back end and settings").set_defaults(run=_info)
    commands.add_parser("cflags", help="flags for a compiler").set_defaults(run=_cflags)
    commands.add_parser("ldflags", help="flags for a linker").set_defaults(run=_ldflags)
    # A name that the terminal's letters do not have is no reason to say nothing.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments = parser.parse_args()
    try:
        return int(arguments.run(arguments))
    except (OSError, ValueError, MemoryError) as error:
        print(f"python -m penstock {arguments.command}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
