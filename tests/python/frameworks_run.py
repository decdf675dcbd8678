#!/usr/bin/env python3
"""Runs a script with PyTorch, by this interpreter or by that of the system:
frameworks_run.py PACKAGES SCRIPT argument ...

PACKAGES is the folder that has the package penstock of this build. The environment of the build has
nanobind's backend, and Debian's python3-torch is for /usr/bin/python3: so the backend is brought
along, if both interpreters are of one version. Exit status 77 if no interpreter has PyTorch, or as
the script ends."""
import os
import pathlib
import subprocess
import sys
import tempfile

SYSTEM = "/usr/bin/python3"


def has_torch(python, path):
    probe = "import sys, torch; print(sys.version_info[:2])"
    try:
        ran = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=False,
                             env={**os.environ, "PYTHONPATH": path})
    except OSError as error:
        return None, str(error)
    return ran.stdout.strip(), (ran.stderr.strip().split("\n") or [""])[-1]


def main():
    packages, script = sys.argv[1:3]
    version, reason = has_torch(sys.executable, packages)
    python, path, extra = sys.executable, packages, None
    if not version:
        import nanobind_backend
        version, system_reason = has_torch(SYSTEM, packages)
        if version != str(sys.version_info[:2]):
            print(f"PyTorch is missing: {sys.executable}: {reason}; {SYSTEM}: "
                  f"{system_reason or 'another version of Python'}")
            return 77
        extra = tempfile.TemporaryDirectory()
        pathlib.Path(extra.name, "nanobind_backend").symlink_to(
            pathlib.Path(nanobind_backend.__file__).parent)
        python, path = SYSTEM, f"{packages}:{extra.name}"
    print(f"{python}, Python {version}", flush=True)
    return subprocess.run([python, "-B", script, *sys.argv[3:]], check=False,
                          env={**os.environ, "PYTHONPATH": path}).returncode


if __name__ == "__main__":
    sys.exit(main())
