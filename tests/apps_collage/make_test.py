"""A collage is the best of its candidates, block by block, by every method: make_test.py PROGRAM
[MAKER].

The candidates, the distances and the choice are computed a second time from the library's files.
MAKER makes the collages, for the canary: a program with a wrong distance must be found out."""
import json
import os
import sys
import tempfile

import collage_reference as reference
import collage_support as support


# A cache of eight pages, so that every page is evicted many times; pages smaller than a histogram;
# a library that is in the cache before, read by whole thread blocks where there are any.
FLAGS = {"penstock": [[], ["--cache", "128KiB", "--page", "4KiB", "--workers", "2"],
                      ["--page", "1KiB"], ["--page", "2KiB", "--cached", "--readers", "block"]],
         "regions": [[], ["--placement", "in-place"]]}


def collage_by(maker, method, picture, lib, folder, *flags):
    """The pixels and the report."""
    out = os.path.join(folder, "out.ppm")
    backend = support.backend_flags() if method in FLAGS else []
    done = support.must_run(maker, "make", picture, lib, "-o", out, "--method", method, "--json",
                            *backend, *flags)
    return support.read_ppm(out), json.loads(done.stdout)


def check(maker, library, lib, folder, size, seed):
    path = os.path.join(folder, "in.ppm")
    picture = support.make_picture(*size, seed)
    support.write_ppm(path, picture)
    expected, compared, different = reference.collage(library, picture)
    for method in support.methods():
        for flags in FLAGS.get(method, [[]]):
            got, report = collage_by(maker, method, path, lib, folder, *flags)
            support.require((got.width, got.height) == size, f"{method} {size}: the size differs")
            support.require(got.rgb == expected,
                            f"{method} {size} {flags}: the collage differs from the reference")
            support.require(report["evaluations"] == compared
                            and report["unique_tiles"] == different,
                            f"{method} {size}: {report['evaluations']} comparisons of "
                            f"{report['unique_tiles']} tiles, expected {compared} of {different}")
            parts, whole = report["collage_parts"], report["seconds"]["collage"]
            support.require(sorted(parts) == ["compute", "download", "order", "upload"]
                            and min(parts.values()) >= 0
                            and whole - 0.1 < sum(parts.values()) <= whole and parts["compute"] > 0,
                            f"{method} {size}: the parts {parts} are not those of {whole} s")


def make_library(program, folder, seeds, name, *flags):
    source, lib = os.path.join(folder, name + ".pictures"), os.path.join(folder, name)
    os.mkdir(source)
    for seed in seeds:
        support.write_ppm(os.path.join(source, f"{seed}.ppm"), support.make_picture(120, 90, seed))
    support.must_run(program, "index", source, "-o", lib, "--quiet", *flags)
    return lib


def main():
    program, maker = sys.argv[1], sys.argv[-1]
    with tempfile.TemporaryDirectory() as folder:
        lib = make_library(program, folder, range(6), "lib", "--stride", "8")
        library = reference.Library(lib)
        for seed, size in enumerate([(1, 1), (32, 32), (97, 70), (33, 31), (5, 129)]):
            check(maker, library, lib, folder, size, seed + 50)
        # A library in which blocks find nothing, and one with a single tile.
        far = make_library(program, folder, [7], "far", "--stride", "16", "--scales", "1")
        check(maker, reference.Library(far), far, folder, (80, 64), 90)
        single = make_library(program, folder, [8], "one", "--tiles", "1")
        check(maker, reference.Library(single), single, folder, (40, 40), 91)
    print(f"collages by {', '.join(support.methods())} are the reference's")


if __name__ == "__main__":
    main()
