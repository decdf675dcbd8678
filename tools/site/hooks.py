"""Hooks of mkdocs: what the site has besides the pages below docs/.

Pages from elsewhere in the repository (README.md and others), the reference of the C++ headers
(header_pages.py), the results and sources that pages link to, and the order of all pages, which is
that of docs/README.md."""
import logging
import pathlib
import re

import header_pages
import page_text
from mkdocs.structure.files import File, InclusionLevel

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
log = logging.getLogger("mkdocs.hooks.site")

# Pages from outside of docs/, and docs/README.md, whose place the README takes.
MOVED = {"README.md": "index.md", "docs/README.md": "pages.md",
         "ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md",
         "CHANGELOG.md": "changes.md", "bench/results/README.md": "results.md"}
ASSETS = ["iframe-worker.js", "site.css"]
HEADERS = "reference/cpp/"
PYTHON_REFERENCE = "docs/reference/python.md"

places = {}  # path in the repository -> path on the site
paths = {}  # the other way, of pages that are written by hand


def on_files(files, config):
    places.clear()
    for file in list(files):
        if file.src_uri == "README.md":
            files.remove(file)
        elif file.generated_by is None:
            places["docs/" + file.src_uri] = file.src_uri
    for path, place in MOVED.items():
        places[path] = place
        add(files, config, place, text=(ROOT / path).read_text(encoding="utf-8"))
    for path in sorted((ROOT / "include/penstock").glob("*.hpp")):
        name = path.relative_to(ROOT).as_posix()
        places[name] = f"{HEADERS}{path.stem}.md"
    pages = header_pages.make(ROOT, places)
    for place, text in pages.items():
        add(files, config, place, text=text)
    places["include/penstock"] = HEADERS + "index.md"
    for path in sorted((ROOT / "bench/results").glob("*/*")):
        add_source(files, config, path)
    for folder in ("include", "examples", "bench/papers"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.relative_to(ROOT).as_posix() not in places:
                add_source(files, config, path)
    for name in ASSETS:
        add(files, config, f"assets/{name}", path=HERE / name)
    paths.clear()
    paths.update({place: path for path, place in places.items()
                  if place.endswith(".md") and place not in pages})
    config.nav = navigation((ROOT / "docs/README.md").read_text(encoding="utf-8"), pages)
    return files


def add(files, config, place, text=None, path=None):
    files.append(File.generated(config, place, content=text,
                                abs_src_path=None if path is None else str(path),
                                inclusion=InclusionLevel.INCLUDED))


def add_source(files, config, path):
    """A file that is shown as it is: .txt, for a browser would save a .hpp."""
    name = path.relative_to(ROOT).as_posix()
    places[name] = f"source/{name}" + ("" if path.suffix in (".json", ".txt") else ".txt")
    add(files, config, places[name], path=path)


def navigation(index, headers):
    """The nav of mkdocs from docs/README.md: a section for each heading, a page for each row."""
    nav, seen = [{"Penstock": "index.md"}], set()
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title = section.split("\n", 1)[0].split(":")[0]
        pages = []
        for name in re.findall(r"^\| \[[^\]]*\]\(([^)]+)\)", section, flags=re.MULTILINE):
            place = places.get(posix_below_docs(name))
            if place is None or place in seen:
                log.warning("docs/README.md: %s is %s", name,
                            "there twice" if place else "not on the site")
            elif place == HEADERS + "index.md":
                pages.append({"C++ headers": [place] + [p for p in headers if p != place]})
            else:
                pages.append(place)
            seen.add(place)
        if pages:
            nav.append({title: pages})
    nav[-1][title].append({"All pages": "pages.md"})
    return nav


def posix_below_docs(name):
    return pathlib.PurePosixPath(ROOT.joinpath("docs", name).resolve().relative_to(ROOT)).as_posix()


def public_modules():
    """The package, and its modules that are imported by themselves, such as penstock.torch."""
    package = ROOT / "python/penstock"
    names = {path.relative_to(package.parent).with_suffix("").as_posix().replace("/", ".")
             for path in package.rglob("*.py")}
    names = {name.removesuffix(".__init__") for name in names}
    return sorted(name for name in names if "._" not in name)


def on_page_markdown(markdown, page, config, files):
    path = paths.get(page.file.src_uri)
    if path is None:
        return markdown  # made by header_pages, as the site wants it
    change = page_text.target_mapper(path, places, log.warning)
    if path == PYTHON_REFERENCE:
        markdown += "".join(f"\n::: {module}\n" for module in public_modules())
    text = page_text.outside_fences(markdown, lambda text: page_text.map_links(text, change))
    return page_text.outside_fences(text, page_text.set_in_lists)
