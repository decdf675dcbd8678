#!/usr/bin/env python3
"""tools/tidy.py finds what it is for: a small tree without a violation, then one with each
violation planted."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
sys.dont_write_bytecode = True
import tidy  # noqa: E402  (found through the path above)
import tidy_text  # noqa: E402

CLEAN = {
    "include/penstock/base/macros.hpp": "// Words.\n#pragma once\n",
    "include/penstock/base/standard.hpp": "// Numbers.\n#pragma once\n#include <cstdint>\n",
    "include/penstock/engine/clock.hpp":
    '// A clock.\n#pragma once\n#include "penstock/base/macros.hpp"\n'
    "// See the table:\n//   step(x);\nvoid turn_hand();\n",
    "include/penstock/file.hpp": '// Files.\n#pragma once\n#include "penstock/engine/clock.hpp"\n',
    "src/service/env.cpp": '#include "penstock/file.hpp"\n#include <unistd.h>\nconst char* text = '
                        '"volatile // not code;";\n',
    "cli/main.cpp": '#include "os/env.hpp"\n#include "common/message.hpp"\n'
    "int main() { return 0; }\n",
    "README.md":
    "Call `turn_hand()` of `engine/clock.hpp`; see [files](include/penstock/file.hpp).\n\n"
    "| what | rate | file |\n| --- | --- | --- |\n"
    "| reads | 3.0 TB/s | `h100/2026-11-24-hit.json` |\n| maps | 2.9 TB/s | the same |\n",
    "docs/speed.md":
    "# Speed\n\nReads reach 3.0 TB/s.\n\nSee `bench/results/h100/2026-11-24-hit.json`.\n",
    "bench/results/h100/2026-11-24-hit.json": "{}\n",
}

LONG_BODY = "    count();\n" * 80

# Rule -> (file, its text) that breaks it.
PLANTED = [
    ("include_direction", "include/penstock/base/bad.hpp",
     '// B.\n#include "penstock/engine/clock.hpp"\n'),
    ("include_direction", "include/penstock/engine/bad.hpp",
     '// B.\n#include "penstock/file.hpp"\n'),
    ("include_direction", "include/penstock/engine/bad.hpp",
     "// B.\n#include <penstock/file.hpp>\n"),
    ("include_direction", "include/penstock/engine/bad.hpp",
     '// B.\n#include "penstock/consistency/page_versions.hpp"\n'),
    ("include_direction", "include/penstock/bad.hpp", '// B.\n#include "os/env.hpp"\n'),
    ("include_direction", "src/buffer/core/bad.hpp", '#include "buffer/pool/manager.hpp"\n'),
    ("include_direction", "src/buffer/core/bad.hpp", '#include "os/env.hpp"\n'),
    ("include_direction", "src/os/bad.hpp", '#include "files/file_registry.hpp"\n'),
    ("include_direction", "src/os/bad.hpp", '#include "settings/tables.hpp"\n'),
    ("include_direction", "src/settings/bad.hpp", '#include "hub/hub.hpp"\n'),
    ("include_direction", "src/hub/bad.hpp", '#include "files/file_registry.hpp"\n'),
    ("include_direction", "src/hub/bad.hpp", '#include "device/device.hpp"\n'),
    ("include_direction", "src/device/bad.hpp", '#include "service/windows.hpp"\n'),
    ("include_direction", "src/files/bad.hpp", '#include "peers/cached_reads.hpp"\n'),
    ("include_direction", "src/buffer/pool/bad.hpp", '#include "files/file_registry.hpp"\n'),
    ("include_direction", "src/peers/bad.hpp", '#include "service/service.hpp"\n'),
    ("include_direction", "src/service/bad.hpp", '#include "runtime/runtime_state.hpp"\n'),
    ("include_direction", "src/runtime/bad.hpp", '#include "region/mapped_region.hpp"\n'),
    ("include_direction", "src/region/bad.hpp", '#include "mount/folder.hpp"\n'),
    ("include_direction", "src/table/bad.hpp", '#include "mount/folder.hpp"\n'),
    ("include_direction", "src/table/bad.hpp", '#include "region/programs.hpp"\n'),
    ("include_direction", "src/service/bad.cpp", '#include "common/message.hpp"\n'),
    ("include_direction", "src/service/bad.cpp", '#include "bench/context.hpp"\n'),
    ("include_direction", "bench/bad.cpp", '#include "cli/copy_job.hpp"\n'),
    ("include_direction", "apps/common/bad.cpp", '#include "request.hpp"\n'),
    ("pure_layers", "include/penstock/engine/bad.hpp", "// B.\n#include <unistd.h>\n"),
    ("pure_layers", "include/penstock/engine/bad.hpp", "// B.\n#include <vector>\n"),
    ("pure_layers", "include/penstock/group/bad.hpp", "// B.\n#include <sys/mman.h>\n"),
    ("pure_layers", "include/penstock/engine/bad.hpp", "// B.\n#include <cstdint>\n"),
    ("pure_layers", "include/penstock/engine/bad.hpp",
     "// B.\ninline int* make() { return new int; }\n"),
    ("pure_layers", "include/penstock/engine/bad.hpp", "// B.\ninline void fail() { throw 1; }\n"),
    ("file_length", "src/service/bad.cpp", "int a;\n" * 601),
    ("function_length", "src/service/bad.cpp",
     "namespace n {\nint f(int a) {\n" + LONG_BODY + "}\n}\n"),
    ("function_length", "src/service/bad.cpp",
     "struct s {\n    s(int a) : a_(a) {\n" + LONG_BODY + "    }\n};\n"),
    ("line_length", "src/service/bad.cpp", "// " + "long" * 25 + "\n"),
    ("line_length", "tools/bad.py", "a = " + "1 + " * 25 + "1\n"),
    ("line_length", "tests/bad.sh", "echo " + "long" * 25 + "\n"),
    ("line_length", ".ci/run", "# " + "long" * 25 + "\n"),
    ("line_length", "docs/bad.md", "long" * 31 + "\n"),
    ("function_length", "tools/bad.py", "def f():\n" + "    f()\n" * 80),
    ("no_volatile", "src/service/bad.cpp", "volatile int a;\n"),
    ("no_leftovers", "src/service/bad.cpp", "// TO" + "DO: later\n"),
    ("no_leftovers", "src/service/bad.cpp", "int a;  // FIX" + "ME\n"),
    ("no_leftovers", "src/service/bad.cpp", "// a = b + 1;\n"),
    ("no_leftovers", "src/service/bad.cpp", "    // return 0;\n"),
    ("no_leftovers", "src/service/bad.cpp", "// if (a) {\n"),
    ("orders", "include/penstock/engine/bad.hpp",
     "// B.\nint f(int* a) { return atomic_load<order::relaxed>(a); }\n"),
    ("headers_begin_with_comment", "include/penstock/bad.hpp", "#pragma once\n"),
    ("no_machine_paths", "docs/bad.md", "See /ho" + "me/me/notes.\n"),
    ("plain_text", "src/service/bad.cpp", "int a; \n"),
    ("plain_text", "src/service/bad.cpp", "\tint a;\n"),
    ("plain_text", "src/service/bad.cpp", "int a;"),
    ("names_exist", "docs/bad.md", "Call `turn_back()`.\n"),
    ("names_exist", "docs/bad.md", "The option `no_such_bytes` helps.\n"),
    ("names_exist", "docs/bad.md", "See `engine/gone.hpp`.\n"),
    ("links_exist", "docs/bad.md", "See [this](gone.md).\n"),
    ("results_exist", "docs/bad.md", "See `h100/2026-11-24-gone.json`.\n"),
    ("results_exist", "src/service/bad.cpp",
     "int a;  // as bench/results/h100/2026-11-24-gone.txt has it\n"),
    ("results_exist", "docs/bad.md", "See `bench/results/h100/2026-11-24-gone.json`.\n"),
    ("results_exist", "docs/bad.md", "See `h100/2026-11-24-hit`.\n"),
    ("results_exist", "docs/bad.md", "See `2026-11-24-hit.json`.\n"),
    ("results_exist", "docs/bad.md", "See `h100-2026-11-24-hit.json`.\n"),
    ("results_exist", "docs/bad.md", "See `h100/2026-11-24-hit.json` and `-2.json`.\n"),
    ("figures_name_results", "docs/bad.md",
     "# A\n\nSee `h100/2026-11-24-hit.json`.\n\n## B\n\nReads reach 3.0 TB/s.\n"),
    ("figures_name_results", "docs/bad.md", "It appends 11.6 million records a second.\n"),
    ("figures_name_results", "README.md",
     "See `h100/2026-11-24-hit.json`.\n\nReads reach 3.0 TB/s.\n"),
    ("figures_name_results", "README.md",
     "| reads | 3.0 TB/s | `h100/2026-11-24-hit.json` |\n| maps | 2.9 GB/s | |\n"),
]


class Tidy(unittest.TestCase):
    def plant(self, files):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        for name, text in files.items():
            path = pathlib.Path(holder.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return holder.name

    def test_a_clean_tree_has_no_violation(self):
        self.assertEqual(tidy.violations(self.plant(CLEAN)), [])

    def test_every_planted_violation_is_found(self):
        for rule, path, text in PLANTED:
            with self.subTest(rule=rule, text=text[:60]):
                found = tidy.violations(self.plant({**CLEAN, path: text}))
                self.assertTrue(found, "nothing found")
                for line in found:
                    self.assertTrue(line.startswith(path + ":") and f": {rule}: " in line, line)

    def test_every_rule_has_a_planted_violation(self):
        self.assertEqual({rule.__name__ for rule in tidy.RULES}, {rule for rule, _, _ in PLANTED})

    def test_functions_are_found_where_they_are(self):
        code, _ = tidy_text.split_comments(
            "namespace n {\nclass c {\n    int f() const {\n        if (a) { b(); }\n        auto "
            "l = [&](int x) { return x; };\n"
            "    }\n    bool operator==(const c&) const = default;\n};\ntemplate <typename T>\n"
            "void g(T a,\n       T b) {\n}\n}\n")
        self.assertEqual(tidy_text.functions(code), [("f", 3, 6), ("g", 9, 12)])


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=["tidy_test.py"])
