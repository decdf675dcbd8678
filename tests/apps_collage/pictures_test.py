"""Which pictures penstock-collage takes: every JPEG that libjpeg decodes, none that claims more
pixels than it has, and all of a folder however long their paths are. Kinds that are not read are
called so, and not damaged.

Usage: pictures_test.py PROGRAM
"""

import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

import collage_support as support

FIRST, LAST, SCAN = b"\xff\xd8", b"\xff\xd9", b"\xff\xda"


def segment(mark, data):
    return struct.pack(">BBH", 0xFF, mark, len(data) + 2) + data


def blank_jpeg(width, height, colours=3, frame=0xC0, precision=8, revision=(1, 1), last=63,
               adobe=None, data=None, end=LAST):
    """One colour: every block is two bits, a difference of 0 and an end. `data`: in their place."""
    tables = b"".join(segment(0xC4,
                              bytes([kind << 4, 1]) + bytes(16))
                      for kind in (0, 1))  # one code of one bit, for 0
    blocks = -(-width // 8) * -(-height // 8) * colours
    bits = bytes(
        blocks * 2 // 8) + (b"" if blocks * 2 % 8 == 0 else bytes([255 >> (blocks * 2 % 8)]))
    parts = [FIRST, segment(0xE0, b"JFIF\0" + bytes(revision) + b"\0\0\1\0\1\0\0")]
    if adobe is not None:
        parts.append(segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([adobe])))
    parts += [
        segment(0xDB, b"\0" + b"\1" * 64),
        segment(
            frame,
            struct.pack(">BHHB", precision, height, width, colours)
            + b"".join(bytes([c + 1, 0x11, 0]) for c in range(colours))), tables,
        segment(
            0xDA,
            bytes([colours]) + b"".join(bytes([c + 1, 0])
                                        for c in range(colours)) + bytes([0, last, 0])),
        bits if data is None else data, end
    ]
    return b"".join(parts)


def grey_png(width, height, rows=None):
    """A head that claims so many pixels, and bits of few rows."""

    def chunk(name, data):
        return (struct.pack(">I", len(data)) + name + data
                + struct.pack(">I", zlib.crc32(name + data)))

    raw = (b"\0" + bytes(width)) * (height if rows is None else rows)
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)
    return path


def index(program, folder, pictures, *flags, **more):
    """The report, what was said, and the status, of a library of these pictures."""
    source, lib = os.path.join(folder, "source"), os.path.join(folder, "lib")
    for place in (source, lib):
        shutil.rmtree(place, ignore_errors=True)
    os.mkdir(source)
    for name, data in pictures.items():
        write(os.path.join(source, name), data)
    done = support.run_program(program, "index", source, "-o", lib, "--scales", "1", "--json",
                               *flags, timeout=200, **more)
    return json.loads(done.stdout or b"{}"), done.stderr, done.returncode


def check_good_jpegs(program, folder):
    junk = b"\0junk\xff\xfe\0\4ab"
    good = {
        "plain": blank_jpeg(64, 64), "se_0": blank_jpeg(64, 64, last=0),
        "jfif_2_01": blank_jpeg(64, 64, revision=(2, 1)),
        "jfif_0_00": blank_jpeg(64, 64, revision=(0, 0)), "no_end": blank_jpeg(64, 64, end=b""),
        "more_behind": blank_jpeg(64, 64) + junk * 9, "adobe_9": blank_jpeg(64, 64, adobe=9),
        "grey": blank_jpeg(64, 64, colours=1), "extended": blank_jpeg(64, 64, frame=0xC1),
        "junk_before_end": blank_jpeg(64, 64, end=b"\0\0\0" + LAST),
        "fill_bytes": blank_jpeg(64, 64).replace(SCAN, b"\xff\xff\xff" + SCAN, 1)
    }
    for name, data in good.items():
        for flags in ([], ["--strict"]):
            report, said, status = index(program, folder, {name + ".jpg": data}, *flags)
            support.require(
                status == 0 and report["left_out"] == [] and report["library"]["tiles"] == 4,
                f"{name}.jpg is left out: {said}")


def check_kinds_of_jpegs(program, folder):
    good = {"good.jpg": blank_jpeg(64, 64)}
    for name, data in {
            "ink.jpg": blank_jpeg(64, 64, colours=4),
            "inverse_ink.jpg": blank_jpeg(64, 64, colours=4, adobe=2),
            "two.jpg": blank_jpeg(64, 64, colours=2),
            "deep.jpg": blank_jpeg(64, 64, frame=0xC1, precision=12),
            "hierarchic.jpg": blank_jpeg(64, 64, frame=0xC5),
            "height_later.jpg": blank_jpeg(64, 0, data=b"\0")
    }.items():
        report, said, status = index(program, folder, {**good, name: data})
        support.require(status == 0 and len(report["left_out"]) == 1, f"{name}: {status} {said}")
        text = report["left_out"][0]
        support.require(name in text and "not read" in text and "damaged" not in text,
                        f"{name}: {text}")
    for name, data in {
            "cut.jpg": blank_jpeg(64, 64, data=bytes(8)),
            "codes.jpg": blank_jpeg(64, 64, data=b"\xfe" * 48),
            "no_table.jpg": blank_jpeg(64, 64)[:120] + LAST
    }.items():
        report, said, status = index(program, folder, {**good, name: data})
        support.require(status == 0 and len(report["left_out"]) == 1, f"{name}: {status} {said}")
        support.require(name in report["left_out"][0] and "damaged" in report["left_out"][0],
                        f"{name}: {report['left_out']}")


def check_claims(program, folder, kinds):
    """A head that claims more than the file can hold costs neither memory nor disk."""
    claims = {
        "a.ppm": b"P6\n16000000 200\n255\n" + bytes(1000),
        "b.ppm": b"P6\n60000 60000\n255\n" + bytes(1000)
    }
    if "jpeg" in kinds:
        claims |= {
            "c.jpg": blank_jpeg(65500, 65500, data=bytes(500)),
            "d.jpg": blank_jpeg(65500, 65500, frame=0xC2, data=bytes(500)),
            "e.jpg": blank_jpeg(65500, 65500, frame=0xCA, data=bytes(500))
        }
    if "png" in kinds:
        claims |= {"f.png": grey_png(60000, 60000, 1), "g.png": grey_png(2_000_000_000, 40, 0)}

    def little_memory():
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    for name, data in claims.items():
        for flags in ([], ["--strict"]):
            _, said, status = index(program, folder, {name: data}, "--workers", "2", *flags,
                                    preexec_fn=little_memory)
            support.require(status == 1 and name.encode() in said,
                            f"{name} {flags}: {status} {said}")
            support.require(
                sorted(os.listdir(folder)) == ["source"],
                f"{name} {flags} left {os.listdir(folder)}")
        report, said, status = index(
            program, folder, {name: data, "z.ppm": b"P6\n64 64\n255\n" + bytes(64 * 64 * 3)},
            "--workers", "2", preexec_fn=little_memory)
        support.require(
            status == 0 and report["library"]["tiles"] == 4 and len(report["left_out"]) == 1,
            f"{name}: {report} {said}")
        shutil.rmtree(os.path.join(folder, "lib"))
        out = os.path.join(folder, "out.ppm")
        lib = os.path.join(folder, "..", "lib")
        done = support.run_program(program, "make", os.path.join(folder, "source", name), lib, "-o",
                                   out, preexec_fn=little_memory)
        support.require(
            done.returncode == 1 and name.encode() in done.stderr and not os.path.exists(out),
            f"make {name}: {done}")
    if "jpeg" in kinds:  # what a file does hold is taken
        report, said, status = index(program, folder, {"blank.jpg": blank_jpeg(4096, 4096)})
        support.require(status == 0 and report["library"]["tiles"] == 128 * 128,
                        f"a blank picture is left out: {said}")
        shutil.rmtree(os.path.join(folder, "lib"))


def check_no_memory(program, folder):
    """Where memory ends in the middle of the work, with several threads, one line says so."""
    picture = b"P6\n400000 64\n255\n" + bytes(400000 * 64 * 3)
    pictures = {f"{i}.ppm": picture for i in range(4)}
    for limit in range(100, 500, 40):

        def little_memory():
            # pylint: disable-next=cell-var-from-loop
            resource.setrlimit(resource.RLIMIT_AS, (limit << 20, limit << 20))

        _, said, status = index(program, folder, pictures, "--workers", "4",
                                preexec_fn=little_memory)
        support.require(status in (0, 1), f"{limit} MiB: ended by {status}: {said}")
        if status == 1:
            support.require(b"memory" in said or b"threads" in said, f"{limit} MiB: {said}")
            support.require(
                sorted(os.listdir(folder)) == ["source"], f"{limit} MiB left {os.listdir(folder)}")


def check_large_sides(program, folder, lib):
    """A PNG is written however wide or tall the picture is that was read."""
    for width, height in ((1000032, 32), (32, 1000032)):
        picture, out = os.path.join(folder, "in.ppm"), os.path.join(folder, "out.png")
        write(picture, b"P6\n%d %d\n255\n" % (width, height) + bytes(width * height * 3))
        done = support.run_program(program, "make", picture, lib, "-o", out, "--quiet",
                                   *support.backend_flags())
        support.require(done.returncode == 0, f"{width} by {height}: {done.stderr}")
        with open(out, "rb") as file:
            head = file.read(24)
        support.require(
            struct.unpack(">II", head[16:]) == (width, height),
            f"{width} by {height}: the PNG begins {head}")
        os.remove(picture)
        os.remove(out)


def check_long_paths(program, folder):
    """Pictures behind PATH_MAX are pictures like others."""
    source, lib = os.path.join(folder, "source"), os.path.join(folder, "lib")
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(lib, ignore_errors=True)
    os.mkdir(source)
    picture = b"P6\n64 64\n255\n" + bytes(64 * 64 * 3)
    before, depth = os.open(".", os.O_RDONLY), 0
    os.chdir(source)
    for depth in range(25):
        write("picture.ppm", picture)
        os.mkdir("x" * 250)
        os.chdir("x" * 250)
    os.fchdir(before)
    os.close(before)
    done = support.run_program(program, "index", source, "-o", lib, "--scales", "1", "--json",
                               "--strict")
    subprocess.run(["rm", "-rf", source], check=True)
    support.require(done.returncode == 0, f"long paths: {done.stderr}")
    report = json.loads(done.stdout)
    support.require(report["library"]["pictures"] == depth + 1 and report["left_out"] == [],
                    f"long paths: {report}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as outer:
        folder = os.path.join(outer, "work")
        os.mkdir(folder)
        kinds = []
        for kind, name, data in (("jpeg", "a.jpg", blank_jpeg(64, 64)), ("png", "a.png",
                                                                         grey_png(64, 64))):
            if index(program, folder, {name: data})[2] == 0:
                kinds.append(kind)
        index(program, folder, {"a.ppm": b"P6\n64 64\n255\n" + bytes(64 * 64 * 3)})
        shutil.move(os.path.join(folder, "lib"), os.path.join(outer, "lib"))
        if "jpeg" in kinds:
            check_good_jpegs(program, folder)
            check_kinds_of_jpegs(program, folder)
        shutil.rmtree(os.path.join(folder, "lib"), ignore_errors=True)
        check_claims(program, folder, kinds)
        check_no_memory(program, folder)
        if "png" in kinds:
            check_large_sides(program, folder, os.path.join(outer, "lib"))
        check_long_paths(program, folder)
    print(f"good pictures are taken; kinds read beside PPM: {', '.join(kinds) or 'none'}")


if __name__ == "__main__":
    main()
