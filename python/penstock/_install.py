"""Where the headers and the library of the wheel lie, for CUDA C++ of your own."""
from __future__ import annotations

import pathlib

_HERE = pathlib.Path(__file__).resolve().parent


def get_include() -> str:
    """The folder of the headers: compile with ``-I`` and this."""
    return str(_HERE / "include")


def get_cmake_dir() -> str:
    """The folder of PenstockConfig.cmake: ``cmake -DPenstock_DIR=`` and this, then
    ``find_package(Penstock)``."""
    return str(_HERE / "lib" / "cmake" / "Penstock")
