#!/usr/bin/env python3
"""The examples in Python, and what they use of the package, pass mypy --strict.
Skipped where mypy or torch is missing."""
import os
import pathlib
import subprocess
import sys

try:
    import mypy  # noqa: F401
    import torch  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import penstock

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    examples = sorted((ROOT / "examples" / "python").glob("*.py"))
    # The package as it lies on the path, without the sources of this tree in between.
    package = pathlib.Path(penstock.__file__).parent
    ran = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--no-incremental",
                          "--config-file", str(ROOT / "pyproject.toml"),
                          *map(str, examples)], check=False, text=True, capture_output=True,
                         env={**os.environ, "MYPYPATH": str(package.parent)})
    print(ran.stdout, ran.stderr)
    sys.exit(ran.returncode)


if __name__ == "__main__":
    main()
