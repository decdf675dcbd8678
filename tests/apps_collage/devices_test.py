"""One collage by several devices: the picture and the counts are those of a single device, and what
cannot work over several says so.

Usage: devices_test.py PROGRAM

On the cpu back end each device is one more cache, so this needs no GPU. On a machine with GPUs:
PENSTOCK_TEST_FLAGS="--backend gpu" PENSTOCK_TEST_DEVICES=0,1."""
import json
import os
import sys
import tempfile

import collage_support as support

DEVICES = os.environ.get("PENSTOCK_TEST_DEVICES", "0,1")


def make(program, folder, *flags, **variables):
    """The pixels and the report."""
    out = os.path.join(folder, "out.ppm")
    done = support.must_run(program, "make", os.path.join(folder, "in.ppm"),
                            os.path.join(folder, "lib"), "-o", out, "--json",
                            *support.backend_flags(), *flags, env={**os.environ, **variables})
    return support.read_ppm(out), json.loads(done.stdout)


def check_pictures(program, folder):
    expected, single = make(program, folder)
    support.require(single["runtime"]["devices"] == 1
                    and single["evaluations_by_device"] == [single["evaluations"]],
                    f"one device: {single}")
    small = ["--cache", "128KiB", "--page", "4KiB", "--workers", "5"]
    for flags, variables in [(["--devices", DEVICES], {}), ([], {"PENSTOCK_DEVICES": DEVICES}),
                             (["--devices", DEVICES, *small], {}),
                             (["--devices", DEVICES], {"PENSTOCK_LINKS": "off"}),
                             (["--devices", DEVICES], {"PENSTOCK_DEVICE": "7"}),
                             (["--devices", DEVICES], {"PENSTOCK_DEVICES": "7"})]:
        got, report = make(program, folder, *flags, **variables)
        case = f"{flags} {variables}"
        support.require(got.rgb == expected.rgb, f"{case}: the picture is not that of one device")
        devices = DEVICES.count(",") + 1
        support.require(report["runtime"]["devices"] == devices
                        and len(report["evaluations_by_device"]) == devices
                        and sum(report["evaluations_by_device"]) == report["evaluations"],
                        f"{case}: {report['evaluations_by_device']} of {report['evaluations']} on "
                        f"{report['runtime']['devices']} devices")
        for count in ("evaluations", "unique_tiles", "fallback_blocks", "blocks"):
            support.require(report[count] == single[count],
                            f"{case}: {count} {report[count]}, with one device {single[count]}")
        if "PENSTOCK_LINKS" in variables:
            statistics = report["runtime"]["statistics"]
            support.require(statistics["neighbour_reads"] + statistics["neighbour_loads"] == 0,
                            f"{case}: pages came from a neighbour")


def refuse(program, names, *arguments, status, **variables):
    done = support.run_program(program, *arguments, env={**os.environ, **variables})
    shown = f"{arguments} {variables}: exit status {done.returncode}, said {done.stderr!r}"
    support.require(done.returncode == status and done.stdout == b"", shown)
    support.require(done.stderr.count(b"\n") == 1
                    and all(name.encode() in done.stderr for name in names),
                    f"expected one line with {names}: {shown}")


def check_refusals(program, folder):
    out = os.path.join(folder, "refused.ppm")
    words = ["make", os.path.join(folder, "in.ppm"), os.path.join(folder, "lib"), "-o", out]
    cpu = [*words, "--backend", "cpu"]
    refuse(program, ["--devices", "'0,x'"], *cpu, "--devices", "0,x", status=2)
    refuse(program, ["devices", "-1"], *cpu, "--devices=0,-1", status=2)
    refuse(program, ["devices", "9 are named", "at most 8"], *cpu, "--devices",
           "0,1,2,3,4,5,6,7,8", status=2)
    refuse(program, ["--device", "'0'", "--devices", "'0,1'"], *cpu, "--device", 0, "--devices",
           "0,1", status=2)
    refuse(program, ["GPU 5 is named twice"], *words, "--backend", "gpu", "--devices", "5,5",
           status=2)
    # Neither is there where there is no GPU at all.
    refuse(program, ["GPU"], *words, "--backend", "gpu", "--devices", "0,97", status=1)
    refuse(program, ["--method cuda uses one device", "--device"], *words, "--method", "cuda",
           "--devices", "0,1", status=2)
    refuse(program, ["--method cuda uses one device", "PENSTOCK_DEVICES"], *words, "--method",
           "cuda", status=2, PENSTOCK_DEVICES="0,1")
    support.require(not os.path.exists(out), "output of a refused call")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "pictures")
        os.mkdir(source)
        for seed in range(3):
            support.write_ppm(os.path.join(source, f"{seed}.ppm"),
                              support.make_picture(120, 90, seed))
        support.must_run(program, "index", source, "-o", os.path.join(folder, "lib"), "--stride",
                         "8", "--quiet")
        support.write_ppm(os.path.join(folder, "in.ppm"), support.make_picture(210, 170, 40))
        check_pictures(program, folder)
        check_refusals(program, folder)
    print(f"a collage by devices {DEVICES} is that of one device")


if __name__ == "__main__":
    main()
