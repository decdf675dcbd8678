"""Where the headers and the library of the wheel lie, for CUDA C++ of your own."""
from __future__ import annotations

import pathlib

from . import _core


def _part(name: str) -> str:
    """Beside this file, or beside the module: an editable install leaves the sources in place."""
    places = [pathlib.Path(file).resolve().parent / name for file in (__file__, _core.__file__)]
    for path in places:
        if path.exists():
            return str(path)
    raise FileNotFoundError(2, "this package has no headers and no library; install the wheel, or "
                            "beside Debian's package libpenstock-dev, which pkg-config finds",
                            str(places[0]))


def get_include() -> str:
    """The folder of the headers: compile with ``-I`` and this. FileNotFoundError: the package does
    not come from a wheel."""
    return _part("include")


def get_cmake_dir() -> str:
    """The folder of PenstockConfig.cmake: ``cmake -DPenstock_DIR=`` and this, then
    ``find_package(Penstock)``. FileNotFoundError: the package does not come from a wheel."""
    return _part("lib/cmake/Penstock")


def compile_flags() -> list[str]:
    """What a compiler needs: g++, clang++ or nvcc."""
    flags = [f"-I{get_include()}", "-std=c++20"]
    return [*flags, "-DPENSTOCK_WITH_CUDA"] if _core.with_cuda else flags


def link_flags() -> list[str]:
    """What a linker needs, behind the objects; without nvcc add the folder of libcudart_static."""
    lib = pathlib.Path(_part("lib"))
    flags = [f"-L{lib}", "-lpenstock"]
    if (lib / "liburing.a").exists():
        flags.append("-luring")
    if _core.with_cuda:
        flags += ["-lcudart_static", "-ldl", "-lrt"]
    return [*flags, "-lpthread"]
