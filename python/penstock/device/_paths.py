"""Where the headers lie that kernels are compiled with."""
from __future__ import annotations

import os
import pathlib

from .._install import get_include


def include_folder() -> str:
    """The folder that has ``penstock/table.hpp``: the wheel's, or PENSTOCK_INCLUDE."""
    own = os.environ.get("PENSTOCK_INCLUDE")
    if own:
        return own
    return get_include()


def source_of(name: str) -> str:
    """The text of a file that lies beside this one."""
    return (pathlib.Path(__file__).resolve().parent / name).read_text(encoding="utf-8")
