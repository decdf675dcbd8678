"""What penstock-sssp says to input it cannot use: exit status, one line that names the value, and
nothing left behind.

Usage: bad_input_test.py PROGRAM
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import sssp_support as support


def check_usage(program, graph, out):
    run, make = ["run", graph], ["make", "-o", out, "--vertices", "2", "--edges", "3"]
    for arguments, names in [
            ([], ["--help"]), (["search"], ["'search'", "run or make"]), (["run"], ["GRAPH"]),
            ([*run, "--method", "magic"], ["--method", "'magic'"]),
            ([*run, "--method", "copy,"], ["--method", "''"]),
            ([*run, "--source", "-1"], ["--source", "'-1'"]),
            ([*run, "--source", "4294967294"], ["--source", "4,294,967,293"]),
            ([*run, "--updates", "101"], ["--updates", "'101'", "100"]),
            ([*run, "--updates", "-1"], ["'-1'"]), ([*run, "--updates", "1,,2"], ["''"]),
            ([*run, "--updates", "1%"], ["'1%'"]), ([*run, "--updates", "nan"], ["'nan'"]),
            ([*run, "--rounds", "0"], ["--rounds", "'0'"]),
            ([*run, "--rounds", "1001"], ["'1001'"]),
            ([*run, "--update-by", "magic"], ["--update-by", "'magic'"]),
            ([*run, "--delta", "0"], ["--delta", "'0'"]), ([*run, "--backend", "tpu"], ["'tpu'"]),
            ([*run, "--no-mount", "--mount", "x"], ["--no-mount", "'x'"]),
            ([*run, "--mount", ""], ["--mount"]),
            ([*run, "--mount", "x"], ["--mount", "'x'", "--updates"]),
            ([*run, "--updates", "1", "--method", "copy,cpu", "--mount", "x"],
             ["--mount", "'x'", "penstock"]),
            ([*run, "--workers", "two"], ["'two'"]), (["make"], ["--out"]), (make[:5], ["--edges"]),
            ([*make[:4], "0", *make[5:]], ["--vertices", "'0'"]),
            ([*make[:6], "0"], ["--edges", "'0'"]), ([*make[:6], "1e9"], ["'1e9'"]),
            ([*make[:4], "4294967295", *make[5:]], ["4,294,967,294"]),
            ([*make, "--seed", "x"], ["--seed", "'x'"]), (["update", graph], ["--percent"])]:
        support.refuse(program, arguments, names, status=2)


def damaged(data, at, form, value):
    out = bytearray(data)
    struct.pack_into(form, out, at, value)
    return out


def check_graphs(program, folder):
    bad, out = os.path.join(folder, "bad"), os.path.join(folder, "out")
    graph = support.Graph.of_lists([[(1, 5), (2, 1)], [(2, 2)], [(0, 9)], []])
    good = graph.data()
    _, edges_at, size = graph.places()
    for data, names in [
            (b"", ["0 bytes"]), (good[:4095], ["4,095 bytes", "copy it again"]),
            (good[:-1], [f"{size - 1:,} bytes", f"{size:,}"]),
            (good + b"\0", [f"{size + 1:,} bytes"]), (b"X" + good[1:], ["PSTKSSSP"]),
            (damaged(good, 8, "<I", 2), ["version 2", "version 1"]),
            (damaged(good, 12, "<I", 512), ["header"]),
            (damaged(good, 16, "<Q", 0), ["0 vertices"]),
            (damaged(good, 16, "<Q", 5000), ["5,000 vertices"]),
            (damaged(good, 24, "<Q", 2 ** 63), ["9,223,372,036,854,775,808 edges"]),
            (damaged(good, 40, "<Q", 4096), ["header"]), (damaged(good, 48, "<Q", 8), ["header"]),
            (damaged(good, 4096, "<Q", 1), ["vertex 0", "edge 1"]),
            (damaged(good, 4096 + 16, "<Q", 1), ["vertex 1", "edge 1", "2"]),
            (damaged(good, 4096 + 32, "<Q", 5), ["last vertex", "edge 5 of 4"]),
            (damaged(good, edges_at + 8, "<I", 4), ["edge 1", "vertex 4 of 4"])]:
        with open(bad, "wb") as file:
            file.write(data)
        support.refuse(program, ["run", bad, "-o", out, *support.backend_flags()], ["bad'", *names])
    with open(bad, "wb") as file:
        file.write(damaged(good, edges_at + 4, "<I", 2 ** 32 - 1))
    support.refuse(program, ["run", bad, "-o", out, "--quiet", *support.backend_flags()],
                   ["bad'", "4,294,967,294", "smaller weights"])
    support.require(not os.path.exists(out), "a refused run left its result")


def check_names(program, folder, graph):
    pipe = os.path.join(folder, "pipe")
    os.mkfifo(pipe)
    for path, names in [(os.path.join(folder, "absent"),
                         ["absent", "ENOENT", "penstock-sssp make"]),
                        (folder, ["EISDIR"]), (pipe, ["pipe", "no regular file"])]:
        support.refuse(program, ["run", path], names)
    support.refuse(program, ["run", graph, "--source", "4"], ["--source", "4", "graph'"])
    os.symlink(graph, os.path.join(folder, "link"))
    for out, names in [(folder, ["EISDIR"]),
                       (os.path.join(folder, "no", "out"), ["no/out", "ENOENT"]),
                       (graph, ["-o", "graph'"]), (os.path.join(folder, "link"), ["link'"])]:
        support.refuse(program, ["run", graph, "-o", out], names)
    if "gpu" not in support.backend_flags():
        support.refuse(program, ["run", graph, "--method", "managed", "--backend", "cpu"],
                       ["--method managed", "GPU"])
    support.refuse(program,
                   ["make", "-o", os.path.join(folder, "no", "g"), "--vertices", 3, "--edges", 3],
                   ["no/g", "ENOENT"])
    if os.geteuid() != 0:  # nothing is forbidden to root
        os.chmod(graph, 0o444)
        support.refuse(program, ["run", graph, "--updates", "1", *support.backend_flags()],
                       ["graph'", "EACCES", "--updates"])
        os.chmod(graph, 0o644)


def check_mount_points(program, folder, graph):
    updating = ["run", graph, "--updates", "1", "--rounds", "1", "--quiet",
                *support.backend_flags()]
    full, inside = os.path.join(folder, "full"), os.path.join(os.path.dirname(graph), "inside")
    os.makedirs(os.path.join(full, "something"))
    os.mkdir(inside)
    for point, names in [(full, ["full", "not empty"]), (inside, ["inside", "lies in the source"]),
                         (os.path.join(folder, "absent"), ["absent", "name a directory"]),
                         (graph, ["not a directory"])]:
        support.refuse(program, [*updating, "--mount", point], ["--mount: ", *names, "--no-mount"])
    # Without FUSE. A new /dev needs the right to a mount table of one's own.
    alone = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev && exec "$@"', "sh"]
    if (shutil.which("unshare")
        and subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0):
        support.refuse(alone[0], [*alone[1:], program, *updating], ["/dev/fuse", "--no-mount"],
                       said_by="penstock-sssp")
        support.must_run(alone[0], *alone[1:], program, *updating, "--no-mount")


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "data"))
        graph = support.write_graph(os.path.join(folder, "data", "graph"),
                                    support.Graph.of_lists([[(1, 5)], [(2, 2)], [(0, 9)], []]))
        check_usage(program, graph, os.path.join(folder, "out"))
        check_graphs(program, folder)
        check_names(program, folder, graph)
        if support.has_fuse():
            check_mount_points(program, folder, graph)
    print("bad input is named and leaves nothing behind")


if __name__ == "__main__":
    main()
