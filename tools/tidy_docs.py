"""Rules over the documents, for tools/tidy.py: what they name must exist."""
import fnmatch
import re

# Names of other people's things that our documents may mention.
FOREIGN = set("""
    cudaMalloc cudaHostAlloc cudaHostRegister cudaMemcpyAsync cudaMallocAsync cuMemCreate
    fsync mmap pread cat grep rg cp pkg-config find_package volatile asm memcpy MADV_HUGEPAGE
    O_DIRECT write msync truncate unlink FUSE std::format compute-sanitizer nvcc
    CMAKE_BUILD_TYPE gcc g++ clang sudo apt-get ulimit ls main
""".split())


def documents(tree):
    return ((path, text) for path, text in tree.files.items() if path.endswith(".md"))


def without_blocks(text):
    """The text with every fenced block emptied, so that line numbers stay."""
    return re.sub(r"^```.*?^```$", lambda m: "\n" * m.group().count("\n"), text,
                  flags=re.MULTILINE | re.DOTALL)


def spans(text):
    for number, line in enumerate(without_blocks(text).split("\n"), 1):
        for span in re.findall(r"`([^`]+)`", line):
            yield number, span


def is_path(span):
    return ("/" in span and re.fullmatch(r"[\w./*<>-]+", span) is not None
            and not span.startswith(("/", "<", "-")))


def path_exists(tree, span):
    pattern = re.sub(r"<\w+>", "*", span.rstrip("/"))
    if pattern.startswith("./"):
        pattern = pattern[2:]
    if pattern in tree.names or ("*" in pattern and fnmatch.filter(tree.names, pattern)):
        return True
    return pattern.split("/")[0] == "build" or (tree.root / pattern).exists()


def words_of_tree(tree):
    words = set()
    for path, text in tree.files.items():
        if not path.endswith(".md"):
            words.update(re.findall(r"[A-Za-z_]\w*", text))
    return words


def names_exist(tree):
    """Every identifier and path in backticks is somewhere in the tree."""
    known = words_of_tree(tree)
    for path, text in documents(tree):
        for number, span in spans(text):
            if span in FOREIGN or names_result(span):
                continue  # results_exist looks for results
            if is_path(span):
                if not path_exists(tree, span):
                    yield path, number, f"`{span}` is no file here"
                continue
            if not re.fullmatch(r"[A-Za-z_][\w:.]*(<[\w:, ]*>)?(\([^)]*\))?", span):
                continue  # a command, a value, a formula
            for name in re.findall(r"[A-Za-z_]\w*", re.sub(r"\(.*|<.*", "", span)):
                if name not in known and name not in FOREIGN:
                    yield path, number, f"`{span}`: nothing is called {name}"


def links_exist(tree):
    """Every relative link leads to a file."""
    for path, text in documents(tree):
        for number, line in enumerate(without_blocks(text).split("\n"), 1):
            for target in re.findall(r"\]\(([^)#\s]+)", line):
                if "://" not in target and not (tree.root / path).parent.joinpath(target).exists():
                    yield path, number, f"links to {target}, which is not there"


RESULTS = "bench/results/"
# A result is <card>/<date>-<case>, below the folder above.
CARD = r"(?:cpu|h100|h200)"
DATED = r"\d{4}-\d\d-\d\d-[\w-]+"
RESULT_NAME = re.compile(rf"(?<![\w-]){CARD}/{DATED}\.(?:json|txt)(?!\w)")
# The end of a name, a name without its card or its extension, and one with a dash after its card.
PART_OF_NAME = re.compile(
    rf"-[\w-]+\.(?:json|txt)|{DATED}\.(?:json|txt)|{CARD}/{DATED}"
    rf"|{CARD}-{DATED}(?:\.(?:json|txt))?")
# A measured figure: a rate. Times and ratios look like settings and limits too often.
RATE = re.compile(
    r"\d (?:[GTM]B/s|[GT]FLOP/s|(?:thousand|million|billion)(?: \w+)?(?:/s| a second))")


def names_result(span):
    name = span.removeprefix(RESULTS)
    return RESULT_NAME.fullmatch(name) or PART_OF_NAME.fullmatch(name)


def results_exist(tree):
    """Every result that a text names is there, and documents name it with card, date and case."""
    for path, text in tree.files.items():
        if path.endswith(".json") or path == "tests/style/tidy_test.py":
            continue  # what a program printed; violations that are planted
        for number, line in enumerate(text.split("\n"), 1):
            for name in RESULT_NAME.findall(line):
                if RESULTS + name not in tree.files:
                    yield path, number, f"{name} is not in {RESULTS}"
    for path, text in documents(tree):
        for number, span in spans(text):
            if PART_OF_NAME.fullmatch(span.removeprefix(RESULTS)):
                yield path, number, f"`{span}`: give the result as <card>/<date>-<case>.<extension>"


def pieces(text, by_row):
    """(number of the first line, text): sections between headings, or also table rows, list items
    and paragraphs."""
    begins = re.compile(r"#|\||\s*[-*] |\s*$" if by_row else "#")
    piece, first = [], 1
    for number, line in enumerate(without_blocks(text).split("\n"), 1):
        if begins.match(line) and piece:
            yield first, "\n".join(piece)
            piece, first = [], number
        piece.append(line)
    yield first, "\n".join(piece)


def figures_name_results(tree):
    """A measured rate in a document stands beside the file that has it: in README.md in the same
    row, item or paragraph, where "the same" is the file of the row above; in docs/ in the same
    section."""
    for path, text in documents(tree):
        if path != "README.md" and not path.startswith("docs/"):
            continue
        for number, piece in pieces(text, path == "README.md"):
            rate = RATE.search(piece)
            if rate and not RESULT_NAME.search(piece) and "| the same |" not in piece:
                yield (path, number + piece[:rate.start()].count("\n"),
                       f"'{rate.group()}': name the file of {RESULTS} that has it")
