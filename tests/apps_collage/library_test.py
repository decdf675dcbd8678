"""A library is, byte for byte, what docs/apps/collage.md says: library_test.py PROGRAM.

Every tile, histogram and table is computed a second time, by a program that shares no line with the
first."""
import json
import os
import sys
import tempfile

import collage_reference as reference
import collage_support as support

# width and height of pictures, stride, scales, tiles
CASES = [([(70, 100), (32, 32), (33, 40), (31, 200)], 16, 3, 0),
         ([(131, 67), (64, 64)], 7, 2, 100),
         ([(32, 32)], 32, 4, 0)]


def check(program, folder, case):
    sizes, stride, scales, wanted = case
    source, out = os.path.join(folder, "pictures"), os.path.join(folder, "lib")
    os.makedirs(os.path.join(source, "below"))
    pictures = []
    for i, (width, height) in enumerate(sizes):
        pictures.append(support.make_picture(width, height, seed=i + width))
        # The last one lies in a folder, whose name comes after those of the files.
        name = f"below/{i}.ppm" if i + 1 == len(sizes) and i else f"a{i}.ppm"
        support.write_ppm(os.path.join(source, name), pictures[-1])
    with open(os.path.join(source, "note.txt"), "w", encoding="utf-8") as file:
        file.write("no picture\n")
    flags = ["--tiles", wanted] if wanted else []
    done = support.must_run(program, "index", source, "-o", out, "--stride", stride, "--scales",
                            scales, "--json", *flags)
    report = json.loads(done.stdout)
    library = reference.Library(out)
    tiles = reference.kept_tiles(pictures, stride, scales, wanted)
    support.require(library.magic == b"PCOLLAGE" and library.version == 1,
                    "the header begins otherwise")
    support.require(library.count == len(tiles) == report["library"]["tiles"],
                    f"{library.count} tiles, expected {len(tiles)}")
    support.require(library.tiles == b"".join(tiles), "tiles differ")
    support.require(library.histograms == [reference.histogram(tile) for tile in tiles],
                    "histograms differ")
    support.require(not any(b"".join(library.padding)), "something lies between the histograms")
    support.require(library.tables == reference.build_tables(library.hashes, library.histograms),
                    "tables differ")
    support.require(report["other_files"] == 1, f"other files: {report}")
    support.require(sorted(os.listdir(folder)) == ["lib", "pictures"],
                    f"left behind: {os.listdir(folder)}")
    return len(tiles)


def same_with_any_number_of_threads(program, folder):
    source = os.path.join(folder, "pictures")
    os.mkdir(source)
    for i in range(6):
        support.write_ppm(os.path.join(source, f"{i}.ppm"),
                          support.make_picture(90 + i, 80, seed=i))
    for threads in (1, 5):
        support.must_run(program, "index", source, "-o", os.path.join(folder, f"by{threads}"),
                         "--stride", 9, "--workers", threads)
    for name in sorted(os.listdir(os.path.join(folder, "by1"))):
        with (open(os.path.join(folder, "by1", name), "rb") as file,
              open(os.path.join(folder, "by5", name), "rb") as other):
            support.require(file.read() == other.read(), f"{name} differs between 1 and 5 threads")


def main():
    program, count = sys.argv[1], 0
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            count += check(program, folder, case)
    with tempfile.TemporaryDirectory() as folder:
        same_with_any_number_of_threads(program, folder)
    print(f"{count} tiles, their histograms and tables are as documented")


if __name__ == "__main__":
    main()
