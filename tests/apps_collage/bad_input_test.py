"""What penstock-collage says to input it cannot use: exit status, one line that names the value,
and nothing left behind.

Usage: bad_input_test.py PROGRAM
"""
import base64
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import collage_reference as reference
import collage_support as support
from collage_support import refuse

# 48 by 40 pixels of slowly changing colour, by libjpeg at quality 90: red 5x, green 6y, blue 120.
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsKCwsNDhIQDQ4RDgsLEB"
    "YQERMUFRUVDA8XGBYUGBIUFRT/2wBDAQMEBAUEBQkFBQkUDQsNFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU"
    "FBQUFBQUFBQUFBQUFBQUFBT/wAARCAAoADADAREAAhEBAxEB/8QAFwABAQEBAAAAAAAAAAAAAAAABgcFCf/EABgQAAIDAA"
    "AAAAAAAAAAAAAAAAAEBiIx/8QAFwEBAQEBAAAAAAAAAAAAAAAABgUJCP/EABgRAQEBAQEAAAAAAAAAAAAAAAQAAzEh/9oA"
    "DAMBAAIRAxEAPwDn6jH8qdDaJopF89kCMfypM0TNSL57IEY/lSdombEXz2QIx/Kk3RM1IvnsgRj+VJuiZqRfPZAjHsqTNE"
    "zYi+e0qRj+VGGibL8i+eyBGP5Um6JmpF89kCMfypN0TNSL57IEY/lSbombEXz2QIx/Kk3RM1IvnsgRj+VJuiZqRfPaVox/"
    "KjDRNl+RnLfRj+VJuiZqRnJAjHsqTdEzUjOSBGPZUm6JmxGct9GP5Um6JmpGckCMfypN0TNSM5StGP5UX6JsvyL57IEY/l"
    "SdomakXz2QIx/KkzRM1IvnsgRj+VJuiZsRfPZAjH8qTdEzUi+eyBGP5UnaJmpF89pUjH8qL9E2X5F89kCMfypN0TNiL57I"
    "EY/lSbomakXz2QIx/Kk3RM1IvnsgRj+VJuiZsRfPZAjH8qTdEzUi+e3/2Q==")


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)
    return path


def reads(program, folder, name, data):
    """True if this build reads such pictures."""
    source = os.path.join(folder, "probe")
    os.mkdir(source)
    write(os.path.join(source, name), data)
    done = support.run_program(program, "index", source, "-o", os.path.join(folder, "probe.lib"),
                               "--quiet")
    shutil.rmtree(source)
    shutil.rmtree(os.path.join(folder, "probe.lib"), ignore_errors=True)
    if done.returncode != 0:
        support.require(b"built without" in done.stderr, f"{name}: {done.stderr!r}")
        print(f"{name}: this build does not read such pictures; left out")
    return done.returncode == 0


def check_usage(program, folder, lib, picture):
    out = os.path.join(folder, "out.ppm")
    make, index = (["make", picture, lib, "-o", out],
                   ["index", folder, "-o", os.path.join(folder, "new")])
    for arguments, names in [
            ([], ["no command", "index or make"]), (["mkae", picture], ["'mkae'", "index or make"]),
            (["make", picture], ["--help"]),
            ([*make, "--method", "cpu", "--cached"], ["--cached", "cpu", "--method penstock"]),
            ([*make, "--method", "regions", "--readers", "warp"], ["--readers", "regions"]),
            ([*make, "--placement", "filled"], ["--placement", "--method regions"]),
            ([*make, "--method", "magic"], ["--method", "'magic'"]),
            (["make", picture, lib, "-o", "out.gif"], ["out.gif", ".ppm"]),
            ([*make, "--page", "3000"], ["3000", "power of two"]),
            ([*make, "--backend", "tpu"], ["--backend", "'tpu'"]),
            ([*make, "--cache", "0"], ["--cache", "'0'"]),
            ([*index, "--tiles", "0"], ["--tiles", "'0'"]),
            ([*index, "--stride", "-1"], ["--stride", "'-1'"]),
            ([*index, "--scales", "99"], ["--scales", "'99'"]),
            ([*index, "--tiles", "many"], ["--tiles", "'many'"])]:
        refuse(program, arguments, names, status=2)
    support.require(not os.path.exists(out), "output of a refused call")


def check_index(program, folder):
    source, lib = os.path.join(folder, "some"), os.path.join(folder, "some.lib")
    os.mkdir(source)
    refuse(program, ["index", source, "-o", lib], ["some", "no picture"])
    refuse(program, ["index", os.path.join(folder, "absent"), "-o", lib], ["absent", "ENOENT"])
    write(os.path.join(source, "small.ppm"), b"P6 2 2 255 " + bytes(12))
    refuse(program, ["index", source, "-o", lib], ["1 too small"])
    support.write_ppm(os.path.join(source, "good.ppm"), support.make_picture(80, 80, 1))
    refuse(program, ["index", source, "-o", lib, "--tiles", "1000000"],
           ["--tiles", "1,000,000", "fewer"])
    refuse(program, ["index", source, "-o", os.path.join(folder, "no", "lib")],
           ["no/lib", "ENOENT"])
    refuse(program, ["index", source, "-o", source], ["some", "other things"])
    refuse(program, ["index", source, "-o", os.path.join(source, "good.ppm")],
           ["good.ppm", "no folder"])
    os.mkdir(lib)
    for name in (".", "./", "..", os.path.join(folder, "."), f"{lib}/./", f"{lib}/.."):
        refuse(program, ["index", source, "-o", name], [f"'{name}'", "EINVAL", "its own name"],
               cwd=lib)
    support.require(os.listdir(lib) == [], "a failed index left something")
    os.rmdir(lib)
    support.require(not os.path.exists(lib), "a failed index left a library")
    refuse(program, ["index", source, "-o", lib, "--stride", "4"],
           ["histograms", "EFBIG", "make room"], preexec_fn=support.limit_files)
    support.require(sorted(name for name in os.listdir(folder) if name.startswith("some"))
                    == ["some"],
                    f"left: {os.listdir(folder)}")
    # An older library is replaced, and only a library.
    support.must_run(program, "index", source, "-o", lib)
    support.must_run(program, "index", source, "-o", lib, "--stride", "8")
    support.require(reference.Library(lib).stride == 8, "the library was not replaced")
    write(os.path.join(lib, "diary"), b"mine")
    refuse(program, ["index", source, "-o", lib], ["diary", "no part of a library"])
    support.require(reference.Library(lib).stride == 8, "a refused index changed the library")


def check_no_library(program, folder):
    """Only a library is replaced: not a folder whose files have the names of one."""
    source, out = os.path.join(folder, "for_none"), os.path.join(folder, "mine")
    os.mkdir(source)
    support.write_ppm(os.path.join(source, "good.ppm"), support.make_picture(80, 80, 1))
    real = os.path.join(folder, "for_none.lib")
    support.must_run(program, "index", source, "-o", real)
    header = open(os.path.join(real, "header"), "rb").read()
    for files in ({"header": b"title,author\n"}, {"header": b"", "tiles": b"mine"},
                  {"header": header + b"more", "tiles": b"mine"},
                  {"header": b"X" + header[1:], "tiles": b"mine"}):
        os.mkdir(out)
        for name, data in files.items():
            write(os.path.join(out, name), data)
        refuse(program, ["index", source, "-o", out], ["mine", "other things"])
        support.require({name: open(os.path.join(out, name), "rb").read()
                         for name in os.listdir(out)} == files, f"{files}: {os.listdir(out)}")
        shutil.rmtree(out)
    # Names of a library, but another kind of file.
    for make in (os.mkdir, os.mkfifo, lambda path: os.symlink("header", path)):
        shutil.copytree(real, out)
        os.remove(os.path.join(out, "tiles"))
        make(os.path.join(out, "tiles"))
        refuse(program, ["index", source, "-o", out], ["mine", "'tiles'", "no part of a library"])
        support.require(os.path.lexists(os.path.join(out, "tiles")), "tiles was removed")
        shutil.rmtree(out)
    # A folder that cannot be listed is not empty for that.
    os.mkdir(out)
    write(os.path.join(out, "tiles"), b"mine")
    os.chmod(out, 0o300)
    try:
        os.listdir(out)  # root may
    except PermissionError:
        refuse(program, ["index", source, "-o", out], ["mine", "EACCES"])
        support.require(os.path.exists(os.path.join(out, "tiles")), "tiles was removed")
    os.chmod(out, 0o700)
    shutil.rmtree(out)


def check_damaged_pictures(program, folder, kinds):
    source, lib = os.path.join(folder, "damaged"), os.path.join(folder, "damaged.lib")
    os.mkdir(source)
    good = support.make_picture(96, 64, 3)
    support.write_ppm(os.path.join(source, "m.ppm"), good)
    ppm = open(os.path.join(source, "m.ppm"), "rb").read()
    bad = {"a_cut.ppm": ppm[:len(ppm) // 2], "z_head.ppm": b"P6\n0 x\n255\n"}
    if "jpeg" in kinds:
        bad |= {"b_cut.jpg": JPEG[:len(JPEG) * 2 // 3], "n_head.jpg": JPEG[:30]}
    if "png" in kinds:
        rows = [bytes(range(120)) for _ in range(40)]
        png = support.png_bytes(40, 40, 2, rows)
        bad |= {"c_cut.png": png[:len(png) - 30],
                "q_bits.png": png[:60] + bytes([png[60] ^ 85]) + png[61:]}
    for name, data in bad.items():
        write(os.path.join(source, name), data)
    done = support.run_program(program, "index", source, "-o", lib, "--stride", "16", "--json")
    report = json.loads(done.stdout)
    support.require(done.returncode == 0 and len(report["left_out"]) == len(bad),
                    f"{report} {done.stderr}")
    for name in bad:
        support.require(name.encode() in done.stderr, f"{name} is not named: {done.stderr!r}")
    tiles = reference.kept_tiles([good], 16, 4, 0)
    support.require(reference.Library(lib).tiles == b"".join(tiles),
                    "the library holds more or less than the good picture")
    shutil.rmtree(lib)
    done = support.run_program(program, "index", source, "-o", lib, "--strict")
    support.require(done.returncode == 1 and b"--strict" in done.stderr and not os.path.exists(lib),
                    f"--strict: {done}")
    for name in bad:
        for method in support.methods():
            out = os.path.join(folder, "never.ppm")
            refuse(program, ["make", os.path.join(source, name), os.path.join(folder, "lib"), "-o",
                             out, "--method", method],
                   [name])
            support.require(not os.path.exists(out), "output from a damaged picture")


def check_damaged_library(program, folder, lib, picture):
    copy, out = os.path.join(folder, "copy"), os.path.join(folder, "out.ppm")

    def damage(name, change, names):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(lib, copy)
        path = os.path.join(copy, name)
        change(path)
        for method in support.methods():
            flags = support.backend_flags() if method == "penstock" else []
            refuse(program,
                   ["make", picture, copy, "-o", out, "--method", method, "--quiet", *flags], names)
            support.require(not os.path.exists(out), "output from a damaged library")

    def cut(path):
        os.truncate(path, os.path.getsize(path) - 1)

    def put(at, data):
        def change(path):
            with open(path, "r+b") as file:
                file.seek(at)
                file.write(data)
        return change

    damage("header", os.remove, ["copy/header", "ENOENT"])
    damage("header", cut, ["copy/header", "should have"])
    damage("header", lambda path: os.truncate(path, 0), ["copy/header", "0 bytes"])
    damage("header", put(0, b"X"), ["copy/header", "not the header"])
    damage("header", put(8, struct.pack("<I", 9)), ["copy/header", "version 9"])
    damage("header", put(24, b"\1"), ["copy/header", "checksum"])
    for name in ("histograms", "tiles", "lsh-00", "lsh-31"):
        damage(name, cut, ["copy/" + name, "should have"])
        damage(name, os.remove, ["copy/" + name, "ENOENT"])
    damage("lsh-07", lambda path: shutil.copy(os.path.join(lib, "lsh-08"), path),
           ["lsh-07", "does not belong"])
    # What only shows while it is read: begins of slots that run backwards, and tiles that are not
    # there.
    slots = reference.Library(lib).slots
    damage("lsh-03", put(4096, struct.pack("<I", 0xffffff00) * (slots + 1)),
           ["copy", "hash table", "damaged"])
    first = (4096 + 4 * (slots + 1) + 4095) // 4096 * 4096
    size = os.path.getsize(os.path.join(lib, "lsh-05"))

    def wrong_ids(path):
        data = bytearray(open(path, "rb").read())
        for at in range(first + 4, size, 8):
            data[at:at + 4] = b"\xff\xff\xff\x7f"
        write(path, data)
    damage("lsh-05", wrong_ids, ["copy", "hash table", "damaged"])
    refuse(program, ["make", picture, os.path.join(folder, "absent"), "-o", out],
           ["absent/header", "ENOENT"])
    refuse(program, ["make", os.path.join(folder, "absent"), lib, "-o", out], ["absent", "ENOENT"])
    refuse(program, ["make", picture, lib, "-o", os.path.join(folder, "no", "out.ppm")],
           ["no/out.ppm", "ENOENT"])
    full = support.run_program(program, "make", picture, lib, "-o", "/dev/full", "--quiet")
    support.require(full.returncode == 2 and b".ppm" in full.stderr, f"/dev/full: {full}")


def check_kinds(program, folder, lib, kinds):
    """Pictures of every kind are read as what they show."""
    if "jpeg" in kinds:
        source = os.path.join(folder, "jpeg")
        os.mkdir(source)
        write(os.path.join(source, "one.jpg"), JPEG)
        support.must_run(program, "index", source, "-o", source + ".lib", "--scales", "1")
        tile = reference.Library(source + ".lib").tile(0)
        far = max(abs(tile[(y * 32 + x) * 3 + c] - (5 * x, 6 * y, 120)[c]) for y in range(32)
                  for x in range(32) for c in range(3))
        support.require(far < 14, f"a JPEG is read up to {far} away from what it shows")
    if "png" not in kinds:
        return
    grey = [bytes((x * 5 + y * 3) % 256 for x in range(45)) for y in range(37)]
    rgb = [b"".join(bytes([v, v, v]) for v in row) for row in grey]
    palette = b"PLTE" + b"".join(bytes([v, v, v]) for v in range(256))
    chunk = (struct.pack(">I", len(palette) - 4) + palette
             + struct.pack(">I", __import__("zlib").crc32(palette)))
    forms = {"grey": (0, 8, grey, b""), "rgb": (2, 8, rgb, b""), "palette": (3, 8, grey, chunk),
             "rgba": (6, 8,
                      [b"".join(bytes([v, v, v, (v * 7) % 256]) for v in row) for row in grey],
                      b""),
             "grey16": (0, 16, [b"".join(bytes([v, v]) for v in row) for row in grey], b"")}
    seen = {}
    for name, (colour, depth, rows, more) in forms.items():
        path = write(os.path.join(folder, name + ".png"),
                     support.png_bytes(45, 37, colour, rows, depth, more))
        out = os.path.join(folder, name + ".collage.png")
        support.must_run(program, "make", path, lib, "-o", out, *support.backend_flags())
        seen[name] = support.read_png(out)
    expected = reference.collage(reference.Library(lib), support.Picture(45, 37, b"".join(rgb)))[0]
    for name, picture in seen.items():
        support.require((picture.width, picture.height) == (45, 37) and picture.rgb == expected,
                        f"the collage of {name}.png differs")


def check_interrupt(program, folder):
    source, lib = os.path.join(folder, "long"), os.path.join(folder, "long.lib")
    os.mkdir(source)
    picture = support.make_picture(256, 256, 4)
    support.write_ppm(os.path.join(source, "one.ppm"),
                      support.Picture(1024, 1024, picture.rgb * 16))
    child = subprocess.Popen([program, "index", source, "-o", lib, "--stride", "1", "--scales",
                              "1"],
                             stderr=subprocess.PIPE)
    for _ in range(400):
        if any(name.startswith("long.lib") for name in os.listdir(folder)):
            break
        time.sleep(0.01)
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=1000)
    support.require(child.returncode == 1 and b"interrupted" in said,
                    f"interrupted: {child.returncode}, {said!r}")
    left = [name for name in os.listdir(folder) if name.startswith("long.lib")]
    support.require(not left, f"an interrupted index left {left}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        rows = [bytes(120) for _ in range(40)]
        kinds = [kind for kind, name, data in [("jpeg", "p.jpg", JPEG),
                                               ("png", "p.png", support.png_bytes(40, 40, 2, rows))]
                 if reads(program, folder, name, data)]
        source, lib, picture = (os.path.join(folder, name)
                                for name in ("pictures", "lib", "in.ppm"))
        os.mkdir(source)
        support.write_ppm(os.path.join(source, "one.ppm"), support.make_picture(100, 90, 2))
        support.must_run(program, "index", source, "-o", lib, "--stride", "6")
        support.write_ppm(picture, support.make_picture(64, 40, 5))
        check_usage(program, folder, lib, picture)
        check_index(program, folder)
        check_no_library(program, folder)
        check_damaged_pictures(program, folder, kinds)
        check_damaged_library(program, folder, lib, picture)
        check_kinds(program, folder, lib, kinds)
        check_interrupt(program, folder)
    print("bad input is named and leaves nothing behind; kinds read beside PPM: "
          f"{', '.join(kinds) or 'none'}")


if __name__ == "__main__":
    main()
