"""The library and the collage once more, written from docs/apps/collage.md and not from the
program: slow and plain."""
import os
import struct

SIDE, BINS, TABLES, PER_TABLE, CAP, FALLBACK = 32, 768, 32, 6, 32, 256
MASK = (1 << 64) - 1
GOLDEN = 0x9e3779b97f4a7c15


def mix(x):
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & MASK
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & MASK
    return x ^ (x >> 31)


def halve(picture):
    """(width, height, rgb) at half the scale."""
    width, height, rgb = picture
    w, h = width // 2, height // 2
    out = bytearray()
    for y in range(h):
        for x in range(w):
            for c in range(3):
                corner = ((2 * y) * width + 2 * x) * 3 + c
                out.append((rgb[corner] + rgb[corner + 3] + rgb[corner + width * 3]
                            + rgb[corner + width * 3 + 3] + 2) // 4)
    return w, h, bytes(out)


def all_tiles(pictures, stride, scales):
    """Every tile that could be cut, in the order of their numbers; pictures in the order of their
    paths."""
    for picture in pictures:
        level = (picture.width, picture.height, picture.rgb)
        for _ in range(scales):
            width, height, rgb = level
            if width < SIDE or height < SIDE:
                break
            for y in range(0, height - SIDE + 1, stride):
                for x in range(0, width - SIDE + 1, stride):
                    yield b"".join(rgb[((y + r) * width + x) * 3:((y + r) * width + x + SIDE) * 3]
                                   for r in range(SIDE))
            level = halve(level)


def kept_tiles(pictures, stride, scales, wanted):
    tiles = list(all_tiles(pictures, stride, scales))
    wanted = wanted or len(tiles)
    return [tile for i, tile in enumerate(tiles)
            if i * wanted // len(tiles) != (i + 1) * wanted // len(tiles)]


def histogram(rgb):
    counts = [0] * BINS
    for i, value in enumerate(rgb):
        counts[(i % 3) * 256 + value] += 1
    return counts


class Hashes:
    """The hash functions of a library."""

    def __init__(self, seed, width, slots):
        self.width, self.slots = width, slots
        self.coefficients, self.offsets = [], []
        for p in range(TABLES * PER_TABLE):
            row = []
            for channel in range(3):
                knots = []
                for k in range(9):
                    r = mix((seed + ((p * 3 + channel) * 9 + k + 1) * GOLDEN) & MASK)
                    knots.append(sum(r >> (8 * i) & 255 for i in range(4)) - 510)
                row += [knots[f // 4] * (4 - f % 4) + knots[f // 4 + 1] * (f % 4)
                        for f in range(32)]
            self.coefficients.append(row)
            self.offsets.append(mix(((~seed & MASK) + (p + 1) * GOLDEN) & MASK) % width)

    def keys(self, counts):
        features = [sum(counts[8 * f:8 * f + 8]) for f in range(96)]
        used = [(f, n) for f, n in enumerate(features) if n]
        out = []
        for table in range(TABLES):
            key = mix(((table + 1) * GOLDEN) & MASK)
            for p in range(table * PER_TABLE, (table + 1) * PER_TABLE):
                total = sum(n * self.coefficients[p][f] for f, n in used)
                key = mix((key + (total + 6291456 + self.offsets[p]) // self.width) & MASK)
            out.append(key)
        return out

    def bucket(self, key):
        return (key >> 32) & (self.slots - 1), key & 0xffffffff


def build_tables(hashes, histograms):
    """For each table: {(slot, fingerprint): ids in the order of the file}."""
    tables = [{} for _ in range(TABLES)]
    for number, counts in enumerate(histograms):
        for table, key in enumerate(hashes.keys(counts)):
            tables[table].setdefault(hashes.bucket(key), []).append(number)
    for table, buckets in enumerate(tables):
        for ids in buckets.values():
            ids.sort(key=lambda number: (
                mix(((table // 8 << 32 | number) + GOLDEN) & MASK) & 0xffffffff, number))
            del ids[CAP:]
    return tables


class Library:
    """A library's files, read as docs/apps/collage.md describes them."""

    def __init__(self, path):
        def load(name):
            with open(os.path.join(path, name), "rb") as file:
                return file.read()
        head = load("header")
        (self.magic, self.version, _, self.count, self.seed, _, _, _, _, self.width, self.slots, _,
         _, self.pictures, self.stride,
         self.scales) = struct.unpack_from("<8sIIQQIIIIIIIIIII", head)
        self.tiles, records = load("tiles"), load("histograms")
        self.histograms = [list(struct.unpack_from("<768I", records, 4096 * i))
                           for i in range(self.count)]
        self.padding = [records[4096 * i + 3072:4096 * (i + 1)] for i in range(self.count)]
        self.hashes = Hashes(self.seed, self.width, self.slots)
        self.tables = [self.table(load(f"lsh-{t:02}")) for t in range(TABLES)]

    def table(self, data):
        begins = struct.unpack_from(f"<{self.slots + 1}I", data, 4096)
        first = (4096 + 4 * (self.slots + 1) + 4095) // 4096 * 4096
        buckets = {}
        for slot in range(self.slots):
            for i in range(begins[slot], begins[slot + 1]):
                fingerprint, number = struct.unpack_from("<II", data, first + 8 * i)
                buckets.setdefault((slot, fingerprint), []).append(number)
        return buckets

    def tile(self, number):
        return self.tiles[3072 * number:3072 * (number + 1)]

    def candidates(self, counts):
        found = set()
        for table, key in enumerate(self.hashes.keys(counts)):
            found.update(self.tables[table].get(self.hashes.bucket(key), []))
        if not found:
            some = min(FALLBACK, self.count)
            found = {i * self.count // some for i in range(some)}
        return found

    def best(self, counts):
        return min((sum((a - b) ** 2 for a, b in zip(counts, self.histograms[n]) if a != b), n)
                   for n in self.candidates(counts))[1]


def collage(library, picture):
    """The collage, the number of comparisons and of different tiles compared."""
    out = bytearray(len(picture.rgb))
    compared, different = 0, set()
    for top in range(0, picture.height, SIDE):
        for left in range(0, picture.width, SIDE):
            block = b"".join(picture.pixel(min(left + x, picture.width - 1),
                                           min(top + y, picture.height - 1))
                             for y in range(SIDE) for x in range(SIDE))
            counts = histogram(block)
            candidates = library.candidates(counts)
            compared += len(candidates)
            different |= candidates
            tile = library.tile(library.best(counts))
            width = min(SIDE, picture.width - left) * 3
            for y in range(min(SIDE, picture.height - top)):
                at = ((top + y) * picture.width + left) * 3
                out[at:at + width] = tile[y * 96:y * 96 + width]
    return bytes(out), compared, len(different)
