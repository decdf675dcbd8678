#!/usr/bin/env python3
"""Makes the Debian packages of a build, judges them and runs what is in them:
deb_test.py BUILD SCRATCH [--no-python]. Exit status 77 where packages cannot be made here.

Without --no-python the module of the Python package is compiled, which takes a while."""
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


def python_package(files, scratch):
    """The package of Python beside its libraries, in Debian's own interpreter."""
    name = next((name for name in files if "/python3-penstock_" in name), None)
    if name is None:
        print("python3-penstock was not made")
        return
    folder = scratch / "python3-penstock"
    run("dpkg-deb", "-x", name, folder)
    modules = folder / "usr/lib/python3/dist-packages"
    has(folder, "usr/lib/python3/dist-packages/penstock/_core.*.so",
        "usr/lib/python3/dist-packages/penstock/device/calls.cu",
        "usr/lib/python3/dist-packages/penstock_io-*.dist-info/METADATA",
        "usr/share/doc/python3-penstock/copyright", "usr/share/man/man1/penstock-agent.1.gz")
    agent = subprocess.run([folder / "usr/bin/penstock-agent", "--help"], check=False,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           env={"PYTHONPATH": str(modules), "PYTHONDONTWRITEBYTECODE": "1"})
    if agent.returncode != 0 or b"usage: penstock-agent" not in agent.stdout:
        sys.exit(f"penstock-agent --help: status {agent.returncode}, {agent.stdout}")
    print(run("/usr/bin/python3", "-B", "-c", f"""
import sys
sys.path.insert(0, {str(modules)!r})
import importlib.metadata, penstock as ps
assert importlib.metadata.version("penstock-io") == ps.__version__
assert "nanobind_backend" not in sys.modules
with ps.Runtime("cpu", cache="2MiB", page="4KiB", log=None) as rt:
    array = ps.open_array({str(ROOT / "LICENSE")!r}, dtype="uint8", shape=(-1, 1), runtime=rt)
    assert bytes(array.gather([0, 1, 2])) == open({str(ROOT / "LICENSE")!r}, "rb").read(3)
print("python3-penstock", ps.__version__)
""") if has_numpy() else "no numpy for /usr/bin/python3: python3-penstock is not run")


def has_numpy():
    return subprocess.run(["/usr/bin/python3", "-c", "import numpy"], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0


def no_build(scratch):
    """A folder that is none, and a build with CUDA, are told, and leave nothing."""
    with_cuda = scratch / "with_cuda"
    with_cuda.mkdir(parents=True)
    (with_cuda / "CMakeCache.txt").write_text("CMAKE_CUDA_COMPILER:FILEPATH=/usr/bin/nvcc\n")
    for build, words in (scratch / "none", "is no folder of a build"), (with_cuda, "has CUDA"):
        done = subprocess.run([ROOT / "tools/make_deb.sh", "--build", build, scratch / "out"],
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode == 0 or f"{build} {words}" not in done.stdout.decode():
            sys.exit(f"make_deb.sh --build {build}: {done.stdout.decode()}")
        if (scratch / "out").exists():
            sys.exit(f"make_deb.sh --build {build} left the folder of its packages behind")


def main(build, scratch, *options):
    for tool in ("dpkg-deb", "dpkg-shlibdeps", "dpkg-architecture"):
        if shutil.which(tool) is None:
            print(f"{tool} is missing")
            sys.exit(77)
    scratch = pathlib.Path(scratch)
    shutil.rmtree(scratch, ignore_errors=True)
    no_build(scratch)
    files = run(ROOT / "tools/make_deb.sh", "--build", build, *options, scratch).split("\n")
    files = [line for line in files if line.endswith(".deb")]
    programs, libraries = (scratch / "penstock", scratch / "libpenstock-dev")
    for folder in (programs, libraries):
        file, = [name for name in files if pathlib.Path(name).name.startswith(folder.name + "_")]
        run("dpkg-deb", "-x", file, folder)
    has(programs, "usr/bin/penstock", "usr/bin/penstock-grep", "usr/share/man/man1/penstock.1.gz",
        "usr/share/man/man1/penstock-stat.1.gz", "usr/share/man/man1/penstock-grep.1.gz",
        "usr/share/bash-completion/completions/penstock", "usr/share/zsh/vendor-completions/_*",
        "lib/systemd/system/penstock-mount@.service", "usr/share/doc/penstock/copyright",
        "usr/share/doc/penstock/THIRD_PARTY.txt",
        "usr/share/doc/penstock/examples/penstock.rules.yml")
    has(libraries, "usr/include/penstock/penstock.hpp", "usr/lib/**/libpenstock.a",
        "usr/lib/**/PenstockConfig.cmake", "usr/lib/**/penstock.pc")
    print(run(programs / "usr/bin/penstock", "--version").strip())
    fields = run("dpkg-deb", "-f", next(name for name in files if "/libpenstock-dev_" in name))
    if ("liburing-dev" in fields) != ("pkg-config" in fields):
        sys.exit(f"CMake finds liburing by pkg-config, which is no dependency:\n{fields}")
    fields = run("dpkg-deb", "-f", next(name for name in files if "/penstock_" in name))
    if "libstdc++6" not in fields or "libc6" not in fields:
        sys.exit(f"the libraries of the programs are missing:\n{fields}")
    run("dpkg-deb", "-e", next(name for name in files if "/penstock_" in name), scratch / "control")
    for step in ("postinst", "postrm"):  # systemd has to read the unit again
        script = scratch / "control" / step
        if "systemctl daemon-reload" not in script.read_text(encoding="utf-8"):
            sys.exit(f"{step} does not tell systemd")
        run(script)
    if "--no-python" not in options:
        python_package(files, scratch)
    if shutil.which("lintian") is None:
        print("lintian is not installed, so the packages were not judged")
        return
    print(run("lintian", "--allow-root", "--fail-on", "error", *files))


if __name__ == "__main__":
    main(*sys.argv[1:])
