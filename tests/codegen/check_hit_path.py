#!/usr/bin/env python3
"""Compiles hit_path.cu and gather_path.cu beside it and judges what came out: registers and spills
from the compiler's report, and the loads, fences and atomics of the read kernels from their PTX.
Needs nvcc, no GPU.

usage: check_hit_path.py NVCC SOURCE INCLUDE_DIRECTORY WORK_DIRECTORY
"""
import concurrent.futures
import os
import re
import subprocess
import sys

# A kernel's register count covers the miss path it calls. 64 lets four blocks of 256 threads share
# a multiprocessor, 80 three.
MAX_REGISTERS = {"read_by_warp": 64, "read_by_block": 80, "map_by_warp": 64, "gather_by_warp": 80,
                 "gather_elements": 64}
# Rows by the batch keep the state of a batch beside the units of four steps, so some of it is
# spilled.
MAX_SPILLED_BYTES = dict.fromkeys(MAX_REGISTERS, 0) | {"gather_by_warp": 96}
# The loads of units that a gather keeps in flight, with no look at a page word between them, and
# how many second looks follow at a time: each thread of a batch has one, for its own part.
GATHERED = {"gather_by_warp": ("ld.relaxed.sys.global.v4", 1),
            "gather_elements": ("ld.relaxed.gpu.global.u64", 4)}
UNITS_IN_FLIGHT = 4
# Below the stack of a miss the compiler has not followed the calls by address, and a kernel would
# be given too little.
MIN_STACK_BYTES = 700


def compile_source(nvcc, source, include, work):
    """The compiler's report, and the PTX, which it keeps on the way to the machine code."""
    name = os.path.splitext(os.path.basename(source))[0]
    folder = os.path.join(work, name)
    os.makedirs(folder, exist_ok=True)
    flags = ["-std=c++20", "-arch=sm_90", "-O3", "--expt-relaxed-constexpr", "-I" + include]
    done = subprocess.run([nvcc, *flags, "-cubin", "-Xptxas", "-v", "-keep", "-keep-dir", folder,
                           "-o", os.path.join(folder, "path.cubin"), source],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("nvcc failed:\n" + done.stderr)
    with open(os.path.join(folder, name + ".ptx"), encoding="utf-8") as file:
        return done.stderr, file.read()


def resources(report):
    """Kernel name -> (registers, spill stores, spill loads, stack with all calls), from the lines
    of ptxas -v."""
    found, name, spills = {}, None, (0, 0)
    for line in report.splitlines():
        entry = re.search(r"Compiling entry function '\w*?\d+(" + "|".join(MAX_REGISTERS) + ")",
                          line)
        if entry:
            name = entry.group(1)
        spill = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if spill and name and name not in found:
            spills = (int(spill.group(1)), int(spill.group(2)))
        used = re.search(r"Used (\d+) registers(?:.* (\d+) bytes cumulative stack)?", line)
        if used and name:
            found[name] = (int(used.group(1)), *spills, int(used.group(2) or 0))
            name = None
    return found


def entry_text(ptx, name):
    start = re.search(r"\.entry \w*\d" + name + r"\w*\(", ptx)
    end = ptx.index("\n}", start.start())
    return ptx[start.start():end]


def check_ptx(ptx):
    errors = []
    for name in ("read_by_warp", "read_by_block"):
        body = entry_text(ptx, name)
        # In order: a look at the page word, the copy, another look, each pair with a fence between
        # (base/atomic.hpp).
        order = re.findall(r"ld\.relaxed\.gpu\.global\.L2::cache_hint\.u64|membar\.cta|fence\.(?:sc"
                           r"|acq_rel)\.cta|ld\.relaxed\.gpu\.global\.v4",
                           body)
        kinds = "".join("f" if "cta" in opcode else "c" if "v4" in opcode else "w"
                        for opcode in order)
        if not re.search(r"wfc+fw", kinds):
            errors.append(
                f"{name}: no fence between a look at the page word and the copy ({kinds})")
        if not re.search(r"ld\.relaxed\.gpu\.global\.v4", body):
            errors.append(f"{name}: frames are not read 16 bytes at a time")
        # A hit takes no atomic that returns a value; counters and the use bit are reductions that
        # no thread waits for. What the compiler writes as atom with an unused result becomes such a
        # reduction, so results are looked for.
        for atomic in re.findall(r"atom\.[\w.]+\s+(%\w+)", body):
            if len(re.findall(re.escape(atomic) + r"\b", body)) > 2:
                errors.append(f"{name}: waits for the result of an atomic ({atomic})")
        # The miss path is handed its arguments through local memory, so stores may be there; a load
        # would be the hit path's own state.
        if "ld.local" in body:
            errors.append(f"{name}: keeps state in local memory on the hit path")
    for name, (load, second_looks) in GATHERED.items():
        kinds = "".join("f" if "cta" in opcode else "c" if load in opcode else "w"
                        for opcode in re.findall(r"ld\.relaxed\.(?:gpu|sys)\.[\w.]+|membar\.cta"
                                                 r"|fence\.(?:sc|acq_rel)\.cta",
                                                 entry_text(ptx, name)))
        if not re.search("fc{%d}f+w{%d}" % (UNITS_IN_FLIGHT, second_looks), kinds):
            errors.append(f"{name}: {UNITS_IN_FLIGHT} units between two fences, and then "
                          f"{second_looks} second looks at a time, are not there ({kinds})")
    return errors


def main():
    nvcc, source, include, work = sys.argv[1:]
    sources = (source, source.replace("hit_path.cu", "gather_path.cu"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda path: compile_source(nvcc, path, include, work), sources))
    report, ptx = ("".join(parts) for parts in zip(*done))
    found = resources(report)
    errors = []
    for name, limit in MAX_REGISTERS.items():
        if name not in found:
            errors.append(f"{name}: not in the compiler's report")
            continue
        registers, stores, loads, stack = found[name]
        print(f"{name}: {registers} registers, {stores} bytes spilled, {loads} bytes reloaded, "
              f"{stack} bytes of stack")
        if stack < MIN_STACK_BYTES:
            errors.append(
                f"{name}: {stack} bytes of stack, so some calls by address are not counted")
        if registers > limit:
            errors.append(f"{name}: {registers} registers, more than {limit}")
        if max(stores, loads) > MAX_SPILLED_BYTES[name]:
            errors.append(f"{name}: spills {stores} bytes, reloads {loads}")
    errors += check_ptx(ptx)
    for error in errors:
        print("FAILED " + error)
    sys.exit(1 if errors else 0)


main()
