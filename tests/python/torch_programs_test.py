"""What torch traces, compiles and saves, on CPU threads: programs gather from the table that they
are given, in another process too or not at all; autograd knows of their writes; and calls that
would be missing in them are refused. Skipped where torch or its operators for Python are missing.
"""
import os
import shutil
import subprocess
import sys
import threading
import unittest
import unittest.mock
import warnings

os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # a program of before would answer

from torch_module_test import WithTable, write_safetensors  # noqa: E402  (ends where torch is not)

import torch  # noqa: E402
import penstock as ps  # noqa: E402
import penstock.torch as pt  # noqa: E402

if not pt.has_operator:
    print("skipped: this torch takes no fake kernels")
    sys.exit(77)
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

BACKENDS = ("eager", "aot_eager", "inductor")[:3 if shutil.which("c++") else 2]


class Programs(WithTable):
    """What torch traces, compiles and saves, of several tables."""

    def setUp(self):
        super().setUp()
        self.other = torch.randn(500, 24, generator=torch.Generator().manual_seed(34))
        write_safetensors(self.folder / "other.safetensors", {"embed.weight": self.other})
        torch._dynamo.reset()

    def open_other(self):
        return ps.open_array(self.folder / "other.safetensors", "embed.weight",
                             runtime=self.runtime)

    def test_a_compiled_function_gathers_from_the_array_that_it_gets(self):
        """Also from one of which no number was asked for, and from one that was opened since."""
        compiled = torch.compile(lambda array, ids: pt.gather(array, ids) + 1, fullgraph=True,
                                 backend="aot_eager")
        first, second = self.open(), self.open_other()
        for array, weight in ((first, self.weight), (second, self.other), (first, self.weight),
                              (self.open_other(), self.other), (second, self.other)):
            self.assertTrue(torch.equal(compiled(array, self.ids), weight[self.ids] + 1))

    def test_an_attribute_that_becomes_another_array(self):
        model = torch.nn.Module()
        model.forward = lambda ids: pt.gather(model.table, ids)
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        for model.table, weight in ((self.open(), self.weight), (self.open_other(), self.other)):
            self.assertTrue(torch.equal(compiled(self.ids), weight[self.ids]))

    def test_two_threads_have_one_number_that_is_known(self):
        before = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, before)
        sys.setswitchinterval(1e-6)
        for _ in range(300):
            array, barrier, found = self.open(), threading.Barrier(2), []

            def ask(array=array, barrier=barrier, found=found):
                barrier.wait()
                number = pt.handle(array)
                rows = torch.empty(1, 24)
                pt._gather(number, torch.tensor([3]), rows, None)
                found.append(number)
            threads = [threading.Thread(target=ask) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(len(found), 2)
            self.assertEqual(found[0], found[1])

    def run_elsewhere(self, files):
        """What saved programs give in a process that has opened these files, in this order."""
        code = """if True:
            import sys, warnings
            warnings.simplefilter("ignore")
            import torch, penstock as ps, penstock.torch as pt
            import torch._higher_order_ops.auto_functionalize  # PyTorch 2.4 finds it only so
            folder, *files = sys.argv[1:]
            runtime = ps.Runtime("cpu", cache="1MiB", page=512, log=None)
            arrays = [ps.open_array(f"{folder}/{name}.safetensors", "embed.weight",
                                    runtime=runtime) for name in files]
            programs = {"trace": lambda: torch.jit.load(f"{folder}/trace.pt"),
                        "export": lambda: torch.export.load(f"{folder}/export.pt2").module()}
            for name, load in programs.items():
                try:
                    print(name, load()(torch.tensor([3, 4])).sum().item())
                except Exception as error:
                    print(name, "is gone" if "is gone" in str(error) else error)
        """
        ran = subprocess.run([sys.executable, "-B", "-c", code, str(self.folder), *files],
                             capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout.splitlines()

    def test_a_saved_program_finds_its_table_or_says_that_it_is_gone(self):
        embedding, ids = self.embedding(), torch.tensor([0, 1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.trace(embedding, ids).save(str(self.folder / "trace.pt"))
        torch.export.save(torch.export.export(embedding, (ids,)), self.folder / "export.pt2")
        right = self.weight[[3, 4]].sum().item()
        gone = ["trace is gone", "export is gone"]
        self.assertEqual(self.run_elsewhere(["other", "model"]),
                         [f"trace {right}", f"export {right}"])
        self.assertEqual(self.run_elsewhere(["other"]), gone)
        shutil.copy(self.folder / "model.safetensors", self.folder / "same.safetensors")
        self.assertEqual(self.run_elsewhere(["same"]), gone)
        write_safetensors(self.folder / "model.safetensors", {"embed.weight": self.weight})
        self.assertEqual(self.run_elsewhere(["model"]), gone)

    def test_numbers_of_arrays_that_are_alike(self):
        first = self.open()
        numbers = {pt.handle(first), pt.handle(self.open()), pt.handle(self.open())}
        self.assertEqual(len(numbers), 3)
        self.assertTrue(all(0 <= number < 1 << 62 for number in numbers))
        self.assertIn(pt.handle(first), numbers)

    def test_a_file_that_is_replaced_while_it_is_opened(self):
        """The array may have the old one or the new one, and a program has to find neither."""
        path, made = self.folder / "model.safetensors", ps._array._core.make_table
        new = self.folder / "new.safetensors"
        shutil.copy(path, new)

        def replaced(*arguments):
            table = made(*arguments)
            os.replace(new, path)
            return table

        with unittest.mock.patch.object(ps._array._core, "make_table", replaced):
            old = self.open()
        self.assertTrue(torch.equal(old.gather(torch.tensor([3])), self.weight[[3]]))
        other = ps.Runtime("cpu", cache="1MiB", page=512, log=None)
        self.addCleanup(other.close)
        later = ps.open_array(path, "embed.weight", runtime=other)
        self.assertGreater(abs(pt.handle(old) - pt.handle(later)), 9)

    def test_a_compiled_write_of_what_a_backward_needs_raises(self):
        array = self.open()

        def write(weight, out, ids):
            product = (weight * out).sum()
            pt.gather(array, ids, out=out)
            return product
        for backend in BACKENDS:
            for gradients in (True, False):
                with self.subTest(backend=backend, gradients=gradients):
                    torch._dynamo.reset()
                    weight = torch.ones(7, 11, 24, requires_grad=True)

                    def call(weight, out, ids, gradients=gradients):
                        if gradients:
                            return write(weight, out, ids)
                        product = (weight * out).sum()
                        with torch.no_grad():
                            pt.gather(array, ids, out=out)
                        return product
                    compiled = torch.compile(call, fullgraph=True, backend=backend)
                    with self.assertRaisesRegex(Exception, "modified by an inplace operation"):
                        compiled(weight, torch.ones(7, 11, 24), self.ids).backward()

    def test_a_compiled_write_of_what_requires_a_gradient_is_refused(self):
        number, weight = pt.handle(self.open()), torch.ones(7, 11, 24, requires_grad=True)

        def rows(weight, ids):
            out = weight * 2
            torch.ops.penstock.gather(number, ids, out, None)
            return out.sum()
        with self.assertRaisesRegex(ValueError, "requires a gradient"):
            rows(weight, self.ids)
        for backend in BACKENDS[1:]:
            torch._dynamo.reset()
            with self.subTest(backend), self.assertRaisesRegex(Exception, "requires a gradient"):
                torch.compile(rows, fullgraph=True, backend=backend)(weight, self.ids)

    def test_out_with_a_tangent_is_refused(self):
        array = self.open()
        forward = torch.autograd.forward_ad
        with forward.dual_level():
            out = forward.make_dual(torch.ones(7, 11, 24), torch.ones(7, 11, 24))
            for gather in (lambda: pt.gather(array, self.ids, out),
                           lambda: array.gather(self.ids, out=out),
                           lambda: torch.ops.penstock.gather(pt.handle(array), self.ids, out,
                                                             None)):
                with self.assertRaisesRegex(ValueError, "^out: it has a tangent"):
                    gather()
            plain = pt.gather(array, self.ids, torch.ones(7, 11, 24))
            self.assertTrue(torch.equal(plain, self.weight[self.ids]))

    def test_the_operator_is_recorded(self):
        array, ids = self.open(), self.ids.flip(0)
        out = torch.empty(7, 11, 24)
        for options in ({}, {"tracing_mode": "fake"}, {"tracing_mode": "symbolic"},
                        {"pre_dispatch": True}):
            for given in ((), (out,)):
                with self.subTest(options=options, out=bool(given)):
                    made = make_fx(lambda ids, *out: pt.gather(array, ids, *out),
                                   **options)(self.ids, *given)
                    self.assertTrue(torch.equal(made(ids, *given), self.weight[ids]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(lambda ids, out: pt.gather(array, ids, out), (self.ids, out))
        self.assertTrue(torch.equal(traced(ids, out), self.weight[ids]))

    def test_what_would_be_missing_in_a_recorded_program_is_refused(self):
        runtime = ps.Runtime("cpu", cache="1MiB", page=512, log=None, writable=True)
        self.addCleanup(runtime.close)
        array = ps.open_array(self.folder / "model.safetensors", "embed.weight", mode="r+",
                              runtime=runtime)
        calls = {"gather": array.gather, "t[ids]": lambda ids: array[ids],
                 "out": lambda ids: array.gather(ids, out=torch.empty(7, 11, 24)),
                 "list": lambda ids: array.gather([3, 4], out=torch.empty(2, 24)),
                 "short": lambda ids: array.gather(ids.short()),
                 "scatter": lambda ids: array.scatter(ids, torch.zeros(7, 11, 24)),
                 "prefetch": array.prefetch,
                 "view": lambda ids: array[3:5].to("cpu")}
        ways = {"trace": lambda call: torch.jit.trace(call, self.ids),
                "make_fx": lambda call: make_fx(call)(self.ids),
                "fake": lambda call: make_fx(call, tracing_mode="fake")(self.ids),
                "early": lambda call: make_fx(call, pre_dispatch=True)(self.ids)}

        def after(call):
            def function(ids):
                call(ids)
                return ids + 1
            return function
        for name, call in calls.items():
            for way, record in ways.items():
                with self.subTest(name, way=way), warnings.catch_warnings(), \
                        self.assertRaisesRegex(RuntimeError, "penstock.torch.gather"):
                    warnings.simplefilter("ignore")
                    record(after(call))
        self.assertTrue(torch.equal(array.gather(self.ids), self.weight[self.ids]))

    def test_a_mode_that_looks_on_sees_the_operator(self):
        array, seen = self.open(), []

        class Onlooker(TorchDispatchMode):
            def __torch_dispatch__(self, function, kinds, arguments=(), options=None):
                seen.append(str(function))
                return function(*arguments, **(options or {}))
        with Onlooker():
            for gather in (lambda: pt.gather(array, self.ids), lambda: array.gather(self.ids)):
                self.assertTrue(torch.equal(gather(), self.weight[self.ids]))
        self.assertIn("penstock.gather.default", seen)


if __name__ == "__main__":
    unittest.main()
