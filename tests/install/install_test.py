#!/usr/bin/env python3
"""Installs the build into a folder of its own, builds a foreign project against it and runs that:
install_test.py cmake|mount|cuda|pkgconfig BUILD SCRATCH COMPILER

cmake: find_package from a C++ project without CUDA, and what it says of components that are
missing; mount: a foreign program mounts a directory, and another links every function of the
headers; cuda: a kernel; pkgconfig: compiler calls, and add_subdirectory. Exit status 77 if all was
built and something could not run here (no GPU, no FUSE)."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FOREIGN = HERE / "foreign"
CONTENT = b"through the installed library\n" * 1000


def run(*command, **extra):
    ran = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, check=False, **extra)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nstatus {ran.returncode}\n"
                 f"{ran.stdout.decode(errors='replace')}")
    return ran.stdout


def expect_failure(words, *command, **extra):
    """The command fails, and its message holds these words, however its lines are broken."""
    ran = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, check=False, **extra)
    said = ran.stdout.decode(errors="replace")
    if ran.returncode == 0 or words not in " ".join(said.split()):
        sys.exit(f"{' '.join(map(str, command))}\nstatus {ran.returncode}; '{words}' was to be "
                 f"said, and this was:\n{said}")
    print(f"says '{words}'")


def check_reader(program, *arguments):
    ran = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         check=False)
    why = ran.stderr.decode(errors="replace")
    if ran.returncode == 77:
        print(f"{program.name}: built, but not run: {why}")
        sys.exit(77)
    if ran.returncode != 0 or ran.stdout != CONTENT:
        sys.exit(f"{program.name}: status {ran.returncode}, {len(ran.stdout)} bytes where "
                 f"{len(CONTENT)} are right; {why}")
    print(f"{program.name}: right")


def check_mounter(program, file, scratch):
    point = scratch / "point"
    point.mkdir()
    check_reader(program, file.parent, point, file.name)
    if pathlib.Path(f"{file}.copy").read_bytes() != CONTENT:
        sys.exit(f"{program.name}: what it wrote through the mount is not in the source")
    print(f"{program.name}: a directory was mounted, read and written")


def configure(source, build, prefix, compiler, *options):
    return ("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
            f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=Release", *options)


def missing_components(prefix, scratch, compiler):
    expect_failure("there is no component nonsense; there are: penstock mount",
                   *configure(HERE / "components", scratch / "nonsense", prefix, compiler,
                              "-DWANTED=nonsense"))
    # A machine without libfuse, where pkg-config finds liburing alone; without liburing too.
    found = scratch / "found"
    found.mkdir()
    narrow = dict(os.environ, PKG_CONFIG_LIBDIR=str(found), PKG_CONFIG_PATH="")
    other = configure(HERE / "components", scratch / "no_fuse", prefix, compiler)
    folder = subprocess.run(["pkg-config", "--variable=pcfiledir", "liburing"],
                            stdout=subprocess.PIPE, check=False).stdout.decode().strip()
    if folder:
        for options in (), ("-DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON",):
            said = run(*other, "-DWANTED=OPTIONAL", *options, env=narrow)
            if b"was not found" not in said:
                sys.exit(f"found without liburing:\n{said.decode()}")
        expect_failure("liburing-dev", *other, "-DWANTED=penstock", env=narrow)
        (found / "liburing.pc").symlink_to(pathlib.Path(folder) / "liburing.pc")
    expect_failure("libfuse", *other, "-DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=OFF",
                   "-DWANTED=mount", env=narrow)


def foreign_project(variant, prefix, scratch, compiler, file):
    build = scratch / "foreign"
    said = run(*configure(FOREIGN, build, prefix, compiler,
                          f"-DFOREIGN_CUDA={'ON' if variant == 'cuda' else 'OFF'}"))
    if variant == "cuda":
        run("cmake", "--build", build, "--target", "kernel")
        check_reader(build / "kernel", file)
    elif variant == "mount":
        if b"component mount" in said:
            print(f"built without libfuse: {said.decode()}")
            sys.exit(77)
        run("cmake", "--build", build, "--target", "mounter", "every_call")
        print(run(build / "every_call").decode().strip(), "of the headers are in the libraries")
        expect_failure("link_with_penstock_mount", "cmake", "--build", build, "--target",
                       "unlinked")
        check_mounter(build / "mounter", file, scratch)
    else:
        missing_components(prefix, scratch, compiler)
        run("cmake", "--build", build, "--target", "reader", "newer")
        run(build / "newer")
        check_reader(build / "reader", file)


def below_a_project(scratch, compiler):
    """By FetchContent: sources keep their standard, and the project's install brings Penstock
    only if it asks for that. Some distributions name folders by absolute paths: they are told as
    they are. A library that is missing is named as Debian does."""
    build, folders = scratch / "below", {"libdir": "/opt/elsewhere/lib", "includedir": "/opt/h"}
    below = configure(HERE / "below", build, scratch, compiler, "-DPENSTOCK_CUDA=OFF",
                      f"-DPENSTOCK_FOLDER={HERE.parents[1]}")
    run(*below)
    objects = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = entry["command"].split()
        standards = [word for word in words if word.startswith("-std=")]
        if standards != ["-std=c++20"]:
            sys.exit(f"{entry['file']} is compiled with {standards}")
        if entry["file"].endswith(("/reader.cpp", "/options.cpp", "/device_frames.cpp")):
            objects.append(words[words.index("-o") + 1])
    run("ninja", "-C", build, *objects)
    run("cmake", "--install", build, "--prefix", scratch / "none")  # fails where it looks for more
    run(*below, "-DPENSTOCK_INSTALL=ON",
        *(f"-DCMAKE_INSTALL_{name.upper()}={path}" for name, path in folders.items()))
    for name, path in folders.items():
        said = run("pkg-config", f"--variable={name}",
                   build / "_deps/penstock-build/penstock.pc").decode().strip()
        if said != path:
            sys.exit(f"penstock.pc has {said} for the {name} {path}")
    expect_failure("nlohmann-json3-dev", *below,
                   "-DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON")


def pkg_config(prefix, scratch, compiler, file):
    found = list(prefix.glob("**/pkgconfig"))
    path = f"{found[0]}:{os.environ.get('PKG_CONFIG_PATH', '')}"
    environment = dict(os.environ, PKG_CONFIG_PATH=path)

    def program(name, package):
        flags = run("pkg-config", "--cflags", "--libs", "--static", package,
                    env=environment).decode().split()
        if package == "penstock" and "-pthread" in flags:  # that of libfuse has it
            sys.exit(f"{package}.pc: nvcc does not take -pthread")
        run(compiler, "-std=c++20", FOREIGN / f"{name}.cpp", "-o", scratch / name, *flags)
        return scratch / name

    below_a_project(scratch, compiler)
    expect_failure("Penstock needs C++20", compiler, "-std=c++17", "-fsyntax-only",
                   FOREIGN / "reader.cpp", f"-I{prefix}/include")
    check_reader(program("reader", "penstock"), file)
    if (found[0] / "penstock-mount.pc").exists():
        check_mounter(program("mounter", "penstock-mount"), file, scratch)


def main(variant, build, scratch, compiler):
    scratch = pathlib.Path(scratch)
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "source").mkdir(parents=True)
    first, prefix = scratch / "first", scratch / "moved"
    # all but the programs
    run("cmake", "--install", build, "--prefix", first, "--component", "Unspecified")
    first.rename(prefix)  # nothing in an installed tree may remember where it was installed
    file = scratch / "source" / "data"
    file.write_bytes(CONTENT)
    if variant == "pkgconfig":
        pkg_config(prefix, scratch, compiler, file)
    else:
        foreign_project(variant, prefix, scratch, compiler, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
