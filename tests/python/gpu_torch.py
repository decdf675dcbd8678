"""penstock.torch on a GPU: rows equal to index_select, eagerly, into given memory, on streams, in a
graph whose pages leave meanwhile, compiled; and errors that come later. See gpu_common.py."""
import functools
import time

import gpu_common as common

SCRIPT = "gpu_torch"
wanted = common.arguments(SCRIPT)
common.need_gpu(wanted, SCRIPT)

import torch  # noqa: E402  (after the look whether it is there)

import penstock as ps  # noqa: E402
import penstock.torch as pt  # noqa: E402

ROWS, WIDTH, REPLAYS, IDS = 1 << 18, 128, 10_000, 64
CUDA = wanted.device == "cuda"
WHERE = torch.device(wanted.device)


class World:
    """A table of 64 MiB beside a cache of 8 MiB, and the same rows in memory of the device."""

    def __init__(self, folder):
        self.path = folder / "rows.bin"
        generator = torch.Generator().manual_seed(33)
        weight = torch.randint(0, 60000, (ROWS, WIDTH), generator=generator).to(torch.int16)
        weight = weight.view(torch.float16).nan_to_num(1.0)
        self.path.write_bytes(weight.numpy().tobytes())
        self.runtime = ps.Runtime(device="gpu" if CUDA else "cpu", cache="8MiB", page=512, log=None)
        self.table = self.open()
        self.weight = weight.to(WHERE)

    def open(self):
        return ps.open_array(self.path, dtype="float16", shape=(-1, WIDTH), runtime=self.runtime)

    def ids(self, *shape):
        return torch.randint(0, ROWS, shape, device=WHERE)


def settle():
    if CUDA:
        torch.cuda.synchronize()


def eager(w):
    for shape in ((1,), (64,), (7, 11), (4096,), (0,), (2, 0, 3)):
        ids = w.ids(*shape)
        common.equal(pt.gather(w.table, ids), w.weight[ids], f"int64 {shape}")
        common.equal(w.table.gather(ids.int()), w.weight[ids], f"int32 {shape}")
    ids = torch.full((1000,), 17, device=WHERE)
    common.equal(w.table[ids], w.weight[ids], "one row many times")
    settle()
    w.runtime.check()


def into_given_memory(w):
    ids = w.ids(500)
    out = torch.empty(500, WIDTH, dtype=torch.float16, device=WHERE)
    w.table.gather(ids, out=out)
    common.equal(out, w.weight[ids])
    wide = torch.zeros(500, 2 * WIDTH, dtype=torch.float16, device=WHERE)
    w.table.gather(ids, out=wide[:, :WIDTH])
    common.equal(wide[:, :WIDTH].contiguous(), w.weight[ids], "rows that lie apart")
    common.equal(wide[:, WIDTH:].contiguous(), torch.zeros_like(out), "bytes between the rows")
    common.expect(ValueError, lambda: w.table.gather(ids, out=out[1:]), "shape")
    common.expect(ValueError, lambda: w.table.gather(ids, out=out.float()), "elements")


def padding(w):
    ids = w.ids(300)
    ids[::3] = -1
    expected = torch.where((ids == -1)[:, None], 0, w.weight[ids.clamp(min=0)])
    common.equal(w.table.gather(ids, pad=-1), expected.to(torch.float16))
    settle()
    w.runtime.check()


def side_stream(w):
    if not CUDA:
        raise common.Skip("no streams on cpu")
    stream = torch.cuda.Stream()
    ids = torch.zeros(2000, dtype=torch.int64, device=WHERE)
    settle()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # the numbers come late, on the same stream
        ids.copy_(w.ids(2000))
        rows = w.table.gather(ids)
        copy = rows.clone()
    stream.synchronize()
    common.equal(copy, w.weight[ids], "order on a side stream")
    with torch.cuda.stream(torch.cuda.current_stream()):
        rows = w.table.gather(ids, stream=stream)
    stream.synchronize()
    common.equal(rows, w.weight[ids], "stream=")


def replay(w, graph, ids, out, rounds):
    """Launches the graph again and again with other numbers; how many rounds had a wrong byte."""
    numbers = w.ids(rounds, IDS)
    wrong = torch.zeros((), dtype=torch.int64, device=WHERE)
    for i in range(rounds):
        ids.copy_(numbers[i])
        graph.replay()
        wrong += (out.view(torch.int16) != w.weight[ids].view(torch.int16)).any()
    settle()
    return int(wrong)


def captured(w):
    ids = w.ids(IDS)
    w.table.gather(ids)
    settle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # capture mode "global": no other thread may disturb it
        out = pt.gather(w.table, ids)
    return graph, ids, out


def graph_while_pages_leave(w):
    if not CUDA:
        raise common.Skip("no graphs on cpu")
    graph, ids, out = captured(w)
    before, begin = common.counts(w.runtime), time.monotonic()
    with common.DroppedPages(w.path) as dropped:
        wrong = replay(w, graph, ids, out, REPLAYS)
    took = time.monotonic() - begin
    w.runtime.check()
    if wrong:
        raise AssertionError(f"{wrong} of {REPLAYS} replays had a wrong byte")
    if dropped.rounds == 0:
        raise AssertionError("no pages were dropped meanwhile")
    counted = {name: count - before[name] for name, count in common.counts(w.runtime).items()}
    if counted["evictions"] == 0 or counted["requests"] == 0:
        raise AssertionError(f"no page left the cache meanwhile: {counted}")
    return {"us_a_replay": round(1e6 * took / REPLAYS, 1), "drops": dropped.rounds, **counted}


def graph_through_windows(w):
    if not CUDA:
        raise common.Skip("no graphs on cpu")
    table = w.open()
    w.path.read_bytes()  # windows are opened for what lies in memory, and pages were dropped before
    opened = table.windows()
    if opened == 0:
        raise AssertionError("no window was opened, so no row came through one")
    graph = torch.cuda.CUDAGraph()
    ids = w.ids(IDS)
    table.gather(ids)
    settle()
    with torch.cuda.graph(graph):
        out = pt.gather(table, ids)
    wrong = replay(w, graph, ids, out, 2000)
    del graph
    table.close()
    if wrong:
        raise AssertionError(f"{wrong} of 2000 replays had a wrong byte")
    return {"window_bytes": opened}


def compiled(w):
    if not pt.has_operator:
        raise common.Skip("this torch takes no fake kernels")
    scale = 2.0 ** -16
    embedding = pt.Embedding(w.table, dtype=torch.float32, scale=scale).to(WHERE)
    linear = torch.nn.Linear(WIDTH, 8).to(WHERE)

    def model(ids):
        return linear(embedding(ids))
    options = {"mode": "reduce-overhead"} if CUDA else {"backend": "aot_eager"}
    fast = torch.compile(model, fullgraph=True, **options)
    with torch.no_grad():
        for _ in range(6):  # the first calls warm up and record, the others replay
            ids = w.ids(4, 33)
            torch.testing.assert_close(fast(ids).clone(), model(ids), rtol=1e-4, atol=1e-4)
            common.equal(embedding(ids), w.weight[ids].float() * scale)
    settle()
    w.runtime.check()


def opcheck(w):
    if not pt.has_operator:
        raise common.Skip("this torch takes no fake kernels")
    out = torch.empty(5, WIDTH, dtype=torch.float16, device=WHERE)
    for pad in (None, -1):
        torch.library.opcheck(torch.ops.penstock.gather.default,
                              (pt.handle(w.table), w.ids(5), out, pad))


def error_comes_later(w):
    table = w.open()
    ids = w.ids(50)
    ids[20] = ROWS + 5
    if not CUDA:
        common.expect(IndexError, lambda: table.gather(ids), str(ROWS + 5))
        return
    rows = table.gather(ids)  # does not raise: it has not begun
    settle()
    good = torch.arange(50, device=WHERE) != 20
    common.equal(rows[good], w.weight[ids[good]], "the other rows")
    common.equal(rows[20], torch.zeros(WIDTH, dtype=torch.float16, device=WHERE), "the bad row")
    common.expect(IndexError, lambda: table.gather(w.ids(5)), str(ROWS + 5))
    ids = w.ids(50)
    common.equal(table.gather(ids), w.weight[ids], "after the error was raised")
    ids[0] = -7
    table.gather(ids)
    settle()
    common.expect(IndexError, w.runtime.check)
    w.runtime.check()
    table.close()


def dataset(w):
    labels = torch.arange(ROWS) % 10
    data = pt.RowDataset(w.table, labels)
    loader = torch.utils.data.DataLoader(data, batch_size=8192, shuffle=True,
                                         collate_fn=data.as_is)
    seen = 0
    for rows, got in loader:
        if rows.device.type != WHERE.type or got.device.type != WHERE.type:
            raise AssertionError(f"a batch lies on {rows.device}")
        seen += len(rows)
    if seen != ROWS:
        raise AssertionError(f"{seen} rows of {ROWS}")
    ids = [5, 9, 77]
    common.equal(data[ids][0], w.weight[torch.tensor(ids, device=WHERE)])


def tensors_tell(w):
    """The core takes tensors as they are, where PyTorch hands out DLPack's functions."""
    ids, out = w.ids(40), torch.empty(40, WIDTH, dtype=torch.float16, device=WHERE)
    tells = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
    cases = [(ids, out, tells), (ids.int(), out, tells), (ids[::2], out[:20], False),
             (ids, out.float(), False), (ids.float(), out, False)]
    if CUDA:
        cases += [(ids.cpu(), out, False), (ids, out.cpu(), False), (ids.cpu(), out.cpu(), False)]
    for numbers, rows, wanted in cases:
        if w.table._core.gather_arrays(numbers, rows, None) != wanted:
            raise AssertionError(f"{numbers.dtype} {numbers.shape} on {numbers.device}, rows "
                                 f"{rows.dtype} on {rows.device}: not {wanted}")
    if tells:
        common.equal(out, w.weight[ids])
        with torch.inference_mode():
            common.equal(w.table.gather(ids), w.weight[ids], "in inference mode")


def each_device(w):
    """Tensors of every GPU of a runtime, on streams of their own; never of two GPUs at once."""
    count = torch.cuda.device_count() if CUDA else 0
    if count < 2:
        raise common.Skip("needs two GPUs")
    with ps.Runtime(device=list(range(count)), cache="8MiB", page=512, log=None) as rt:
        table = ps.open_array(w.path, dtype="float16", shape=(-1, WIDTH), runtime=rt)
        for number in range(count):
            weight = w.weight.to(f"cuda:{number}")
            for stream in (torch.cuda.current_stream(number), torch.cuda.Stream(number)):
                with torch.cuda.stream(stream):
                    ids = torch.randint(0, ROWS, (3000,), device=weight.device)
                    common.equal(table.gather(ids), weight[ids], f"GPU {number}")
                    out = torch.empty(3000, WIDTH, dtype=torch.float16, device=weight.device)
                    common.equal(table.gather(ids, out=out), weight[ids], f"GPU {number}, out")
        common.expect(ValueError, lambda: table.gather(ids, out=out.to("cuda:0")), "GPU 0")
        settle()
        rt.check()


def call_overhead(w):
    """Time on the host of a call that gathers 16 rows, in microseconds: the best of 20 runs."""
    ids, out = w.ids(16), torch.empty(16, WIDTH, dtype=torch.float16, device=WHERE)
    operator = torch.ops.penstock.gather if pt.has_operator else pt._gather
    best = {}
    for name, call in (("array", lambda: w.table.gather(ids, out=out)),
                       ("penstock.torch", lambda: pt.gather(w.table, ids, out=out)),
                       ("operator", lambda: operator(pt.handle(w.table), ids, out, None)),
                       ("torch.index_select",
                        lambda: torch.index_select(w.weight, 0, ids, out=out))):
        best[name] = float("inf")
        for _ in range(20):
            settle()
            begin = time.perf_counter()
            for _ in range(50):
                call()
            best[name] = min(best[name], (time.perf_counter() - begin) / 50 * 1e6)
    return {name: round(us, 2) for name, us in best.items()}


def main():
    with common.folder() as folder:
        w = World(folder)
        checks = [eager, into_given_memory, padding, side_stream, graph_while_pages_leave,
                  graph_through_windows, opcheck, error_comes_later, dataset, tensors_tell,
                  each_device, call_overhead, compiled]
        common.run(SCRIPT, [(check.__name__, functools.partial(check, w)) for check in checks],
                   wanted, common.describe_machine(wanted.device))


if __name__ == "__main__":
    main()
