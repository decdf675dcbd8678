"""Says which machine a report of tools/*-bench.sh was made on, in the form of bench/results."""
import os
import platform
import subprocess


def said_by(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True,
                              check=True).stdout.strip().split("\n")[0]
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine_of(out, commit_variable):
    """`out`: the folder that was measured in; `commit_variable`: the environment variable that says
    what was built."""
    gpu = said_by("nvidia-smi", "--query-gpu=name,driver_version",
                  "--format=csv,noheader").split(", ")
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":", 1)[1].strip() for line in file
                    if line.startswith("model name")),
                   "unknown")
    return {"device": gpu[0] or "none", "driver": gpu[1] if len(gpu) > 1 else "", "cpu": cpu,
            "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(), "commit": os.environ.get(commit_variable, "unknown"),
            "file_system": said_by("stat", "-f", "-c", "%T", str(out))}
