"""What penstock-match make promises: files that the seed alone decides, and matches that are found:
make_test.py PROGRAM."""
import json
import os
import struct
import sys
import tempfile

import match_support as support

MASK = 2 ** 64 - 1


def mix(x):
    x ^= x >> 30
    x = x * 0xbf58476d1ce4e5b9 & MASK
    x ^= x >> 27
    x = x * 0x94d049bb133111eb & MASK
    return x ^ x >> 31


def even(seed, database, image, place):
    start = mix(mix(seed + database) + image & MASK)
    return (mix(start + place & MASK) >> 40) * 2.0 ** -24


def make(program, folder, *flags):
    done = support.must_run(program, "make", folder, "--json", "--quiet", *flags)
    return json.loads(done.stdout)


def check_files(program, folder):
    at = os.path.join(folder, "small")
    report = make(program, at, "--queries", 10, "--images", 40, "--databases", 2, "--shape",
                  "5x3x2", "--seed", 77, "--matches", "0.7")
    names = ["queries.images", "database-1.images", "database-2.images"]
    support.require(sorted(os.listdir(at)) == sorted(names), f"made {os.listdir(at)}")
    support.require(report["files"] == [os.path.join(at, name) for name in names],
                    f"files {report['files']}")
    support.require(report["bytes"] == sum(os.path.getsize(path) for path in report["files"]),
                    f"bytes {report['bytes']}")
    images = []
    for name, count in zip(names, (10, 40, 40)):
        shape, data = support.read_images(os.path.join(at, name))
        support.require(shape == (5, 3, 2) and len(data) == count,
                        f"{name}: {len(data)} images of {shape}")
        images.append(data)
    for image in (0, 9):
        for place in (0, 29):
            support.require(images[0][image][place] == even(77, 0, image, place),
                            f"query {image}: number {place} is not what the seed says")
    support.require(report["planted"] == 7, f"planted {report['planted']}")
    # What is planted is nearer than the noise can make it, and an image that is not is far.
    near, far = 0, 0
    for database in (1, 2):
        for number, image in enumerate(images[database]):
            best = min(support.distance(query, image) for query in images[0])
            if best < report["threshold"]:
                near += 1
            else:
                far += 1
                support.require(image[3] == even(77, database, number, 3),
                                f"database {database}: image {number} is not what the seed says")
    support.require(7 <= near <= 11 and near + far == 80, f"{near} images are like a query")
    again = make(program, at + " again", "--queries", 10, "--images", 40, "--databases", 2,
                 "--shape", "5x3x2", "--seed", 77, "--matches", "0.7", "--workers", 1)
    for path, other in zip(report["files"], again["files"]):
        with open(path, "rb") as a, open(other, "rb") as b:
            support.require(a.read() == b.read(), f"{path} and {other} differ")


def check_found(program, folder):
    at = os.path.join(folder, "found")
    report = make(program, at, "--queries", 300, "--images", 500, "--shape", "16x16")
    for method in support.methods():
        lines, found, _ = support.search(program, method, report["files"][0], report["files"][1:],
                                         report["threshold"])
        support.require(found["matched"] == report["planted"] == 150,
                        f"{method}: {found['matched']} found of {report['planted']}")
        support.require(all((line is not None) == (i % 2 == 1) for i, line in enumerate(lines)),
                        f"{method}: other queries than those planted")


def check_edges(program, folder):
    report = make(program, os.path.join(folder, "none"), "--queries", 5, "--images", 0,
                  "--databases", 1, "--shape", "1x1")
    support.require(report["planted"] == 0, f"planted {report['planted']} in nothing")
    report = make(program, os.path.join(folder, "full"), "--queries", 9, "--images", 2,
                  "--databases", 2, "--shape", "8x8", "--matches", "1")
    support.require(2 <= report["planted"] <= 4,
                    f"planted {report['planted']} in two databases of two")
    with open(report["files"][0], "rb") as file:
        head = struct.unpack("<8sIIQIIIIQ16x", file.read(64))
    support.require(head == (b"PIMAGES1", 1, 64, 9, 8, 8, 1, 64, 4096), f"header {head}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        check_files(program, folder)
        check_found(program, folder)
        check_edges(program, folder)
    print("made files are what the seed says, and their matches are found")


if __name__ == "__main__":
    main()
