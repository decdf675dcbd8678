"""Refuses subinterpreters. It is imported first: the types of penstock._core are those of the
interpreter that loads it last, and end with it, so the main one could make no runtime any more."""


def _number() -> int:
    """Of this interpreter; the main one is 0. ImportError: ctypes is not for this one either."""
    import ctypes

    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    api.PyInterpreterState_GetID.argtypes = [ctypes.c_void_p]
    api.PyInterpreterState_GetID.restype = ctypes.c_int64
    return int(api.PyInterpreterState_GetID(api.PyInterpreterState_Get()))


def _refuse_others() -> None:
    try:
        is_main = _number() == 0
    except ImportError:
        is_main = False
    if not is_main:
        raise ImportError("penstock cannot be used in a subinterpreter; import it in the main "
                          "interpreter, or in a process of its own", name="penstock")


_refuse_others()
