"""NVRTC, CUDA's compiler at run time, by ctypes: compiles CUDA C++ with Penstock's headers.

Needs no GPU and no header of a host compiler. The library is looked for where CUDA's Python
packages keep it, then where the loader of the system finds it, then below CUDA_HOME."""
import ctypes
import errno
import glob
import os
import site
import sys
import threading
from typing import Dict, List, Optional, Sequence, Tuple

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_OUTPUTS = {"ptx": "PTX", "cubin": "CUBIN", "ltoir": "LTOIR"}

_lock = threading.Lock()
_library: Optional[ctypes.CDLL] = None
_compiled: Dict[Tuple[str, Tuple[str, ...], str], bytes] = {}


class NotFound(OSError):
    """There is no libnvrtc on this machine, or none that can be loaded."""


class CompileError(RuntimeError):
    """The source was refused; the text is the compiler's."""


def _candidates() -> List[str]:
    found: List[str] = []
    try:
        # The library that numba-cuda and CuPy take, so that linker and compiler fit each other.
        from cuda.pathfinder import load_nvidia_dynamic_lib
        path = load_nvidia_dynamic_lib("nvrtc").abs_path
        if path:
            found.append(path)
    except Exception:  # pylint: disable=broad-except  # whatever fails, there are other places
        pass
    found.extend(_NAMES)
    for base in {*site.getsitepackages(), *(p for p in sys.path if p.endswith("-packages"))}:
        found.extend(sorted(glob.glob(os.path.join(base, "nvidia", "*", "lib", "libnvrtc.so.*")),
                            reverse=True))
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            found.extend(os.path.join(home, folder, name)
                         for folder in ("lib64", "lib") for name in _NAMES)
    return [path for path in found if ".alt." not in path]


def library() -> ctypes.CDLL:
    """libnvrtc, loaded once. NotFound if there is none."""
    global _library
    with _lock:
        if _library is None:
            for path in _candidates():
                try:
                    _library = ctypes.CDLL(path)
                    break
                except OSError:
                    continue
            else:
                raise NotFound(errno.ENOENT, "libnvrtc was not found: install nvidia-cuda-nvrtc, "
                               "or set CUDA_HOME to a CUDA toolkit")
            _library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return _library


def version() -> Tuple[int, int]:
    """Of NVRTC, for instance (13, 0)."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


def architectures() -> List[int]:
    """That NVRTC compiles for, for instance [75, 80, 90]."""
    count = ctypes.c_int()
    _check(library().nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
    values = (ctypes.c_int * count.value)()
    _check(library().nvrtcGetSupportedArchs(values), "nvrtcGetSupportedArchs")
    return sorted(values)


def _check(code: int, call: str) -> None:
    if code != 0:
        text = library().nvrtcGetErrorString(code).decode()
        raise CompileError(f"{call}: {text}")


def _text_of(program: ctypes.c_void_p, which: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(library(), f"nvrtcGet{which}Size")(program, ctypes.byref(size)), which)
    text = ctypes.create_string_buffer(size.value)
    _check(getattr(library(), f"nvrtcGet{which}")(program, text), which)
    return text.raw


def compile_source(source: str, options: Sequence[str], output: str = "ptx",
                   name: str = "penstock.cu") -> bytes:
    """The source as `output`: ptx, cubin or ltoir. A second call with equal arguments gives the
    first one's result. CompileError has the compiler's words."""
    key = (source, tuple(options), output)
    with _lock:
        if key in _compiled:
            return _compiled[key]
    rtc = library()
    program = ctypes.c_void_p()
    _check(rtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None,
                                  None), "nvrtcCreateProgram")
    try:
        listed = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        code = rtc.nvrtcCompileProgram(program, len(options), listed)
        if code != 0:
            log = _text_of(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            raise CompileError(f"{name} with {' '.join(options)}:\n{log}")
        made = _text_of(program, _OUTPUTS[output])
    finally:
        rtc.nvrtcDestroyProgram(ctypes.byref(program))
    if output == "ptx":
        made = made.rstrip(b"\0")
    with _lock:
        _compiled[key] = made
    return made
