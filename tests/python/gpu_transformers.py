"""A model of transformers whose per-layer table (Gemma 3n) stays in the checkpoint's file: logits
equal to the bit, generation equal, also in a graph. The weights are random. See gpu_common.py."""
import functools

import gpu_common as common

SCRIPT = "gpu_transformers"
wanted = common.arguments(SCRIPT)
common.need_gpu(wanted, SCRIPT)

import torch  # noqa: E402

import penstock as ps  # noqa: E402
import penstock.torch as pt  # noqa: E402

WHERE = torch.device(wanted.device)
CUDA = wanted.device == "cuda"


def tiny_model():
    """Gemma 3n with few small layers, in bfloat16."""
    try:
        from transformers import Gemma3nForCausalLM, Gemma3nTextConfig
    except ImportError as error:
        raise common.Skip(str(error)) from error
    layers = 4
    config = Gemma3nTextConfig(
        vocab_size=2000, vocab_size_per_layer_input=2000, hidden_size=64,
        hidden_size_per_layer_input=32, intermediate_size=[128] * layers,
        num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, num_kv_shared_layers=0, laurel_rank=8,
        layer_types=["sliding_attention", "full_attention"] * (layers // 2), sliding_window=32,
        activation_sparsity_pattern=[0.0] * layers, pad_token_id=0, bos_token_id=2, eos_token_id=1,
        max_position_embeddings=512)
    torch.manual_seed(33)
    return Gemma3nForCausalLM(config).to(torch.bfloat16).eval()


class World:
    def __init__(self, folder):
        self.folder, self.made = folder, False

    def make(self):
        """The model as it was saved and loaded, and the same with its table in the file."""
        if self.made:
            return
        tiny_model().save_pretrained(self.folder)
        from transformers import Gemma3nForCausalLM
        self.real = self.load(Gemma3nForCausalLM)
        self.ours = self.load(Gemma3nForCausalLM)
        name = next(name for name, _ in self.real.named_parameters()
                    if name.endswith("embed_tokens_per_layer.weight"))
        self.runtime = ps.Runtime(device="gpu" if CUDA else "cpu", cache="1MiB", page=512, log=None)
        inner = self.ours.get_submodule(name.removesuffix(".embed_tokens_per_layer.weight"))
        old = inner.embed_tokens_per_layer
        table = pt.Embedding.from_safetensors(self.folder, "*embed_tokens_per_layer.weight",
                                              runtime=self.runtime, padding_idx=old.padding_idx,
                                              scale=float(old.embed_scale))
        inner.embed_tokens_per_layer = table.to(WHERE)
        self.ids = torch.randint(3, 2000, (2, 24), device=WHERE)
        self.ids[0, 3] = 0  # the padding token is a row as any other
        self.made = True

    def load(self, kind):
        return kind.from_pretrained(self.folder, dtype=torch.bfloat16).to(WHERE).eval()


@torch.no_grad()
def logits(w):
    w.make()
    common.equal(w.ours(w.ids).logits, w.real(w.ids).logits, "logits")
    saved = sum(p.numel() for p in w.real.parameters()) - sum(p.numel()
                                                              for p in w.ours.parameters())
    if CUDA:
        torch.cuda.synchronize()
    w.runtime.check()
    return {"parameters_left_in_the_file": saved}


@torch.no_grad()
def generation(w):
    w.make()
    options = {"max_new_tokens": 20, "do_sample": False, "use_cache": True}
    ours, real = (model.generate(w.ids, **options) for model in (w.ours, w.real))
    if not torch.equal(ours, real):
        raise AssertionError("the tokens differ")


@torch.no_grad()
def logits_in_a_graph(w):
    """One forward, captured once and launched with other tokens."""
    if not CUDA:
        raise common.Skip("no graphs on cpu")
    w.make()
    ids = w.ids.clone()
    positions = torch.arange(ids.shape[1], device=WHERE)[None]

    def capture(model):
        def forward():
            return model(ids, position_ids=positions, use_cache=False).logits
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                forward()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = forward()
        return graph, out
    try:
        capture(w.real)
    except Exception as error:
        raise common.Skip(f"the model itself cannot be captured: {error}") from error
    graph, out = capture(w.ours)
    for _ in range(20):
        ids.copy_(torch.randint(3, 2000, ids.shape, device=WHERE))
        graph.replay()
        expected = w.real(ids, position_ids=positions, use_cache=False).logits
        torch.testing.assert_close(out, expected, rtol=0.02, atol=0.02)
    torch.cuda.synchronize()
    w.runtime.check()


def main():
    with common.folder() as folder:
        w = World(folder)
        checks = [logits, generation, logits_in_a_graph]
        common.run(SCRIPT, [(check.__name__, functools.partial(check, w)) for check in checks],
                   wanted, common.describe_machine(wanted.device))


if __name__ == "__main__":
    main()
