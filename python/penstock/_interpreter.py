"""Refuses subinterpreters. It is imported first: the types of penstock._core are those of the
interpreter that loads it last, and end with it, so the main one could make no runtime any more."""


def _number() -> int:
    """Of this interpreter; the main one is 0. ImportError: ctypes is not for this one either."""
    import ctypes

    api = ctypes.pythonapi
    # By index: objects of our own, where attributes are shared with all users of ctypes.
    get, number = api["PyInterpreterState_Get"], api["PyInterpreterState_GetID"]
    get.restype = ctypes.c_void_p
    number.argtypes, number.restype = [ctypes.c_void_p], ctypes.c_int64
    return int(number(get()))


def _refuse_others() -> None:
    try:
        is_main = _number() == 0
    except ModuleNotFoundError:  # this Python has no ctypes
        raise
    except ImportError:
        is_main = False
    if not is_main:
        raise ImportError("penstock cannot be used in a subinterpreter; import it in the main "
                          "interpreter, or in a process of its own", name="penstock")


_refuse_others()
