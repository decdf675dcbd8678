"""The table of tools/app_bench.py: what is run for each application, on which input, and which
fields of the program's JSON the result keeps. A new application is a row of APPLICATIONS, and a
function that makes its input.

Words of a command are templates: settings, values of the case, `backend` and `result` (the file
that the program writes and that is compared) stand in braces. A word that is only a list becomes
several; a flag with an empty value goes."""
import collections.abc
import dataclasses
import itertools
import json
import os
import pathlib
import re
import struct
import typing

from bench_machine import significant

Values = dict[str, typing.Any]


class UsageError(Exception):
    """A setting or argument that cannot be used; the text names it and the cure."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A way of doing the work: Penstock's, a baseline in the same program, or a foreign program."""
    name: str
    text: str  # a baseline's description, or how Penstock's way differs from its others
    flags: str = ""
    first_flags: str = ""  # besides, for the first process of a case
    is_baseline: bool = True
    needs_gpu: bool = False
    variables: tuple[str, ...] = ()  # of the environment, besides: "PENSTOCK_LINKS=off"
    repeats: str = "repeats"  # the setting with the number of processes
    stage: int = 1  # 0: before the others; 1: in turns with the others of stage 1; 2: after them
    # Writes numbers that may differ in their last bits: its results are not compared, and --check
    # of the program judges the first.
    rounds_otherwise: bool = False
    tool: str = ""  # the setting that names a foreign program; `flags` is then its command


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """An input: every method runs on it, and all write the same, but for those that round
    otherwise."""
    name: str
    inputs: list[pathlib.Path]  # what is warm, or cold, when a process starts
    values: Values = dataclasses.field(default_factory=dict)
    folder: pathlib.Path | None = None  # in which programs run


@dataclasses.dataclass(frozen=True)
class Figure:
    """A time that is a row of the result. `seconds` and the values of other tables here are paths
    in the JSON of a process: `a.b+c.d` is a sum, `a.1:` all but the first of a list."""
    text: str
    seconds: str
    unit: str
    value: collections.abc.Callable[[float, Values], float]  # of the median and the facts
    methods: tuple[str, ...] = ()  # only these of Penstock's; empty: all


class Bench(typing.Protocol):
    """What a function that makes input is handed."""
    settings: Values
    data: pathlib.Path
    out: pathlib.Path

    def program(self, words: str, values: Values) -> Values: ...


@dataclasses.dataclass(frozen=True)
class Application:
    program: str
    goal: str
    title: str
    case_text: str  # a row's name, from facts, values of the case, `figure` and `way`
    run: str
    cases: collections.abc.Callable[[Bench], collections.abc.Iterator[Case]]
    methods: tuple[Method, ...]
    figures: tuple[Figure, ...]
    settings: dict[str, str]
    measures: dict[str, str]  # kept of every process, with the median
    facts: dict[str, str]  # kept of the first process of a method
    counted: str = ""  # the fact that foreign programs count too
    columns: tuple[str, ...] = ()  # facts that the text table shows
    result: str = "result"  # the name of the file that is compared
    made_row: collections.abc.Callable[[Values], Values] | None = None  # of the report of making


def bytes_of(name: str, text: str) -> int:
    found = re.fullmatch(r"([0-9.]+) ?(?:([KMGT])iB?)?", text)
    try:
        if found:
            return round(float(found[1]) * 1024 ** (" KMGT".index(found[2] or " ")))
    except ValueError:
        pass
    raise UsageError(f"{name} '{text}' cannot be used; give a size such as 16GiB")


def folder_bytes(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def collage_cases(bench: Bench) -> collections.abc.Iterator[Case]:
    """DATA_DIR is the library, made of `pictures` unless it has as many tiles; the number of tiles
    is in its header. Each of the pictures is a case."""
    tiles, header = bench.settings["tiles"], bench.data / "header"
    pictures = pathlib.Path(bench.settings["pictures"])
    if not pictures.is_dir():
        raise UsageError(f"pictures '{pictures}' is no folder; give pictures=FOLDER")
    there = header.read_bytes()[16:24] if header.is_file() else b""
    if len(there) == 8 and struct.unpack("<Q", there)[0] == int(tiles):
        print(f"library: {bench.data} has {tiles} tiles")
    else:
        print(f"library: making {tiles} tiles of {pictures}")
        bench.program("index {pictures} -o {library} --tiles {tiles} --json",
                      {"library": bench.data})
    of_all = folder_bytes(bench.data)
    cache = bench.settings["cache"] or of_all // 16
    for picture in sorted(pictures.iterdir()):
        if picture.suffix in (".jpg", ".jpeg", ".png", ".ppm"):
            yield Case(picture.stem, sorted(bench.data.iterdir()),
                       {"picture": picture, "library": bench.data, "cache": cache,
                        "room": of_all + of_all // 8})


def devices_cases(bench: Bench) -> collections.abc.Iterator[Case]:
    """The same with some of the pictures, and the first device for the baseline."""
    settings = bench.settings
    if not re.fullmatch(r"[0-9]+(,[0-9]+)+", settings["devices"]):
        raise UsageError(f"devices '{settings['devices']}' cannot be used; give two or more such "
                         "as 0,1")
    more: Values = {"device": settings["devices"].split(",")[0],
                    "count": settings["devices"].count(",") + 1}
    for case in itertools.islice(collage_cases(bench), int(settings["cases"])):
        yield dataclasses.replace(case, values=case.values | more)


def grep_tree(tree: pathlib.Path, most: int) -> None:
    """Copies source files of this machine."""
    print(f"tree: making {tree} of the source files of this machine")
    left_out, found = {pathlib.Path("/proc"), pathlib.Path("/tmp"), tree}, []
    for folder, folders, names in os.walk("/"):
        here = pathlib.Path(folder)
        folders[:] = [name for name in folders if here / name not in left_out
                      and not os.path.ismount(here / name)]
        found += [here / name for name in names
                  if name.endswith((".py", ".h", ".hpp", ".c", ".cuh", ".pyi"))]
    found = [path for path in found if path.is_file() and not path.is_symlink()
             and path.stat().st_size <= 2047 * 1024]
    for path in sorted(found)[:most]:
        copy = tree / path.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            copy.write_bytes(path.read_bytes())
        except OSError:
            continue


def grep_cases(bench: Bench) -> collections.abc.Iterator[Case]:
    """DATA_DIR is the tree, made if it is not there; `words` is the dictionary, made of words of
    the tree if it is not there."""
    tree = bench.data
    if not any(tree.iterdir()):
        grep_tree(tree, int(bench.settings["files"]))
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    words = pathlib.Path(bench.settings["words"] or f"{tree}-words").resolve()
    if not words.is_file():
        found: set[bytes] = set()
        for path in files[:4000]:
            found.update(re.findall(rb"[A-Za-z_][A-Za-z0-9_]*", path.read_bytes()))
        taken = sorted(word for word in found if len(word) < 200)
        words.write_bytes(b"".join(word + b"\n" for word in
                                   taken[:int(bench.settings["most_words"])]))
    print(f"tree: {len(files)} files; dictionary: {words}")
    yield Case("tree", files, {"words": words}, folder=tree)


def index_row(report: Values) -> Values:
    """How fast the library was made, beside what the paper's library would need."""
    seconds, tiles = report["seconds"], report["library"]["tiles"]
    rate, wanted = tiles / seconds["total"], 2000000 / 120
    phases = ", ".join(f"{name} {seconds[name]:.2f} s"
                       for name in ("find", "cut", "width", "tables"))
    return {"goal": "S16", "backend": "cpu", "page_bytes": 4096, "value": significant(rate, 5),
            "case": f"index: library of {tiles} tiles from {report['pictures']} pictures",
            "unit": "tiles/s", "baseline": "two million tiles in two minutes",
            "baseline_value": round(wanted, 1), "ratio": significant(rate / wanted),
            "cpu_cores_used": round(report["cpu_seconds"] / seconds["total"], 2),
            "note": f"{seconds['total']:.2f} s with {report['threads']} threads: {phases}"}


MATCH_CASES = {
    "whole": ("no match, every pair compared to its end", "--threshold 1e-12 --whole"),
    "half-whole": ("half of the queries match, every pair compared to its end",
                   "--threshold {planted} --whole"),
    "none": ("no match", "--threshold 1e-12"),
    "first": ("every query matches the first image", "--threshold 1e30")}


def match_cases(bench: Bench) -> collections.abc.Iterator[Case]:
    """Queries and databases, made unless those of the same sizes are there."""
    chosen = bench.settings["cases"].split()
    for name in chosen:
        if name not in MATCH_CASES:
            raise UsageError(f"no case '{name}' of match; there are {', '.join(MATCH_CASES)}")
    wanted = [bench.settings[name] for name in ("images", "databases", "queries", "shape")]
    asked, made = bench.data / "asked", bench.data / "make.json"
    if asked.is_file() and made.is_file() and asked.read_text(encoding="utf-8").split() == wanted:
        print(f"data: {bench.data} has databases and queries of these sizes")
    else:
        print(f"data: making {wanted[1]} databases of {wanted[0]} images, {wanted[2]} queries")
        asked.unlink(missing_ok=True)
        report = bench.program("make {data} --images {images} --databases {databases} --queries "
                               "{queries} --shape {shape} --quiet --json", {"data": bench.data})
        made.write_text(json.dumps(report), encoding="utf-8")
        asked.write_text(" ".join(wanted), encoding="utf-8")
    planted = json.loads(made.read_text(encoding="utf-8"))["threshold"]
    files = [bench.data / f"{name}.images" for name in
             ("queries", *(f"database-{n + 1}" for n in range(int(wanted[1]))))]
    for name in chosen:
        text, flags = MATCH_CASES[name]
        yield Case(name, files, {"text": text, "files": files,
                                 "flags": flags.format(planted=planted).split()})


def matrices(bench: Bench, name: str, make: str, values: Values,
             sizes: dict[str, int]) -> collections.abc.Iterator[Case]:
    """A case on files of so many bytes each; they are made unless they are there, and removed
    unless they are to be kept."""
    files = {role: bench.data / f"{name}.{role}" for role in sizes}
    if all(files[role].is_file() and files[role].stat().st_size == sizes[role] for role in sizes):
        print(f"data: {bench.data} has the matrices of {name}")
    else:
        print(f"data: making the matrices of {name}")
        bench.program(make, {**values, **files})
    yield Case(name, list(files.values()), {**values, **files})
    if not bench.settings["keep"]:
        for path in files.values():
            path.unlink()


def vector_cases(bench: Bench) -> collections.abc.Iterator[Case]:
    """`sizes`: of the matrix, as parts of the cache."""
    columns, cache = int(bench.settings["columns"]), bytes_of("cache", bench.settings["cache"])
    for part in bench.settings["sizes"].split():
        try:
            rows = max(1, round(cache * float(part) / 4 / columns))
        except ValueError:
            raise UsageError(f"sizes '{part}' cannot be used; give parts of the cache, such as "
                             "0.25") from None
        yield from matrices(bench, "x" + part.replace(".", "_"), VECTOR_MAKE,
                            {"rows": rows, "columns": columns, "part": part},
                            {"A": rows * columns * 4, "x": columns * 4})


def product_cases(bench: Bench) -> collections.abc.Iterator[Case]:
    """`sizes`: m, n and k of each case."""
    for name in bench.settings["sizes"].split():
        if not re.fullmatch(r"\d+x\d+x\d+", name):
            raise UsageError(f"sizes '{name}' cannot be used; give m, n and k of each case, as in "
                             "16384x16384x16384")
        m, n, k = (int(number) for number in name.split("x"))
        yield from matrices(bench, name, PRODUCT_MAKE, {"m": m, "n": n, "k": k},
                            {"A": m * k * 4, "B": k * n * 4})


# The device to compute on and the page cache on it; `--page` and `--cache` take a size.
CACHED = "--backend {backend} --page {page} --cache {cache}"
ALL_CORES = "all cores with SIMD, memory maps"

COLLAGE = Application(
    program="penstock-collage", goal="S16",
    title="collage: microseconds a block of 32 x 32 pixels, medians",
    case_text="collage of {case}{way}{figure}, library of {tiles} tiles",
    run="make {picture} {library} -o {result} --quiet --json", cases=collage_cases,
    methods=(
        Method("cpu", ALL_CORES, "--method cpu"),
        Method("penstock", "", "--method penstock " + CACHED, is_baseline=False),
        Method("windows", ", windows", f"--method penstock {CACHED} --windows", is_baseline=False,
               needs_gpu=True),
        Method("cuda", "CUDA: two kernels, all cores stage each tile once a batch",
               "--method cuda", needs_gpu=True),
        # Beside Penstock on a GPU; with --backend cpu it would be the same again.
        Method("penstock-cpu", "Penstock on CPU threads",
               "--method penstock --backend cpu --page {page} --cache {cache}", needs_gpu=True,
               repeats="1", stage=2)),
    figures=(Figure("", "seconds.collage", "us/block", lambda s, r: s / r["blocks"] * 1e6),
             Figure(" opened in the time", "seconds.collage+seconds.windows", "us/block",
                    lambda s, r: s / r["blocks"] * 1e6, methods=("windows",))),
    settings={"pictures": "", "tiles": "2000000", "repeats": "3", "timeout": "120", "page": "4KiB",
              "cache": ""},  # a sixteenth of the library's bytes
    measures={"order": "collage_parts.order", "upload": "collage_parts.upload",
              "compute": "collage_parts.compute", "download": "collage_parts.download",
              "windows": "seconds.windows", "start": "seconds.start", "cores": "cpu_cores_used"},
    facts={"blocks": "blocks", "candidates": "evaluations", "tiles": "library.tiles",
           "candidates_per_block": "candidates_per_block", "unique_tiles": "unique_tiles",
           "redundancy": "redundancy", "pages_read": "pages_read",
           "library_bytes": "library.bytes", "hits": "runtime.statistics.hits",
           "method_text": "how"},
    columns=("blocks", "candidates_per_block", "redundancy", "pages_read"),
    result="result.ppm", made_row=index_row)

ON_DEVICES = CACHED + " --windows --devices {devices}"

COLLAGE_DEVICES = Application(
    program="penstock-collage", goal="R8",
    title="collage by several devices: microseconds a block of 32 x 32 pixels, medians",
    case_text="collage of {case} by {count} devices{way}, {figure}, library of {tiles} tiles",
    run=COLLAGE.run, cases=devices_cases,
    methods=(
        Method("single", "one device, a cache of the same size",
               CACHED + " --windows --device {device}"),
        Method("linked", "", ON_DEVICES, is_baseline=False),
        Method("unlinked", ", links off", ON_DEVICES, is_baseline=False,
               variables=("PENSTOCK_LINKS=off",))),
    figures=(dataclasses.replace(COLLAGE.figures[0], text="all of it"),
             dataclasses.replace(COLLAGE.figures[0], text="kernels alone",
                                 seconds="collage_parts.compute")),
    settings={**COLLAGE.settings, "repeats": "5", "devices": "0,1", "cases": "1"},
    measures=COLLAGE.measures,
    facts={**COLLAGE.facts, "evaluations_by_device": "evaluations_by_device",
           "neighbour_reads": "runtime.statistics.neighbour_reads",
           "neighbour_loads": "runtime.statistics.neighbour_loads"},
    columns=COLLAGE.columns, result=COLLAGE.result)

IN_CACHE = "--backend {backend} --page {page} --cache {room} --cached"

COLLAGE_WAYS = Application(
    program="penstock-collage", goal="S16",
    title="collage by other ways: microseconds a block of 32 x 32 pixels, medians",
    case_text="collage of {case}{way}, {figure}, library of {tiles} tiles",
    run=COLLAGE.run, cases=collage_cases,
    methods=(
        Method("regions", "plain pointers into regions that are filled before",
               "--method regions --backend {backend}"),
        Method("in-place", ", regions in place",
               "--method regions --placement in-place --backend {backend}", is_baseline=False),
        Method("cached", ", all of it cached", IN_CACHE, is_baseline=False),
        Method("cached-blocks", ", all of it cached, read by blocks", IN_CACHE + " --readers block",
               is_baseline=False, needs_gpu=True),
        Method("penstock", ", by request", CACHED, is_baseline=False),
        Method("blocks", ", by request, read by blocks", CACHED + " --readers block",
               is_baseline=False, needs_gpu=True)),
    figures=(dataclasses.replace(COLLAGE.figures[0], text="all of it"),
             dataclasses.replace(COLLAGE.figures[0], text="kernels alone",
                                 seconds="collage_parts.compute"),
             dataclasses.replace(COLLAGE.figures[0], text="with what is brought before",
                                 seconds="seconds.collage+seconds.windows")),
    settings={**COLLAGE.settings, "tiles": "500000"}, measures=COLLAGE.measures,
    facts=COLLAGE.facts, columns=COLLAGE.columns, result=COLLAGE.result)

FOREIGN = "--no-config --no-unicode -uu {shape} -f {words} --count-matches --no-filename ."
# With one process for as many files as a command line takes, cores would be idle at the end.
GNU_GREP = """bash -c 'export g="$0" w="$1"; find . -type f -print0 |
xargs -0 -n 500 -P "$(nproc)" sh -c '\\''"$g" -owhF -f "$w" -- "$@" | wc -l'\\'' sh'
{gnu_grep} {words}"""

GREP = Application(
    program="penstock-grep", goal="S17", title="word count: seconds of the whole program, medians",
    case_text="{n_words} words in {files} files, {bytes} bytes, {state}, whole program",
    run="--quiet --json --dict {words} --out {result} .", cases=grep_cases,
    methods=(
        Method("cpu", "all cores, same counting, plain reads", "--method cpu"),
        Method("penstock", "", "--backend {backend}", is_baseline=False),
        Method("cuda", "CUDA, host reads, same counting", "--method cuda",
               needs_gpu=True),
        Method("penstock-cpu", "", "--backend cpu", is_baseline=False, needs_gpu=True),
        Method("grep", "GNU grep on all cores", GNU_GREP, repeats="tool_repeats", stage=2,
               tool="gnu_grep"),
        Method("rg", "ripgrep", "{rg} " + FOREIGN.replace("{shape}", "-owF"),
               repeats="tool_repeats", stage=2, tool="rg"),
        Method("rg-inside", "ripgrep without -w: words inside words too",
               "{rg} " + FOREIGN.replace("{shape}", "-oF"), repeats="tool_repeats", stage=2,
               tool="rg")),
    figures=(Figure("", "process.wall", "s", lambda s, r: s),),
    settings={"words": "", "files": "36000", "most_words": "58110", "repeats": "5",
              "timeout": "120", "rg": "rg", "gnu_grep": "grep", "tool_repeats": "1",
              "tool_timeout": "60"},
    measures={"search": "seconds.search", "collect": "methods.-1.phases.collect",
              "launch": "methods.-1.phases.launch", "join": "methods.-1.phases.join",
              "cpu_seconds": "process.cpu", "cores": "process.cores"},
    facts={"n_words": "words", "files": "files", "bytes": "bytes", "matches": "matches"},
    counted="matches", columns=("matches",))

MATCH = Application(
    program="penstock-match", goal="S18",
    title="image match: seconds from the file of queries to all matches, medians, windows included",
    case_text="{text}: {queries} queries, {n_databases} databases of {n_images} images of "
              "{of_shape}, {way}",
    run="{files} {flags} --out {result} --quiet --json", cases=match_cases,
    methods=(
        Method("cpu", ALL_CORES, "--method cpu", repeats="cpu_repeats", stage=0),
        Method("penstock", "requests", CACHED, is_baseline=False),
        Method("windows", "windows", CACHED + " --windows", is_baseline=False, needs_gpu=True),
        Method("cuda", "CUDA: all cores read into pinned memory, copies and comparisons overlap",
               "--method cuda", needs_gpu=True)),
    # Only Penstock has windows. They are what its user waits for when the runtime stands.
    figures=(Figure("", "seconds.match+seconds.windows", "s", lambda s, r: s),),
    settings={"images": "131072", "databases": "3", "queries": "2016", "shape": "64x64",
              "cases": "whole half-whole none first", "repeats": "3", "cpu_repeats": "2",
              "timeout": "120", "page": "64KiB", "cache": ""},  # the program's default
    measures={"windows": "seconds.windows", "start": "seconds.start", "gflops": "gflops",
              "cores": "cpu_cores_used"},
    facts={"matched": "matched", "pairs": "pairs", "pairs_compared": "pairs_compared",
           "numbers_compared": "numbers_compared", "bytes_read": "bytes_read",
           "queries": "queries.images", "n_images": "databases.0.images", "of_shape": "shape",
           "database_bytes": "databases.0.bytes", "method_text": "how"},
    columns=("matched", "pairs_compared", "pairs", "bytes_read"))


def products(rate: collections.abc.Callable[[float, Values], float], unit: str,
             ) -> tuple[Figure, ...]:
    """Each process makes several products, the first of which finds an empty cache. A baseline that
    made only one stands beside both."""
    return (Figure("first product", "seconds.runs.0", unit, rate),
            Figure("first product, opening windows in the time", "seconds.runs.0+seconds.windows",
                   unit, rate, methods=("windows",)),
            Figure("again", "seconds.runs.1:", unit, rate))


def product_methods(cuda: str, cpu_runs: str, cpu_products: str) -> tuple[Method, ...]:
    cached = CACHED + " --repeat {products}"
    return (Method("cpu", "OpenBLAS on all cores, memory maps",
                   f"--method cpu --repeat {cpu_products}", first_flags="--check",
                   repeats=cpu_runs, rounds_otherwise=True),
            Method("penstock", "requests", cached, first_flags="--check", is_baseline=False),
            Method("windows", "windows", cached + " --windows", is_baseline=False,
                   needs_gpu=True),
            # Its first product maps the files. On CPU threads it would be OpenBLAS again.
            Method("region", "cuBLAS on regions",
                   "--method region --backend {backend} --repeat {products}",
                   first_flags="--check", is_baseline=False, needs_gpu=True,
                   rounds_otherwise=True),
            Method("cuda", cuda, "--method cuda --repeat {products}", first_flags="--check",
                   needs_gpu=True, rounds_otherwise=True))


PRODUCT_MEASURES = {"start": "seconds.start", "windows": "seconds.windows",
                    "cores": "cpu_cores_used"}
PRODUCT_FACTS = {"bytes_read": "bytes_read", "check": "check", "method_text": "how"}
VECTOR_MAKE = "make-vector --rows {rows} --cols {columns} -o {A} -x {x} --quiet --json"
PRODUCT_MAKE = "make-product --m {m} --n {n} --k {k} -a {A} -b {B} --quiet --json"

VECTOR = Application(
    program="penstock-matrix", goal="S18", title="matrix-vector: GB/s of the matrix, medians",
    case_text="matrix-vector, {figure}: {rows} rows of {columns}, {part} of the cache, {way}",
    run="vector {A} {x} -o {result} --quiet --json", cases=vector_cases,
    methods=product_methods("cuBLAS: all cores read into pinned memory, 4 chunks of 64 MiB under "
                            "way", "repeats", "{products}"),
    figures=products(lambda s, r: 1e-9 * r["matrix_bytes"] / s, "GB/s"),
    settings={"cache": "16GiB", "sizes": "0.25 1 1.5", "columns": "32768", "repeats": "3",
              "products": "3", "timeout": "200", "page": "64KiB", "keep": ""},
    measures=PRODUCT_MEASURES, facts={"matrix_bytes": "a_bytes", **PRODUCT_FACTS},
    columns=("matrix_bytes",))

PRODUCT = Application(
    program="penstock-matrix", goal="S18", title="matrix product: TFLOP/s, medians",
    case_text="matrix product, {figure}: {m} x {k} by {k} x {n}, {way}",
    run="product {A} {B} --m {m} --n {n} --k {k} -o {result} --quiet --json", cases=product_cases,
    methods=product_methods("cuBLAS: all of B, then chunks of A through pinned memory, 4 under way",
                            "1", "1"),
    figures=products(lambda s, r: 2e-12 * r["m"] * r["n"] * r["k"] / s, "TFLOP/s"),
    settings={"cache": "16GiB", "sizes": "16384x16384x16384 131072x16384x16384", "repeats": "3",
              "products": "2", "timeout": "300", "page": "64KiB", "keep": ""},
    measures=PRODUCT_MEASURES, facts={"m": "m", "n": "n", "k": "k", **PRODUCT_FACTS})

APPLICATIONS = {"collage": COLLAGE, "collage_devices": COLLAGE_DEVICES,
                "collage_ways": COLLAGE_WAYS, "grep": GREP,
                "match": MATCH, "vector": VECTOR, "product": PRODUCT}
