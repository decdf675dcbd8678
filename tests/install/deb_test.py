#!/usr/bin/env python3
"""Makes the Debian packages of a build, judges them and runs what is in them:
deb_test.py BUILD SCRATCH. Exit status 77 where packages cannot be made here."""
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*command):
    done = subprocess.run([str(part) for part in command], check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nstatus {done.returncode}\n{text}")
    return text


def has(folder, *names):
    for name in names:
        if not list(folder.glob(name)):
            sys.exit(f"{folder.name} lacks {name}")


def main(build, scratch):
    for tool in ("dpkg-deb", "dpkg-shlibdeps", "dpkg-architecture"):
        if shutil.which(tool) is None:
            print(f"{tool} is missing")
            sys.exit(77)
    scratch = pathlib.Path(scratch)
    shutil.rmtree(scratch, ignore_errors=True)
    files = run(ROOT / "tools/make_deb.sh", "--build", build, scratch).split()
    programs, libraries = (scratch / "penstock", scratch / "libpenstock-dev")
    for folder in (programs, libraries):
        file, = [name for name in files if pathlib.Path(name).name.startswith(folder.name + "_")]
        run("dpkg-deb", "-x", file, folder)
    has(programs, "usr/bin/penstock", "usr/bin/penstock-grep", "usr/share/man/man1/penstock.1.gz",
        "usr/share/man/man1/penstock-stat.1.gz", "usr/share/man/man1/penstock-grep.1.gz",
        "usr/share/bash-completion/completions/penstock", "usr/share/zsh/vendor-completions/_*",
        "lib/systemd/system/penstock-mount@.service", "usr/share/doc/penstock/copyright",
        "usr/share/doc/penstock/examples/penstock.rules.yml")
    has(libraries, "usr/include/penstock/penstock.hpp", "usr/lib/**/libpenstock.a",
        "usr/lib/**/PenstockConfig.cmake", "usr/lib/**/penstock.pc")
    print(run(programs / "usr/bin/penstock", "--version").strip())
    fields = run("dpkg-deb", "-f", next(name for name in files if "/penstock_" in name))
    if "libstdc++6" not in fields or "libc6" not in fields:
        sys.exit(f"the libraries of the programs are missing:\n{fields}")
    if shutil.which("lintian") is None:
        print("lintian is not installed, so the packages were not judged")
        return
    print(run("lintian", "--allow-root", "--fail-on", "error", *files))


if __name__ == "__main__":
    main(*sys.argv[1:])
