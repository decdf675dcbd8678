"""Training by PyTorch Geometric with features in a file that is four times the cache: losses equal
to those of features in memory, with workers that sample; and the time that a fetch takes beside
numpy's. See gpu_common.py."""
import functools
import time

import gpu_common as common

SCRIPT = "gpu_pyg"
wanted = common.arguments(SCRIPT)
common.need_gpu(wanted, SCRIPT)

import numpy as np  # noqa: E402
import torch  # noqa: E402

try:
    import torch_geometric
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader, NodeLoader
    from torch_geometric.nn import SAGEConv
    from torch_geometric.sampler import BaseSampler, SamplerOutput
    from torch_geometric.testing import MyGraphStore
    from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE
except ImportError as missing:
    print(f'{{"script": "{SCRIPT}", "verdicts": {{}}, "skipped": "{missing}"}}')
    raise SystemExit(77) from missing

import penstock as ps  # noqa: E402
from penstock.pyg import FeatureStore  # noqa: E402

CUDA = wanted.device == "cuda"
WHERE = torch.device(wanted.device)
NODES, WIDTH, CLASSES, BATCH = (400_000, 128, 8, 1024) if CUDA else (20_000, 32, 8, 256)
STEPS = 25


class Sampler(BaseSampler):
    """Uniform neighbours of two hops, for where neither pyg-lib nor torch-sparse is installed. The
    draw depends on the seeds alone, so that two trainings see the same subgraphs."""

    def __init__(self, begin, ends, fanouts=(10, 5)):
        self.begin, self.ends, self.fanouts = begin, ends, fanouts

    def sample_from_nodes(self, index, **_):
        generator = torch.Generator().manual_seed(int(index.node.sum()))
        layer, rows, cols = index.node, [], []
        for fanout in self.fanouts:
            first = self.begin[layer][:, None]
            many = self.begin[layer + 1][:, None] - first
            drawn = torch.rand(len(layer), fanout, generator=generator)
            near = self.ends[first + (drawn * many).long()]
            rows.append(near.reshape(-1))
            cols.append(layer.repeat_interleave(fanout))
            layer = near.reshape(-1).unique()
        rows, cols = torch.cat(rows), torch.cat(cols)
        others = torch.cat([rows, cols]).unique()
        nodes = torch.cat([index.node, others[~torch.isin(others, index.node)]])
        place = torch.empty(len(self.begin) - 1, dtype=torch.int64)
        place[nodes] = torch.arange(len(nodes))
        return SamplerOutput(node=nodes, row=place[rows], col=place[cols], edge=None,
                             metadata=(index.input_id, None))

    def sample_from_edges(self, index, neg_sampling=None):
        raise NotImplementedError


class World:
    def __init__(self, folder):
        generator = torch.Generator().manual_seed(2)
        self.x = torch.randn(NODES, WIDTH, generator=generator)
        self.y = torch.randint(0, CLASSES, (NODES,), generator=generator)
        degrees = torch.randint(1, 20, (NODES,), generator=generator)
        self.begin = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
        self.ends = torch.randint(0, NODES, (int(degrees.sum()),), generator=generator)
        self.path = folder / "x.npy"
        np.save(self.path, self.x.numpy())
        self.runtime = ps.Runtime(device="gpu" if CUDA else "cpu",
                                  cache=max(self.x.numel(), 1 << 20), page=512, log=None)
        self.array = ps.open_array(self.path, runtime=self.runtime)
        self.store = FeatureStore({"x": self.array, "y": self.y})
        self.edges = torch.stack([self.ends,
                                  torch.arange(NODES).repeat_interleave(degrees)])

    def graph(self):
        graph = MyGraphStore()
        graph.put_edge_index(self.edges, edge_type=None, layout="coo", is_sorted=False,
                             size=(NODES, NODES))
        return graph

    def loader(self, data, workers):
        return NodeLoader(data, Sampler(self.begin, self.ends), torch.arange(STEPS * BATCH),
                          batch_size=BATCH, num_workers=workers, filter_per_worker=False)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv(WIDTH, 64), SAGEConv(64, CLASSES)

    def forward(self, x, edges):
        return self.second(torch.relu(self.first(x, edges)), edges)


def train(loader, epochs=2):
    torch.manual_seed(4)
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = Model().to(WHERE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(epochs):
        for batch in loader:
            batch = batch.to(WHERE)
            logits = model(batch.x, batch.edge_index)[:batch.batch_size]
            loss = torch.nn.functional.cross_entropy(logits, batch.y[:batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses).cpu()


def features_of_batches(w):
    """What decides: each batch has the bytes of memory, with workers and without."""
    for workers in (0, 2):
        for batch in w.loader((w.store, w.graph()), workers):
            if batch.x.device.type != WHERE.type:
                raise AssertionError(f"a batch lies on {batch.x.device}")
            common.equal(batch.x.cpu(), w.x[batch.n_id], f"{workers} workers")
            common.equal(batch.y.cpu(), w.y[batch.n_id], f"{workers} workers")
    w.store.check()


def losses(w):
    inside = Data(x=w.x, y=w.y, edge_index=w.edges, num_nodes=NODES)
    before = common.counts(w.runtime)
    begin = time.monotonic()
    ours = train(w.loader((w.store, w.graph()), 2))
    took = time.monotonic() - begin
    w.store.check()
    counted = {name: count - before[name] for name, count in common.counts(w.runtime).items()}
    begin = time.monotonic()
    theirs = train(w.loader(inside, 2))
    figures = {"seconds": round(took, 2), "in_memory": round(time.monotonic() - begin, 2),
               **counted}
    if not torch.equal(ours, theirs):
        # Sums of neighbours by atomics differ from run to run in their last bits.
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        return {**figures, "equal": "to 1e-4: the sums of this GPU are not deterministic"}
    return {**figures, "equal": "to the bit"}


def neighbor_loader(w):
    if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
        raise common.Skip("neither pyg-lib nor torch-sparse is installed")
    loader = NeighborLoader((w.store, w.graph()), [10, 5], input_nodes=torch.arange(4 * BATCH),
                            batch_size=BATCH, num_workers=2, filter_per_worker=False)
    for batch in loader:
        common.equal(batch.x.cpu(), w.x[batch.n_id])


def fetch_time(w):
    """Rows of a batch to the device: Penstock, and numpy's memory map with a copy, the file in
    memory for both. Microseconds, medians of 20."""
    ids = next(iter(w.loader((w.store, w.graph()), 0))).n_id
    windows = w.array.windows()
    mapped = np.load(w.path, mmap_mode="r")
    on_device = ids.to(WHERE)

    def ours():
        return w.array.gather(on_device)

    def theirs():
        return torch.from_numpy(mapped[ids.numpy()]).to(WHERE)
    medians = {}
    for name, fetch in (("penstock", ours), ("memmap", theirs)):
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            rows = fetch()
            if CUDA:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        common.equal(rows.cpu(), w.x[ids], name)
        medians[name] = round(1e6 * sorted(times)[10], 1)
    return {**medians, "rows": len(ids), "row_bytes": 4 * WIDTH, "window_bytes": windows,
            "times_memmap": round(medians["memmap"] / medians["penstock"], 2)}


def main():
    with common.folder() as folder:
        w = World(folder)
        checks = [features_of_batches, losses, neighbor_loader, fetch_time]
        common.run(SCRIPT, [(check.__name__, functools.partial(check, w)) for check in checks],
                   wanted, {**common.describe_machine(wanted.device),
                            "pyg": torch_geometric.__version__})


if __name__ == "__main__":
    main()
