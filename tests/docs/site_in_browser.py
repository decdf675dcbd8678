#!/usr/bin/env python3
"""Pages of the built site in a headless Chromium: site_in_browser.py SITE [--some].

No page may complain on the console, fetch anything from another host, or leave a picture undrawn.
The search must find `gather`, from a server and from the file system, and a word that no page has
must not be found. Pages with mistakes are planted, and each must be found. Skipped where there is
no Chromium (Debian: chromium) or no site (tests/docs/site_test.py builds it). Every page is shown;
with --some those that have pictures and every third of the others."""
import functools
import http.server
import pathlib
import sys
import tempfile
import threading
import urllib.parse

sys.dont_write_bytecode = True
import browser as chromium  # noqa: E402

SKIPPED = 77
# Pictures that come into view late are fetched now, and all are awaited.
PICTURES = """Promise.all([...document.images].map(image => { image.loading = 'eager';
    const isSeen = () => image.naturalWidth > 1 && image.getBoundingClientRect().width > 1;
    return image.decode().then(() => isSeen() ? null : image.src, () => image.src); }))
    .then(all => all.filter(Boolean))"""
SEARCH = """(() => { const box = document.querySelector('[data-md-component=search-query]');
    box.focus(); box.value = %r; box.dispatchEvent(new Event('input', {bubbles: true}));
    box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); return true; })()"""
RESULTS = """[...document.querySelectorAll('.md-search-result__link')].map(each => each.href)"""
META = "document.querySelector('.md-search-result__meta').textContent.trim()"

PLANTED = {
    "error": ("<script>throw new Error('planted')</script>", "planted"),
    "console": ("<script>console.error('planted')</script>", "planted"),
    "script": ("<script src='gone.js'></script>", "gone.js"),
    "picture": ("<img src='gone.svg' width=10 height=10>", "gone.svg"),
    "host": ("<img src='http://127.0.0.2:9/a.png' width=10 height=10>", "127.0.0.2"),
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/favicon.ico":  # browsers ask for it by themselves
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()


def serve(folder):
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}/"


def page_problems(page, address, start):
    page.open(address)
    pictures = page.evaluate(PICTURES)
    for text in page.errors():
        yield text
    for target in page.fetched():
        if (not target.startswith((start, "data:", "blob:", "about:"))
                and not target.endswith("/favicon.ico")):
            yield f"fetched {target} from another host"
    for picture in pictures:
        yield f"the picture {picture} is not drawn"


def search_problems(page, start):
    """The search from the first page of the site."""
    page.open(start + "index.html")
    page.evaluate(SEARCH % "gather")
    found = page.wait_for(f"({RESULTS}).length && {RESULTS}")
    if not found:
        yield f"search from {start}: 'gather' is not found; it says: {page.evaluate(META)}"
    elif not any("tables" in address or "gather" in address for address in found):
        yield f"search from {start}: 'gather' leads to neither page of gathers: {found}"
    page.evaluate(SEARCH % "qqzzxqqz")
    if page.wait_for(f"({RESULTS}).length === 0") is None:
        yield f"search from {start}: a word that no page has is found"
    yield from page.errors()


def planted_problems(page):
    with tempfile.TemporaryDirectory() as folder:
        _, start = serve(folder)  # to the end of the test, for the browser may ask for more later
        for name, (text, expected) in PLANTED.items():
            body = ("<!doctype html><html><head><title>T</title><link rel='icon' href='data:,'>"
                    f"</head><body>{text}</body></html>")
            pathlib.Path(folder, f"{name}.html").write_text(body, encoding="utf-8")
            found = "\n".join(page_problems(page, f"{start}{name}.html", start))
            if expected not in found:
                yield f"{name}: planted, and not found; found: {found}"


def has_picture(path):
    return "<img" in path.read_text(encoding="utf-8")


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    program = chromium.find()
    if program is None:
        print("SKIP: no Chromium here (Debian: chromium)")
        return SKIPPED
    if not (site / "index.html").is_file():
        print(f"SKIP: no site in {site}; tests/docs/site_test.py builds it, or says why not")
        return SKIPPED
    server, start = serve(site)
    paths = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    if sys.argv[2:] == ["--some"]:
        plain = [path for path in paths if not has_picture(site / path)]
        paths = sorted(set(paths) - set(plain) | set(plain[::3]))
    found, pictures = [], 0
    with chromium.started(program) as page:
        found.extend(planted_problems(page))
        for path in paths:
            found.extend(f"{path}: {text}" for text in page_problems(
                page, start + urllib.parse.quote(path), start))
            pictures += page.evaluate("document.images.length")
        found.extend(search_problems(page, start))
        found.extend(search_problems(page, site.as_uri() + "/"))
    server.shutdown()
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(paths)} pages and {pictures} pictures shown, {len(found)} problems")
    return 1 if found or pictures == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
