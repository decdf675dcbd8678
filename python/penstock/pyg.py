"""Node features in files for PyTorch Geometric.

    from penstock.pyg import FeatureStore

    store = FeatureStore({"x": ps.open_array("feat.npy", runtime=rt), "y": labels})
    loader = NeighborLoader((store, graph), [15, 10], input_nodes=train, batch_size=1024,
                            num_workers=4, filter_per_worker=False)

Workers sample, and the main process fetches: pass ``filter_per_worker=False``. PyG's default is
True for a store (it takes data that is not on a GPU for data of the host), and then ``get_tensor``
would run in forked workers, which cannot use the runtime of their parent (ChildProcessError).

An index chooses rows as that of a tensor does: one number gives a row without the first dimension,
and numbers of any shape give rows in that shape. But negative numbers are rows of tensors alone: of
an array they raise IndexError.

Features of nodes alone: PyG asks a store for edge features by the numbers of nodes
(``filter_custom_store``, pyg #9566), so attributes of edges are refused."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, Union

import torch
from torch import Tensor
from torch_geometric.data import FeatureStore as _FeatureStore
from torch_geometric.data import TensorAttr

from ._array import Array
from .torch import _device_of, gather

__all__ = ["FeatureStore"]

# "x", of a graph of one kind of nodes; ("paper", "x") of one of many.
Name = Union[str, "tuple[Optional[str], str]"]


class FeatureStore(_FeatureStore):
    """Arrays in files, and tensors in memory for what is small (labels, masks), as a feature store
    that is only read. Batches come to ``device``, None: that of the first array's runtime (of
    several GPUs torch's current one, if it is of them, else the first), on the current stream;
    nothing waits."""

    def __init__(self, features: Mapping[Name, Union[Array, Tensor]],
                 device: Optional[Union[str, torch.device]] = None) -> None:
        super().__init__()
        if device is None:
            arrays = (rows for rows in features.values() if isinstance(rows, Array))
            first = next(arrays, None)
            device = "cpu" if first is None else _device_of(first.runtime)
        # FeatureStore takes attributes for names of groups, so they are entered past it.
        self.__dict__["device"] = torch.device(device)
        self.__dict__["_features"] = {
            (None, name) if isinstance(name, str) else tuple(name): rows
            for name, rows in features.items()}
        for group, name in self._features:
            if isinstance(group, tuple):
                raise ValueError(f"{(group, name)}: edges have no features here; give those of "
                                 "nodes")

    def _rows_of(self, attr: Any) -> Union[Array, Tensor]:
        key = (attr.group_name if attr.is_set("group_name") else None, attr.attr_name)
        found: Optional[Union[Array, Tensor]] = self._features.get(key)
        if found is None:
            has = ", ".join(str(known) for known in self._features)
            raise KeyError(f"the store has no {key}; it has {has}")
        return found

    def _numbers(self, index: Any, rows: int, device: torch.device) -> Tensor:
        """PyG's index (None, a slice, a number, a tensor or an array) as numbers on the device."""
        if index is None:
            index = slice(None)
        if isinstance(index, slice):
            chosen = range(*index.indices(rows)) or range(0)  # torch: no empty range backwards
            return torch.arange(chosen.start, chosen.stop, chosen.step, device=device)
        numbers = torch.as_tensor(index)
        if not isinstance(index, Tensor) and numbers.numel() == 0:
            numbers = numbers.to(torch.int64)  # of an empty list torch makes float32
        if numbers.dtype == torch.bool:
            if numbers.shape != (rows,):
                raise IndexError(f"index: a mask of shape {tuple(numbers.shape)} for {rows} rows; "
                                 f"give one of ({rows},)")
            numbers = numbers.nonzero().reshape(-1)
        if device.type == "cuda" and numbers.device.type == "cpu":
            numbers = numbers.pin_memory()
        return numbers.to(device, non_blocking=True)

    def _get_tensor(self, attr: Any) -> Tensor:
        rows = self._rows_of(attr)
        if isinstance(rows, Array):
            return gather(rows, self._numbers(attr.index, len(rows), self.device))
        return rows[self._numbers(attr.index, len(rows), rows.device)].to(self.device)

    def _multi_get_tensor(self, attrs: list[Any]) -> list[Tensor]:
        """The numbers go to the device once for all attributes that are asked for by them."""
        on_device: dict[tuple[int, int], Tensor] = {}  # by the index, and the rows that it is of
        out = []
        for attr in attrs:
            rows = self._rows_of(attr)
            if not isinstance(rows, Array):
                out.append(self._get_tensor(attr))
                continue
            key = (id(attr.index), len(rows))
            numbers = on_device.get(key)
            if numbers is None:
                numbers = self._numbers(attr.index, len(rows), self.device)
                if not isinstance(attr.index, (slice, type(None))):
                    on_device[key] = numbers
            out.append(gather(rows, numbers))
        return out

    def _get_tensor_size(self, attr: Any) -> tuple[int, ...]:
        return tuple(self._rows_of(attr).shape)

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
