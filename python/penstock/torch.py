"""Tables in files for PyTorch: an operator, a module like ``nn.Embedding``, and a dataset.

    import penstock.torch as pt

    model.embed = pt.Embedding.from_safetensors("model/", "embed.weight")
    rows = model.embed(ids)                        # as ever; in a graph and under torch.compile too

Calls work on the current stream and wait for nothing, so a row that cannot be had shows later: it
is zeros, and ``Embedding.check()`` (or ``Array.check()``, ``Runtime.check()``) raises its error
after the work has ended. Nothing here has a gradient.

The operator is ``torch.ops.penstock.gather(table, ids, out, pad)``, where ``table`` is the number
that ``handle(array)`` gives; programs that torch compiles or saves have it as a constant. Fake
kernels of operators came with PyTorch 2.4: before that (``has_operator`` is False) the same calls
run eagerly, and torch.compile breaks its graph there."""
from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn

from . import _frameworks
from ._array import Array, View, open_array
from ._errors import Path
from ._memory import item_bytes_of, plain_range
from ._runtime import Runtime
from ._table_numbers import arrays as _arrays

__all__ = ["Embedding", "RowDataset", "gather", "handle", "has_operator", "torch_dtype"]


def handle(array: Array) -> int:
    """The number by which the operator knows an array, the same each time. It keeps no array alive:
    hold the array as long as graphs and compiled functions use its number. Files that have not
    changed have it in another process too, if they are opened alike (``docs/guide/pytorch.md``)."""
    return array._number  # an attribute, so that torch.compile looks at it before each call


def torch_dtype(array: Array) -> torch.dtype:
    """The dtype of the array's elements; uint8 for elements of a byte that this PyTorch does not
    have. ValueError: it has no wider ones of that name (uint16 to uint64, before PyTorch 2.3)."""
    found = getattr(torch, array.dtype, None)
    if isinstance(found, torch.dtype):
        return found
    other: torch.dtype = _frameworks.Torch(torch).dtype(array.dtype)
    return other


def _gather(table: int, ids: Tensor, out: Tensor, pad: Optional[int] = None) -> None:
    array = _arrays.get(table)
    if array is None:
        raise ValueError(f"penstock::gather: table {table} is gone: keep the array (or the "
                         "Embedding) as long as a compiled function or a graph uses it; for a "
                         "saved program open the same files, unchanged, in the same way before")
    array.gather(ids, out=out, pad=pad)


def _require_array(array: object) -> None:
    if not isinstance(array, Array):
        raise TypeError(f"array: {type(array).__name__} is no Array; give what open_array returned")


def _not_dense() -> ValueError:
    return ValueError("ids: they are a sparse or nested tensor; give int32 or int64 numbers in a "
                      "dense one")


def _check_class(ids: Any) -> None:
    """Of what is of another class than Tensor. What has an inner tensor may show it to the
    operator."""
    if not isinstance(ids, Tensor):
        raise TypeError(f"ids: {type(ids).__name__} is no tensor; give one, or call Array.gather, "
                        "which takes lists and arrays of numpy too")
    if callable(getattr(type(ids), "to_local", None)):  # DTensor, which has no rule for this
        raise _frameworks.Torch(torch).without_memory(ids, "ids")


has_operator = hasattr(torch.library, "register_fake")

if has_operator:
    # Not by torch.library.custom_op, whose layers cost a call more than the gather does.
    _registry: Any = torch.library
    _core: Any = torch._C
    _modes: Any = _core._len_torch_dispatch_stack  # of those that want to see each operator
    _library = _registry.Library("penstock", "DEF")
    _library.define("gather(int table, Tensor ids, Tensor(a!) out, int? pad=None) -> ()",
                    tags=(torch.Tag.needs_fixed_stride_order,))
    _backends = (_core.DispatchKey.CPU, _core.DispatchKey.CUDA)
    _operator: Any = torch.ops.penstock.gather.default

    def _fake(table: int, ids: Tensor, out: Tensor, pad: Optional[int] = None) -> None:
        if ids.dtype.is_floating_point or out.dim() < ids.dim():
            raise ValueError(f"penstock::gather: ids are {ids.dtype} of {ids.dim()} dimensions, "
                             f"out has {out.dim()}; give integers, and out a dimension more")
        if (ids.device.type == "meta") != (out.device.type == "meta"):
            raise ValueError(f"penstock::gather: ids are on {ids.device}, out is on {out.device}, "
                             "and nothing would be written; give both on one device")

    def _refuse_gradient(out: Tensor) -> None:
        if out.requires_grad and torch.is_grad_enabled():
            raise ValueError("out: it requires a gradient, and a gather has none; give it without, "
                             "or call under torch.no_grad()")

    def _autograd(keys: Any, table: int, ids: Tensor, out: Tensor,
                  pad: Optional[int] = None) -> None:
        """A compiler runs no gather when it asks which tensors a call writes: without this it would
        take what a backward needs for unchanged."""
        _refuse_gradient(out)
        below = keys & _core._after_ADInplaceOrView_keyset
        if below.highestPriorityTypeId() in _backends:
            _gather(table, ids, out, pad)  # counts the write too; spares the dispatcher
            return
        if torch.autograd.forward_ad._current_level >= 0:
            _frameworks.Torch(torch).refuse_tangent(out)
        if not out.is_inference():  # which counts no writes
            torch.autograd.graph.increment_version(out)
        with _core._AutoDispatchBelowADInplaceOrView():
            _operator.redispatch(below, table, ids, out, pad)

    _library.impl("gather", _gather, "CompositeExplicitAutograd")
    _registry.register_fake("penstock::gather", _fake, lib=_library)
    _library.impl("gather", _autograd, "Autograd", with_keyset=True)

    def _call(array: Array, ids: Tensor, out: Optional[Tensor], pad: Optional[int]) -> Tensor:
        if type(ids) is Tensor and not torch.compiler.is_dynamo_compiling() and not _modes():
            try:
                made: Tensor = array.gather(ids, out=out, pad=pad)  # spares the dispatcher
                return made
            except (RuntimeError, ValueError) as error:
                # Nested numbers have no shape, and those of meta nothing but a shape.
                if not isinstance(error, _frameworks.Recorded) and not ids.is_nested \
                        and not (ids.is_meta and (out is None or out.is_meta)):
                    raise
        if type(ids) is not Tensor:
            _check_class(ids)
        if ids.is_nested or ids.layout != torch.strided:
            raise _not_dense()
        if out is None:
            out = torch.empty((*ids.shape, *array.shape[1:]), dtype=torch_dtype(array),
                              device=ids.device)
        else:
            _refuse_gradient(out)
        torch.ops.penstock.gather(handle(array), ids, out, pad)
        return out
else:
    def _call(array: Array, ids: Tensor, out: Optional[Tensor], pad: Optional[int]) -> Tensor:
        _check_class(ids)
        made: Tensor = array.gather(ids, out=out, pad=pad)
        return made


def gather(array: Array, ids: Tensor, out: Optional[Tensor] = None,
           pad: Optional[int] = None) -> Tensor:
    """Rows ``ids`` of the array as a tensor of shape ``ids.shape + array.shape[1:]``, on the device
    and current stream of ``ids``; ``pad`` is a number that gives zeros. As ``Array.gather``, but
    torch.compile takes it without a break of its graph, and compiles once for each array
    (``torch._dynamo.config.recompile_limit``); torch.jit.trace, torch.export and make_fx take it
    too, and refuse ``Array.gather``. All of this needs ``has_operator``."""
    return _call(array, ids, out, pad)


def _factor_in(dtype: torch.dtype, scale: float) -> float:
    """The scale as this dtype has it, so that the product is that of two tensors of it."""
    name = str(dtype).rpartition(".")[2]
    if not (dtype.is_floating_point or dtype.is_complex) or item_bytes_of(name) < 2:
        raise ValueError(f"scale: rows are {name}; give dtype=torch.float32 (or bfloat16) too")
    is_wide = dtype in (torch.float64, torch.complex128)
    wide = torch.tensor(scale, dtype=torch.float64 if is_wide else torch.float32, device="cpu")
    number: float = wide.to(dtype).item()
    if scale and math.isfinite(scale) and (not number or math.isinf(abs(number))):
        raise ValueError(f"scale: {scale} would be {number} in {name}; give a wider dtype")
    return number


class Embedding(nn.Module):
    """A table in a file where a model has an ``nn.Embedding``: the same rows, none of them in GPU
    memory before it is wanted. For inference: it has no ``weight``, so ``state_dict`` leaves it out
    and ``load_state_dict`` passes it over, and no gradient goes through it. What a class that is
    made of it adds (parameters, buffers, modules) is saved and loaded as ever.

    array
        The table, of one row for each number. Moving the module to another device does not move it;
        ids choose the device, which its runtime has to use.
    padding_idx
        As of ``nn.Embedding``, where it concerns training alone: the row is read as any other.
    pad
        A number that stands for no row and gives zeros, for lists of fixed length.
    dtype
        To which rows are converted. None: as they lie in the file. It and ``scale`` raise
        ValueError for elements that this PyTorch does not have.
    scale
        By which rows are multiplied, in the dtype that they have then, for instance the square root
        of the width in Gemma. It needs floats of 16 bits or more: rows of integers, of truth values
        and of float8 with a scale are a ValueError that asks for ``dtype``, for integers would
        cut the products or wrap. So is a scale that the dtype has as 0 or infinity.
    """

    def __init__(self, array: Array, *, padding_idx: Optional[int] = None,
                 pad: Optional[int] = None, dtype: Optional[torch.dtype] = None,
                 scale: Optional[float] = None) -> None:
        super().__init__()
        _require_array(array)
        if len(array.shape) != 2:
            raise ValueError(f"{array!r}: an Embedding needs rows of one dimension")
        if padding_idx is not None and not -len(array) <= padding_idx < len(array):
            raise ValueError(f"padding_idx: {padding_idx} is no row of {len(array)}")
        self.num_embeddings, self.embedding_dim = array.shape
        self.padding_idx = padding_idx if padding_idx is None or padding_idx >= 0 else \
            len(array) + padding_idx
        self.pad = pad
        self._array = array
        self._file_dtype = torch_dtype(array)
        self._set(self._file_dtype if dtype is None else dtype, scale)

    @classmethod
    def from_safetensors(cls, path: Path, name: str, *,
                         runtime: Optional[Runtime] = None, **options: Any) -> Embedding:
        """Of tensor ``name`` of a checkpoint: a ``.safetensors`` file, an index, or the folder.
        ``*`` in the name stands for any characters: all tensors that match are one table, in the
        order of their names. ``options`` are those of the class."""
        return cls(open_array(path, name, runtime=runtime), **options)

    @property
    def array(self) -> Array:
        """The table."""
        return self._array

    @property
    def dtype(self) -> torch.dtype:
        """Of the rows that calls return; may be set."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: Optional[torch.dtype]) -> None:
        self._set(self._file_dtype if dtype is None else dtype, self._scale)

    @property
    def scale(self) -> Optional[float]:
        """By which calls multiply rows; may be set."""
        return self._scale

    @scale.setter
    def scale(self, scale: Optional[float]) -> None:
        self._set(self._dtype, scale)

    def forward(self, ids: Tensor) -> Tensor:
        """The rows, of shape ``ids.shape + (embedding_dim,)``."""
        rows = _call(self._array, ids, None, self.pad)
        if self._dtype != self._file_dtype:
            rows = rows.to(self._dtype)
        return rows if self._scale is None else rows * self._factor

    def _set(self, dtype: torch.dtype, scale: Optional[float]) -> None:
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"dtype: {dtype!r} is none of torch's; give one such as torch.float16")
        has_bits = not isinstance(getattr(torch, self._array.dtype, None), torch.dtype)
        if has_bits and (dtype != self._file_dtype or scale is not None):
            raise ValueError(f"dtype and scale: the rows are {self._array.dtype}, of which this "
                             f"PyTorch ({torch.__version__}) has only the bits; take a newer "
                             "PyTorch, or leave dtype and scale out")
        factor = 1.0 if scale is None else _factor_in(dtype, float(scale))
        # A number, not a buffer: half() and to() of a model would round it, or take it elsewhere.
        self._dtype, self._scale = dtype, None if scale is None else float(scale)
        self._factor = factor

    def check(self) -> None:
        """Raises the first error of a row since the last check, and forgets it. Waits for nothing:
        work on a stream has to have ended to be seen."""
        self._array.check()

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, {self._array.path!r}"

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, strict: bool,
                              missing: list[str], unexpected: list[str],
                              errors: list[str]) -> None:
        load: Any = super()._load_from_state_dict
        load(state, prefix, metadata, strict, missing, unexpected, errors)
        # A checkpoint's own rows are neither missing nor unexpected: they are read where they lie.
        if prefix + "weight" in unexpected:
            unexpected.remove(prefix + "weight")

    def __deepcopy__(self, memo: dict[int, object]) -> Embedding:
        # All but the array, which the copy shares, as its file is shared.
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        memo[id(self._array)] = self._array
        # What torch compiled is bound to this module. It leaves that out of copies too.
        kept = {name: value for name, value in vars(self).items() if name != "_compiled_call_impl"}
        made.__dict__.update(copy.deepcopy(kept, memo))
        return made


def _device_of(runtime: Runtime) -> torch.device:
    """Where batches go: a device of the runtime, whatever torch's current one is."""
    if runtime.backend != "gpu":
        return torch.device("cpu")
    numbers = runtime.device_numbers
    is_current = len(numbers) > 1 and torch.cuda.current_device() in numbers
    return torch.device("cuda", torch.cuda.current_device() if is_current else numbers[0])


def _tensor_of(numbers: Any) -> Tensor:
    """Of what is in host memory on the host, whatever torch's default device is."""
    if isinstance(numbers, Tensor):
        held = None if type(numbers) is Tensor else getattr(numbers, "as_tensor", None)
        return held() if callable(held) else numbers  # an Index of PyG holds one
    lies_there = hasattr(numbers, "__cuda_array_interface__")
    return torch.as_tensor(numbers, device=None if lies_there else "cpu")


def _as_tensor(what: str, given: Any) -> Tensor:
    """What is in memory as a tensor, and an Array or a View read at once. TypeError: it is none."""
    try:
        if isinstance(given, (Array, View)):
            found: Tensor = given[:].to("cpu")
            return found
        return _tensor_of(given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"{what}: {type(given).__name__} makes no tensor ({error}); give a tensor, "
                        "numbers of numpy or a list of them") from error


def _chosen(part: slice, rows: int, device: torch.device) -> Tensor:
    """The numbers of a slice of so many rows."""
    numbers = plain_range(range(*part.indices(rows)))
    return torch.arange(numbers.start, numbers.stop, numbers.step, device=device)


class _Batch(Sequence[Any]):
    """Rows, or rows and labels, as a sequence of samples, which torch expects of ``__getitems__``:
    so none of its classes takes the two for samples. ``whole`` has them together."""

    def __init__(self, rows: Tensor, labels: Optional[Tensor] = None) -> None:
        self.rows, self.labels = rows, labels

    @property
    def whole(self) -> Any:
        return self.rows if self.labels is None else (self.rows, self.labels)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        labels = None if self.labels is None else self.labels[index]
        chosen = _Batch(self.rows[index], labels)
        return chosen if isinstance(index, slice) else chosen.whole

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows) if self.labels is None else zip(self.rows, self.labels)

    @classmethod
    def __torch_function__(cls, function: Any, kinds: Any, given: tuple[Any, ...] = (),
                           named: Optional[dict[str, Any]] = None) -> Any:
        """For ``torch.stack``, by which loaders join rows: of sequences it takes lists and tuples
        alone."""
        def plain(one: Any) -> Any:
            return tuple(one) if isinstance(one, cls) else one

        return function(*map(plain, given),
                        **{name: plain(one) for name, one in (named or {}).items()})


class RowDataset(torch.utils.data.Dataset[Any]):
    """Rows of an array, and labels, for a DataLoader that hands out batches on the device:

        data = RowDataset(array, labels, device="cuda")
        for rows, labels in DataLoader(data, batch_size=1024, shuffle=True, collate_fn=data.as_is):

    ``data[3]`` is a row and its label, ``data[ids]`` (a list, a tensor or a slice) rows and labels,
    by one gather on the current stream. A loader gets all of a batch by one too. Without ``as_is``
    it takes the batch apart into samples and makes another of them: that is right, but slow.

    ``labels`` lie in memory: a tensor, or what becomes one (numbers of numpy, a list, an Array,
    which is read at once). ``device`` None is that of the runtime: of several GPUs torch's current
    one, if it is of them, else the first. Leave ``num_workers`` at 0: the GPU does the fetching,
    and a forked worker cannot use the runtime of its parent (ChildProcessError)."""

    def __init__(self, array: Array, labels: Any = None, *,
                 device: Optional[Union[str, torch.device]] = None) -> None:
        _require_array(array)
        made = None if labels is None else _as_tensor("labels", labels)
        if made is not None and made.shape[:1] != array.shape[:1]:
            raise ValueError(f"labels: their shape is {tuple(made.shape)}, and there are "
                             f"{len(array)} rows; give one for each")
        if device is None:
            device = _device_of(array.runtime)
        self.array = array
        self.device = torch.device(device)
        self.labels = None if made is None else made.to(self.device)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._batch(_chosen(index, len(self), self.device))
        number = _frameworks.row_of(index)
        if number is None:
            return self._batch(index)
        row = number + len(self) if number < 0 else number
        if not 0 <= row < len(self):
            raise IndexError(f"row {number} of {len(self)}")
        batch = self._batch([row])
        return batch[0] if self.labels is None else (batch[0][0], batch[1][0])

    def __getitems__(self, ids: Union[Tensor, Sequence[int]]) -> Any:
        """For loaders: the samples of a batch, of which ``as_is`` makes rows, or rows and
        labels."""
        batch = self._batch(ids)
        return _Batch(batch) if self.labels is None else _Batch(*batch)

    def _batch(self, ids: Any) -> Any:
        given = _as_tensor("ids", ids)
        if given.is_nested or given.layout != torch.strided:
            raise _not_dense()
        if given.numel() and (given.dtype == torch.bool or given.is_floating_point()
                              or given.is_complex()):
            raise ValueError(f"ids: {given.dtype} counts no rows; give whole numbers")
        numbers = given.to(torch.int64)
        if self.device.type == "cuda" and numbers.device.type == "cpu":
            numbers = numbers.pin_memory().to(self.device, non_blocking=True)
        rows = gather(self.array, numbers)
        return rows if self.labels is None else (rows, self.labels[numbers])

    @staticmethod
    def as_is(batch: Any) -> Any:
        """For ``collate_fn``: the batch as it was gathered, rows, or rows and labels."""
        return batch.whole if isinstance(batch, _Batch) else batch
