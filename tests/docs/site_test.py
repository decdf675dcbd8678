#!/usr/bin/env python3
"""The documents as a site: it builds strictly, and no link of it is dead: site_test.py REPOSITORY
FOLDER.

The site goes to FOLDER/site. mkdocs and the rest of docs/requirements.txt are taken from this
Python if it has them; else they are installed in FOLDER/venv, if that takes a minute at most.
Otherwise, and where no package index is reached, the test is skipped. Mistakes are planted, and
each must be found."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import crawl  # noqa: E402

SKIPPED = 77
MOST_SECONDS = 60  # of each step of the installation
NEEDED = "import mkdocs, material, mkdocstrings, mkdocstrings_handlers.python, pymdownx"

PLANTED = {
    "dead": ('<a href="gone.html">x</a>', "leads to gone.html, which is not there"),
    "anchor": ('<a href="index.html#gone">x</a>', "there is no #gone on that page"),
    "own": ('<p id="here"></p><a href="#there">x</a>', "there is no #there on that page"),
    "outside": ('<a href="../outside.html">x</a>', "leads to ../outside.html"),
    "script": ('<script src="https://host.example/a.js"></script>', "from another host"),
    "font": ('<link rel="stylesheet" href="//host.example/font.css">', "from another host"),
    "picture": ('<img src="gone.svg">', "leads to gone.svg, which is not there"),
    "style": ("<style></style>", "a.css: fetches https://host.example/b.woff from another host"),
}


class Skip(Exception):
    """Why there is no site here."""


def ran(command, seconds=MOST_SECONDS):
    """True if it ended well, and what it printed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False,
                              stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return False, f"took longer than {seconds} s"
    except OSError as error:
        return False, str(error)
    return done.returncode == 0, done.stdout + done.stderr


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def python_with_mkdocs(root, folder):
    """An interpreter that can make the site."""
    if ran([sys.executable, "-c", NEEDED])[0]:
        return sys.executable
    requirements = root / "docs/requirements.txt"
    made = hashlib.sha256(requirements.read_bytes()).hexdigest()
    venv, stamp = folder / "venv", folder / "venv/made-of"
    python = venv / "bin/python3"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == made and ran(
            [python, "-c", NEEDED])[0]:
        return python
    shutil.rmtree(venv, ignore_errors=True)
    done, said = ran([sys.executable, "-m", "venv", str(venv)])
    if not done:
        raise Skip(f"no virtual environment (Debian: python3-venv): {last_line(said)}")
    done, said = ran([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                      "--retries", "0", "--timeout", "10", "-r", str(requirements)])
    if not done:
        raise Skip(f"docs/requirements.txt cannot be installed: {last_line(said)}")
    stamp.write_text(made, encoding="utf-8")
    return python


def build(python, root, site):
    """The site, or the messages of mkdocs."""
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([python, "-m", "mkdocs", "build", "--strict", "--clean", "--site-dir",
                           str(site)], cwd=root, capture_output=True, text=True, check=False,
                          timeout=300, env=environment, stdin=subprocess.DEVNULL)
    said = done.stdout + done.stderr
    return done.returncode == 0 and "WARNING" not in said, said


def planted_problems():
    """What the crawler misses in a small site with mistakes, or finds where there is none."""
    missed = []
    for name, (text, expected) in PLANTED.items():
        with tempfile.TemporaryDirectory() as folder:
            at = pathlib.Path(folder)
            body = '<html><body><h1 id="top">T</h1><a href="#top">x</a>'
            (at / "index.html").write_text(body + "</body></html>", encoding="utf-8")
            if crawl.problems(at)[0]:
                missed.append(f"{name}: a site without a mistake has {crawl.problems(at)[0]}")
            (at / "index.html").write_text(body + text + "</body></html>", encoding="utf-8")
            if name == "style":
                (at / "a.css").write_text("@font-face{src:url(https://host.example/b.woff)}",
                                          encoding="utf-8")
            found = "\n".join(crawl.problems(at)[0])
            if expected not in found:
                missed.append(f"{name}: planted, and not found: {expected}; found: {found}")
    return missed


def main():
    root, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    missed = planted_problems()
    print(*missed, sep="\n", end="\n" if missed else "")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        python = python_with_mkdocs(root, folder)
    except Skip as why:
        print(f"SKIP: the site is not built: {why}")
        return 1 if missed else SKIPPED
    done, said = build(python, root, folder / "site")
    if not done:
        print(f"FAILED: mkdocs build --strict:\n{said}")
        return 1
    found, pages = crawl.problems(folder / "site")
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{pages} pages, {len(found)} dead links or fetches from elsewhere")
    return 1 if found or missed or pages < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
