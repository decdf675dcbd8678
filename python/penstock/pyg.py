"""Node features in files for PyTorch Geometric.

    from penstock.pyg import FeatureStore

    store = FeatureStore({"x": ps.open_array("feat.npy", runtime=rt), "y": labels})
    loader = NeighborLoader((store, graph), [15, 10], input_nodes=train, batch_size=1024,
                            num_workers=4, filter_per_worker=False)

Workers sample, and the main process fetches: pass ``filter_per_worker=False``. PyG's default is
True for a store (it takes data that is not on a GPU for data of the host), and then ``get_tensor``
would run in the workers, which cannot use the runtime of their parent (ChildProcessError). Workers
that are not forked, as from Python 3.14 on, get the store without its features.

An index chooses rows as that of a tensor does: one number gives a row without the first dimension,
numbers of any shape give rows in that shape, and bool and uint8 are masks. But negative numbers are
rows of tensors alone: of an array they raise IndexError.

Features of nodes alone: PyG asks a store for edge features by the numbers of nodes
(``filter_custom_store``, pyg #9566), so attributes of edges are refused. In a graph of one kind of
nodes the name tells them: ``e_id``, and those of which ``edge`` begins a word. All features of a
group have a row for each node."""
from __future__ import annotations

import copy
import errno
import re
from collections.abc import Mapping
from typing import Any, Optional, Union

import torch
from torch import Tensor
from torch_geometric.data import FeatureStore as _FeatureStore
from torch_geometric.data import TensorAttr

from ._array import Array
from .torch import _as_tensor, _chosen, _device_of, _tensor_of, gather

__all__ = ["FeatureStore"]


def _elsewhere(name: str) -> ChildProcessError:
    return ChildProcessError(errno.ECHILD, f"{name!r} is a feature of a store in another process, "
                             "and this one cannot read it; if this is a loader's worker, pass "
                             "filter_per_worker=False to the loader, or num_workers=0")


def _gather(name: str, rows: Array, numbers: Tensor) -> Tensor:
    try:
        return gather(rows, numbers)
    except ChildProcessError as error:  # of a child of fork, whose text knows nothing of PyG
        raise _elsewhere(name) from error


class _Left:
    """In place of a feature, in a process that was sent the store."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


# "x", of a graph of one kind of nodes; ("paper", "x") of one of many.
Name = Union[str, "tuple[Optional[str], str]"]


def _key_of(name: Name) -> tuple[Any, str]:
    """Group and name. ValueError: PyG has edges of that name, by the rule for what counts alone do
    not tell (``Data.is_edge_attr``), of whole words."""
    group, own = (None, name) if isinstance(name, str) else name
    if isinstance(group, tuple) or (group is None and (own == "e_id" or
                                                       re.search("(^|[^a-z])edge", own))):
        raise ValueError(f"{name!r}: edges have no features here, for PyG asks for them by numbers "
                         "of nodes; give features of nodes, and those by other names")
    return group, own


def _check_lengths(features: Mapping[tuple[Any, str], Union[Array, Tensor]]) -> None:
    """ValueError: not all of a group have a row for each node."""
    first: dict[Any, str] = {}
    for (group, name), rows in features.items():
        if not rows.shape:
            raise ValueError(f"{name!r} is one number and has no rows; give one for each node")
        other = first.setdefault(group, name)
        wanted = features[group, other].shape[0]
        if rows.shape[0] != wanted:
            of = "" if group is None else f" of {group!r}"
            raise ValueError(f"{other!r}{of} has {wanted} rows and {name!r} has {rows.shape[0]}, "
                             "and PyG asks for both by numbers of nodes; give each a row for each "
                             "node, and leave out what is of edges or of the graph")


class FeatureStore(_FeatureStore):
    """Arrays in files, and what is small (labels, masks) in memory, as a feature store that is only
    read. Tensors stay as they are; arrays of numpy, lists and a ``View``, which is read at once,
    become tensors. Batches come to ``device``, None: that of the first array's runtime (of several
    GPUs torch's current one, if it is of them, else the first), on the current stream; nothing
    waits."""

    def __init__(self, features: Mapping[Name, Any],
                 device: Optional[Union[str, torch.device]] = None) -> None:
        super().__init__()
        kept = {_key_of(name): rows for name, rows in features.items()}
        for key, rows in kept.items():
            if not isinstance(rows, Array):
                kept[key] = _as_tensor(repr(key[1]), rows)
        _check_lengths(kept)
        if device is None:
            arrays = (rows for rows in kept.values() if isinstance(rows, Array))
            first = next(arrays, None)
            device = "cpu" if first is None else _device_of(first.runtime)
        # FeatureStore takes attributes for names of groups, so they are entered past it.
        self.__dict__["device"] = torch.device(device)
        self.__dict__["_features"] = kept

    def __getstate__(self) -> dict[str, Any]:
        """For workers that sample: an array cannot be sent, and tensors beside it are not needed.
        A store of tensors alone is sent whole."""
        state = dict(self.__dict__)
        if any(isinstance(rows, (Array, _Left)) for rows in self._features.values()):
            state["_features"] = {key: _Left(tuple(rows.shape))
                                  for key, rows in self._features.items()}
        return state

    def __copy__(self) -> FeatureStore:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: dict[int, object]) -> FeatureStore:
        # All but arrays, which the copy shares, as their files are shared.
        memo.update((id(rows), rows) for rows in self._features.values() if isinstance(rows, Array))
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def _rows_of(self, attr: Any) -> Union[Array, Tensor, _Left]:
        key = (attr.group_name if attr.is_set("group_name") else None, attr.attr_name)
        found: Optional[Union[Array, Tensor, _Left]] = self._features.get(key)
        if found is None:
            has = ", ".join(str(known) for known in self._features)
            raise KeyError(f"the store has no {key}; it has {has}")
        return found

    def _rows_here(self, attr: Any) -> Union[Array, Tensor]:
        found = self._rows_of(attr)
        if isinstance(found, _Left):
            raise _elsewhere(attr.attr_name)
        return found

    def _numbers(self, index: Any, rows: int, device: torch.device) -> Tensor:
        """PyG's index (None, a slice, a number, a tensor or an array) as numbers on the device."""
        if index is None:
            index = slice(None)
        if isinstance(index, slice):
            return _chosen(index, rows, device)
        numbers = _tensor_of(index)
        if not isinstance(index, Tensor) and numbers.numel() == 0:
            numbers = numbers.to(torch.int64)  # of an empty list torch makes float32
        if numbers.dtype in (torch.bool, torch.uint8):  # masks to torch, both
            if numbers.shape != (rows,):
                raise IndexError(f"index: {numbers.dtype} is a mask, and its shape "
                                 f"{tuple(numbers.shape)} for {rows} rows; give one of ({rows},), "
                                 "or int64 numbers")
            numbers = numbers.nonzero().reshape(-1)
        if device.type == "cuda" and numbers.device.type == "cpu":
            numbers = numbers.pin_memory()
        # A copy to the host that does not block may come after the host has used it.
        return numbers.to(device, non_blocking=device.type == "cuda")

    def _get_tensor(self, attr: Any) -> Tensor:
        rows = self._rows_here(attr)
        if isinstance(rows, Array):
            numbers = self._numbers(attr.index, len(rows), self.device)
            return _gather(attr.attr_name, rows, numbers)
        return rows[self._numbers(attr.index, len(rows), rows.device)].to(self.device)

    def _multi_get_tensor(self, attrs: list[Any]) -> list[Tensor]:
        """The numbers go to the device once for all attributes that are asked for by them."""
        on_device: dict[tuple[int, int], Tensor] = {}  # by the index, and the rows that it is of
        out = []
        for attr in attrs:
            rows = self._rows_here(attr)
            if not isinstance(rows, Array):
                out.append(self._get_tensor(attr))
                continue
            key = (id(attr.index), len(rows))
            numbers = on_device.get(key)
            if numbers is None:
                numbers = self._numbers(attr.index, len(rows), self.device)
                if not isinstance(attr.index, (slice, type(None))):
                    on_device[key] = numbers
            out.append(_gather(attr.attr_name, rows, numbers))
        return out

    def _get_tensor_size(self, attr: Any) -> tuple[int, ...]:
        """Of what ``get_tensor`` would give for the index; reads no row."""
        rows, *others = self._rows_of(attr).shape
        if attr.index is None:
            return (rows, *others)
        is_tensor = isinstance(attr.index, Tensor)
        place = attr.index.device if is_tensor else torch.device("meta")  # where nothing is stored
        return (*self._numbers(attr.index, rows, place).shape, *others)

    def get_all_tensor_attrs(self) -> list[Any]:
        """Of nodes; there are no others."""
        return [TensorAttr(group, name) for group, name in self._features]

    def _put_tensor(self, tensor: Any, attr: Any) -> bool:
        raise NotImplementedError("penstock.pyg.FeatureStore is only read; write the file with "
                                  "numpy or Array.scatter, and open it again")

    def _remove_tensor(self, attr: Any) -> bool:
        raise NotImplementedError("penstock.pyg.FeatureStore is only read; make another without "
                                  "this attribute")

    def check(self) -> None:
        """Raises the first error of a row since the last check (``Array.check``)."""
        for rows in self._features.values():
            if isinstance(rows, Array):
                rows.check()
