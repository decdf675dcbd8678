#!/usr/bin/env python3
"""Compiles kernels by NVRTC with Penstock's headers and nothing else, as CuPy and
penstock.device.numba do: nvrtc_test.py REPOSITORY COMPILER SCRATCH

Needs no GPU. Exit status 77 if this machine has no NVRTC."""
import importlib.util
import pathlib
import re
import subprocess
import sys

REFERENCES = ("runtime_ref", "table_ref", "mapping", "file_stat", "engine::ring_request",
              "engine::file_record")


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def functions_of(ptx):
    """Names of kernels and of functions that others may call."""
    return set(re.findall(rb"\.visible \.(?:entry|func)\s+(?:\([^)]*\)\s*)?(\w+)", ptx))


def expect(found, wanted, where):
    missing = {name.encode() for name in wanted} - found
    if missing:
        sys.exit(f"{where}: {missing} is not in the PTX, which has {found}")
    print(f"{where}: {len(wanted)} functions")


def sizes_of_host(compiler, include, scratch):
    """Size and alignment of what kernels take by value, as a host compiler has it."""
    lines = "".join(f'std::printf("%zu %zu\\n", sizeof(penstock::{name}), '
                    f"alignof(penstock::{name}));" for name in REFERENCES)
    source = scratch / "sizes.cpp"
    source.write_text("#include <cstdio>\n#include \"penstock/table.hpp\"\n"
                      f"int main() {{ {lines} }}\n", encoding="utf-8")
    program = scratch / "sizes"
    subprocess.run([compiler, "-std=c++20", f"-I{include}", source, "-o", program], check=True)
    said = subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout.decode()
    return [tuple(map(int, line.split())) for line in said.splitlines()]


def main():
    repository, compiler, scratch = map(pathlib.Path, sys.argv[1:])
    scratch.mkdir(parents=True, exist_ok=True)
    device = repository / "python" / "penstock" / "device"
    nvrtc = load(device / "_nvrtc.py")
    try:
        nvrtc.library()
    except nvrtc.NotFound as error:
        print(error)
        sys.exit(77)
    lowest = max(75, nvrtc.architectures()[0])
    print(f"NVRTC {nvrtc.version()}, compute_{lowest}")
    # No other folder and no other option: -I, the standard and the architecture.
    options = [f"-I{repository / 'include'}", "-std=c++20", f"-arch=compute_{lowest}"]
    if nvrtc.version() >= (13, 0):
        options.append("-Ofc=max")  # nothing runs what is made

    try:  # a canary: with the headers of a host compiler in reach this would show nothing
        nvrtc.compile_source("#include <cstdint>\n", options)
        sys.exit("NVRTC finds the headers of a host compiler")
    except nvrtc.CompileError as error:
        if "cstdint" not in str(error):
            raise

    kernels = (repository / "tests" / "install" / "nvrtc" / "kernels.cu").read_text()
    expect(functions_of(nvrtc.compile_source(kernels, options)),
           re.findall(r"__global__ void (\w+)", kernels), "kernels.cu")

    calls = (device / "calls.cu").read_text()
    for caller in ("lane", "warp"):
        made = nvrtc.compile_source(calls, [
            *options, "-rdc=true", f"-DPENSTOCK_CALLER=penstock::{caller}",
            f"-DPENSTOCK_CALL(name)=penstock_{caller}_##name"])
        expect(functions_of(made), [f"penstock_{caller}_{name}" for name in
                                    re.findall(r"PENSTOCK_CALL\((\w+)\)\(", calls)],
               f"calls.cu for a {caller}")

    # A program's own namespace std, as CuPy's headers have it, does no harm.
    own = ("namespace std { template <typename A, typename B> inline constexpr bool is_same_v = "
           "false; typedef unsigned long uint64_t; }\n")
    nvrtc.compile_source(own + "#include \"penstock/table.hpp\"\n",
                         [*options, "--device-as-default-execution-space"])

    checks = "".join(f"static_assert(sizeof(penstock::{name}) == {size} && "
                     f"alignof(penstock::{name}) == {alignment});\n" for name, (size, alignment) in
                     zip(REFERENCES, sizes_of_host(compiler, repository / "include", scratch)))
    nvrtc.compile_source("#include \"penstock/table.hpp\"\n" + checks, options)
    print(f"{len(REFERENCES)} structures are as the host has them")


if __name__ == "__main__":
    main()
