"""Where the headers lie that kernels are compiled with."""
from __future__ import annotations

import os
import pathlib


def include_folder() -> str:
    """The folder that has ``penstock/table.hpp``: the wheel's, or that of a clone."""
    own = os.environ.get("PENSTOCK_INCLUDE")
    if own:
        return own
    import penstock
    found = getattr(penstock, "get_include", None)
    if found is not None:
        return str(found())
    return str(pathlib.Path(__file__).resolve().parents[3] / "include")


def source_of(name: str) -> str:
    """The text of a file that lies beside this one."""
    return (pathlib.Path(__file__).resolve().parent / name).read_text(encoding="utf-8")
