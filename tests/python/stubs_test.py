#!/usr/bin/env python3
"""The types and texts of the package: the stub of the module is that of the module, and every
public name says what it does."""
import ast
import inspect
import os
import pathlib
import subprocess
import sys
import unittest

import common
import penstock as ps

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python/penstock"
OF_THIS_BUILD = ("version:", "with_cuda:")


def imports_of(path):
    """The modules of the package that this one imports, in functions and for types too, as paths
    below the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            folder = path.relative_to(PACKAGE).parents[node.level - 1].as_posix()
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found.update(name if folder == "." else f"{folder}/{name}" for name in names)
    return found


def circle_in(imports):
    """Modules that import each other, if there are any."""
    left = dict(imports)
    while True:
        ready = [name for name, of in left.items() if not any(other in left for other in of)]
        if not ready:
            return sorted(left)
        for name in ready:
            del left[name]


class stubs(common.Case):
    def test_the_stub_is_that_of_the_module(self):
        try:
            import nanobind  # noqa: F401
        except ImportError:
            self.skipTest("nanobind is not installed")
        made = self.folder / "_core.pyi"
        subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "penstock._core",
                        "-o", made], check=True)

        def lines(path):
            return [line for line in path.read_text(encoding="utf-8").splitlines()
                    if not line.startswith(OF_THIS_BUILD)]

        self.assertEqual(lines(made), lines(PACKAGE / "_core.pyi"),
                         "make it anew: python3 -m nanobind.stubgen -m penstock._core -o FILE")

    def test_every_public_name_has_a_text(self):
        names = [(name, getattr(ps, name)) for name in ps.__all__ if not name.startswith("__")]
        names += [(f"{name}.{part}", inspect.getattr_static(thing, part))
                  for name, thing in names if inspect.isclass(thing)
                  for kind in thing.__mro__ if kind.__module__.startswith("penstock")
                  for part in vars(kind) if not part.startswith("_")]
        plain = [name for name, thing in names
                 if (callable(thing) or isinstance(thing, property)) and not inspect.getdoc(thing)]
        self.assertEqual(plain, [])
        self.assertGreater(len(names), 50)

    def test_no_module_imports_one_that_imports_it(self):
        imports = {path.relative_to(PACKAGE).with_suffix("").as_posix(): imports_of(path)
                   for path in PACKAGE.rglob("*.py")}
        self.assertIn("_opened", imports["_array"])
        self.assertIn("_install", imports["device/_paths"])
        self.assertEqual(circle_in(imports), [])
        imports["_runtime"].add("_array")  # a canary
        self.assertIn("_runtime", circle_in(imports))

    def test_types_are_strict(self):
        try:
            import mypy  # noqa: F401
        except ImportError:
            self.skipTest("mypy is not installed")
        # With the frameworks that this interpreter has, and as if it had none.
        for others in ([], ["--no-site-packages"]):
            with self.subTest(others=others):
                done = self.strict(PACKAGE.parent, *others)
                self.assertEqual(done.returncode, 0, done.stdout)
        # A canary: a call that does not fit the stub is found.
        (self.folder / "penstock").mkdir()
        for source in PACKAGE.glob("*.py*"):
            text = source.read_text(encoding="utf-8")
            if source.name == "_check.py":
                text = text.replace("format_size(size)", "format_size(str(size))")
            (self.folder / "penstock" / source.name).write_text(text, encoding="utf-8")
        done = self.strict(self.folder)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"_check\.py:\d+: error: .*\[arg-type\]")

    def strict(self, path, *options):
        return subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", self.folder / "cache",
             "--config-file", PACKAGE.parents[1] / "pyproject.toml", *options, "-p", "penstock"],
            capture_output=True, text=True, check=False, cwd=self.folder,
            env={**os.environ, "MYPYPATH": str(path)})


if __name__ == "__main__":
    unittest.main()
