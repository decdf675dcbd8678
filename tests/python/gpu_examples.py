"""The examples in Python on a GPU, each as a program of its own. See gpu_common.py."""
import functools
import pathlib
import subprocess
import sys

import gpu_common as common

SCRIPT = "gpu_examples"
wanted = common.arguments(SCRIPT)
common.need_gpu(wanted, SCRIPT)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
ON_BOTH = ["embedding_graph", "shared_region", "graph_training"]
ON_GPU = ["cupy_kernel", "numba_kernel", "torch_extension"]


def example(name):
    """What it prints last; it says itself whether its result is right."""
    options = ["--device", "cpu"] if wanted.device == "cpu" else []
    ran = subprocess.run([sys.executable, FOLDER / f"{name}.py", *options], capture_output=True,
                         text=True, check=False)
    if ran.returncode == 77:
        raise common.Skip(ran.stderr.strip()[-200:])
    if ran.returncode != 0:
        raise AssertionError((ran.stdout + ran.stderr)[-800:])
    return ran.stdout.strip().split("\n")


def main():
    names = ON_BOTH + (ON_GPU if wanted.device == "cuda" else [])
    common.run(SCRIPT, [(name, functools.partial(example, name)) for name in names], wanted,
               common.describe_machine(wanted.device))


if __name__ == "__main__":
    main()
