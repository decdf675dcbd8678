"""What an updater wrote or stored is what the next computation uses, and only pages that it changed
are brought.

Usage: updates_test.py PROGRAM
"""
import os
import sys
import tempfile

import sssp_support as support


def changed_pages(before, after, edges_at):
    """Pages of the edges that differ; nothing but weights may."""
    support.require(len(before) == len(after) and before[:edges_at] == after[:edges_at],
                    "an update changed more than edges")
    support.require(before[edges_at::8] == after[edges_at::8]
                    and before[edges_at + 3::8] == after[edges_at + 3::8],
                    "an update changed targets")
    return sum(before[at:at + support.PAGE] != after[at:at + support.PAGE]
               for at in range(edges_at, len(before), support.PAGE))


def check_updates(program, folder, call, workers, flags):
    """The graph's file as it is in the end."""
    path, out, first = (os.path.join(folder, "data", name) for name in ("graph", "dist", "first"))
    support.must_run(program, "make", "-o", path, "--vertices", 3000, "--edges", 61000, "--quiet")
    _, edges_at, size = support.read_graph(path).places()
    pages, file_pages = (size - edges_at) // support.PAGE, size // support.PAGE
    support.must_run(program, "run", path, "--rounds", 1, "-o", first, "--quiet",
                     *support.backend_flags())
    for percent, expected in [(0, 0), (1, 1), (25, 30), (100, pages)]:
        before = open(path, "rb").read()
        report = support.must_report(program, "run", path, "--method", support.methods(),
                                     "--updates", percent, "--rounds", 1, "--update-by", call,
                                     "--seed", percent + 1, "--check", "-o", out, "--workers",
                                     workers, *flags, *support.backend_flags())
        update = report["updates"][0]
        label = f"{percent} % by {call} {flags}: {update}"
        support.require(changed_pages(before, open(path, "rb").read(), edges_at) == expected
                        == update["pages_changed"],
                        label)
        fetched = {m["method"]: m["pages_fetched"] for m in update["methods"]}
        # Without a mount the program does not know which pages were written, if any.
        least, most = ((expected, expected) if report["mounted"]
                       else (file_pages if expected else 0, file_pages))
        support.require(least <= fetched["penstock"][0] <= most, f"pages fetched, {label}")
        support.require(fetched["copy"] == [file_pages], label)
        # A run that kept the old weights would have the old distances.
        now, old = support.read_distances(out), support.read_distances(first)
        support.require(now == support.read_graph(path).distances(0), f"old distances, {label}")
        support.require((now != old) == (percent > 1 or now != old)
                        and (percent < 25 or now != old),
                        f"nothing changed, {label}")
        support.require((update["distances_changed"][0] > 0) == (now != old), label)
        os.replace(out, first)
    return open(path, "rb").read()


def check_many_rounds(program, folder):
    """Several percents and rounds in one run; every one is checked, and those with changes change
    distances."""
    path = os.path.join(folder, "data", "many")
    support.must_run(program, "make", "-o", path, "--vertices", 2000, "--edges", 40000, "--quiet")
    for call in ("write", "store"):
        report = support.must_report(program, "run", path, "--method", support.methods(),
                                     "--updates", "0,50,0,100", "--rounds", 2, "--update-by", call,
                                     "--check", *support.mount_flags(), *support.backend_flags())
        support.require(report["rounds_checked"] == 9
                        and [u["percent"] for u in report["updates"]] == [0, 50, 0, 100],
                        f"{report}")
        for update in report["updates"]:
            support.require(all((changed > 0) == (update["percent"] > 0)
                                for changed in update["distances_changed"]),
                            f"{call}: {update}")
            support.require(len(update["update_seconds"]) == 2
                            and all(len(m["data_seconds"]) == 2 for m in update["methods"])
                            and update["copy_over_penstock"] > 0,
                            f"{call}: {update}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "data"))
        point = os.path.join(folder, "point")
        os.mkdir(point)
        made = set()
        for workers, call in [(1, "write"), (3, "store"), (2, "write")]:
            if support.has_fuse():
                made.add(check_updates(program, folder, call, workers, ["--mount", point]))
            made.add(check_updates(program, folder, call, workers + 1, ["--no-mount"]))
        support.require(len(made) == 1,
                        "what an update writes depends on more than seed, round and percentage")
        check_many_rounds(program, folder)
        support.require(os.listdir(point) == [], "something was left at the mount point")
    if not support.has_fuse():
        print("no /dev/fuse: only without a mount")
    print("updates are seen")


if __name__ == "__main__":
    main()
