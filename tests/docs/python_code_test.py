#!/usr/bin/env python3
"""Runs the Python code of README.md and of docs/start: python_code_test.py REPOSITORY PACKAGES
INTERPRETER...

PACKAGES is the folder in which the package `penstock` of this build lies. The blocks of a page run
one after the other in an empty folder, in the first interpreter that has torch and can import the
package; each may lend its nanobind_backend to the others of its version. A page with a mistake
planted must fail. Skipped where no interpreter will do."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SKIPPED = 77
PAGES = ["README.md", "docs/start/pytorch.md"]
# README's lines take their files for there already: they are those of the page for beginners.
FILES_OF = {"README.md": "docs/start/pytorch.md"}
SECONDS = 120
FIND = ("import pathlib, sys; import nanobind_backend as b; "
        "print(sys.version_info[:2], pathlib.Path(b.__file__).parent.parent)")


def run(python, script, path, folder):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path), "PENSTOCK_CACHE": "64MiB"}
    try:
        done = subprocess.run([python, "-B", "-c", script], cwd=folder, env=environment, text=True,
                              capture_output=True, timeout=SECONDS, check=False,
                              stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return False, f"took longer than {SECONDS} s"
    except OSError as error:
        return False, str(error)
    return done.returncode == 0, done.stdout + done.stderr


def lend(place, folder):
    """A folder with the backend alone: numpy beside it may not suit the borrower's torch."""
    folder.mkdir()
    (folder / "nanobind_backend").symlink_to(place / "nanobind_backend")
    return str(folder)


def find_python(packages, interpreters, folder):
    """An interpreter and the folders of its packages, or None and the reasons."""
    lenders, reasons = {}, []
    for python in interpreters:
        done, said = run(python, FIND, [], folder)
        if done:
            version, _, place = said.strip().rpartition(" ")
            lenders[version] = lend(pathlib.Path(place),
                                    pathlib.Path(folder) / f"lent {len(lenders)}")
    for python in interpreters:
        version = run(python, "import sys; print(sys.version_info[:2])", [], folder)[1].strip()
        for path in ([packages], [packages, lenders.get(version, packages)]):
            done, said = run(python, "import torch, penstock", path, folder)
            if done:
                return python, path
        reasons.append(f"{python}: {(said.strip().splitlines() or ['no message'])[-1]}")
    return None, reasons


def blocks(text):
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def page_problem(root, page, python, path, change=lambda code: code):
    """What a page's code says if it fails, or nothing."""
    code = blocks((root / page).read_text(encoding="utf-8"))
    if page in FILES_OF:
        code.insert(0, blocks((root / FILES_OF[page]).read_text(encoding="utf-8"))[0])
    with tempfile.TemporaryDirectory() as folder:
        done, said = run(python, change("\n".join(code)), path, folder)
    return "" if done else f"{page}: the code fails:\n{said}"


def run_pages(root, python, path):
    problems = [page_problem(root, page, python, path) for page in PAGES]
    # A mistake in a page must be found.
    if not page_problem(root, PAGES[1], python, path,
                        lambda code: code.replace("weight[ids", "weight[1 - ids")):
        problems.append(f"{PAGES[1]}: other rows than those of the file were not found")
    problems = list(filter(None, problems))
    print(*problems, f"{len(PAGES)} pages run by {python}, {len(problems)} problems", sep="\n")
    return 1 if problems else 0


def main():
    root, packages = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    with tempfile.TemporaryDirectory() as folder:
        python, path = find_python(packages, sys.argv[3:], folder)
        if python is not None:
            return run_pages(root, python, path)
    print("SKIP: no interpreter has torch and the package:", *path, sep="\n  ")
    return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
