"""Dead links of a built site: problems(FOLDER) follows every link and every anchor of its pages,
and names what a page would fetch from another host. Reads files only."""
import html.parser
import pathlib
import re
import urllib.parse

# What a browser fetches by itself when it shows the page.
FETCHED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"),
           ("video", "src"), ("audio", "src"), ("object", "data"), ("use", "href")}
FETCHED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch",
                 "modulepreload", "manifest"}
ELSEWHERE = re.compile(r"(https?:)?//")


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.anchors, self.links, self.fetched = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = {name: value or "" for name, value in attrs}
        self.anchors.update(filter(None, (attrs.get("id"),
                                          attrs.get("name") if tag == "a" else None)))
        for name, value in attrs.items():
            if (tag, name) in FETCHED:
                self.fetched.append(value)
            elif (tag, name) in {("a", "href"), ("area", "href"), ("form", "action")}:
                self.links.append(value)
            elif name == "srcset":
                self.fetched.extend(part.split()[0] for part in value.split(",") if part.split())
        if tag == "link" and FETCHED_LINKS & set(attrs.get("rel", "").split()):
            self.fetched.append(attrs.get("href", ""))
        elif tag == "link" and "href" in attrs:
            self.links.append(attrs["href"])

    handle_startendtag = handle_starttag


def problems(folder):
    """Lines, each with the page and what is wrong."""
    folder = pathlib.Path(folder).resolve()
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder).as_posix()
        for target in page.fetched:
            if ELSEWHERE.match(target):
                found.append(f"{name}: fetches {target} from another host")
            elif not target.startswith("data:"):
                found.extend(f"{name}: {text}" for text in dead(target, path, folder, pages))
        for target in page.links:
            if not ELSEWHERE.match(target):
                found.extend(f"{name}: {text}" for text in dead(target, path, folder, pages))
    for path in sorted(folder.rglob("*.css")):
        for target in re.findall(r"(?:url\(\s*|@import\s+)[\"']?([^\"')\s]+)",
                                 path.read_text(encoding="utf-8")):
            if ELSEWHERE.match(target):
                found.append(f"{path.relative_to(folder)}: fetches {target} from another host")
    return found, len(pages)


def dead(target, path, folder, pages):
    """What is wrong with a link of the page at `path`, in no line or one."""
    parts = urllib.parse.urlsplit(target)
    if parts.scheme in ("mailto", "javascript"):
        return
    if parts.scheme:
        yield f"leads to {target}, which no reader of a copy has"
        return
    there = path
    if parts.path:
        within = urllib.parse.unquote(parts.path)
        there = folder / within.lstrip("/") if within.startswith("/") else path.parent / within
        there = there.resolve()
    if there.is_dir():
        there = there / "index.html"
    if not there.is_relative_to(folder) or not there.is_file():
        yield f"leads to {target}, which is not there"
    elif parts.fragment and there in pages:
        # A fragment that begins with __ belongs to the theme's scripts.
        anchor = urllib.parse.unquote(parts.fragment)
        if anchor not in pages[there].anchors and not anchor.startswith("__"):
            yield f"leads to {target}, and there is no #{anchor} on that page"
