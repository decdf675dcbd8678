#!/usr/bin/env python3
"""What tools/site makes of Markdown, of headers and of results: site_text_test.py REPOSITORY."""
import contextlib
import io
import pathlib
import re
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tools/site"))
sys.dont_write_bytecode = True
sys.modules.setdefault("griffe", types.SimpleNamespace(Extension=object))  # not needed here
import docstrings  # noqa: E402  (found through the path above)
import header_pages  # noqa: E402  (found through the path above)
import page_text  # noqa: E402
import result_plots  # noqa: E402

RESULT = "cpu/" + "2026-01-01-x.json"  # no result of ours
HEADER = """// Files that count.
//
// Call it so:
//
//   count(1);       // of one
//
// More in docs/guide/a.md, by a_name, at -EINVAL, and
// penstock/other.hpp.
#pragma once

#include <cstdint>

namespace penstock {

class unknown;

enum class kind { first, second };  // kinds

namespace detail {
inline int hidden() { return 1; }
}  // namespace detail

// Counts <all> of it.
template <typename T>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t count(const T& of,
                                               int times = 2) {
    return of * times;
}

// A plain thing.
struct plain {
    int a = 0;  // the first
    // The second.
    int b = 0;
};

// A counter.
class counter {
public:
    explicit counter(int from) : from_(from) {}
    counter(const counter&) = delete;
    // Adds, and
    // says so.
    counter& operator+=(int more);
    std::function<void(int)> told;  // by each addition

private:
    int from_ = 0;
};

}  // namespace penstock
"""


def set_in(text):
    return page_text.outside_fences(text, page_text.set_in_lists)


def linked(text):
    places = {"docs/guide/a.md": "guide/a.md", "docs/guide/b.md": "guide/b.md",
              "README.md": "index.md", f"bench/results/{RESULT}": "source/x.json"}
    said = []
    change = page_text.target_mapper("docs/guide/a.md", places, said.append)
    return page_text.outside_fences(text, lambda part: page_text.map_links(part, change)), said


class Lists(unittest.TestCase):
    def test_nested_items_are_set_in_by_four(self):
        self.assertEqual(set_in("- a\n  b\n  - c\n    d\n- e"),
                         "- a\n    b\n    - c\n        d\n- e")
        self.assertEqual(set_in("1. a\n   - b\n2. c"), "1. a\n    - b\n2. c")

    def test_a_list_below_a_paragraph_gets_an_empty_line(self):
        self.assertEqual(set_in("text\n- a\n- b"), "text\n\n- a\n- b")

    def test_a_number_at_the_start_of_a_line_begins_no_list(self):
        self.assertEqual(set_in("less at\n1024. On"), "less at\n1024. On")

    def test_text_after_a_list_is_left_alone(self):
        self.assertEqual(set_in("- a\n\ntext\n  more"), "- a\n\ntext\n  more")

    def test_fences_are_left_alone(self):
        text = "```sh\n- a\n  - b\n```"
        self.assertEqual(set_in(text), text)


class Links(unittest.TestCase):
    def test_links_lead_to_places_of_the_site(self):
        text, said = linked("[a](b.md#x) [r](../../README.md) [w](https://host.example/) [h](#y)")
        self.assertEqual(text, "[a](b.md#x) [r](../index.md) [w](https://host.example/) [h](#y)")
        self.assertEqual(said, [])

    def test_a_link_may_go_over_a_line(self):
        self.assertEqual(linked("[how\nto](../../README.md)")[0], "[how\nto](../index.md)")

    def test_a_link_to_nothing_is_told(self):
        self.assertIn("docs/guide/gone.md, which is not on the site", linked("[a](gone.md)")[1][0])

    def test_results_in_backticks_become_links(self):
        self.assertEqual(linked(f"`{RESULT}`")[0], f"[`{RESULT}`](../source/x.json)")

    def test_code_is_left_alone(self):
        for text in ("`[a](b.md)`", "```\n[a](gone.md)\n```"):
            self.assertEqual(linked(text), (text, []))


class Headers(unittest.TestCase):
    maxDiff = None

    def page(self):
        links = {"docs/guide/a.md": "../../guide/a.md", "penstock/other.hpp": "other.md"}.get
        writer = header_pages.Writer(links)
        about, rest = header_pages.essay(HEADER)
        writer.comment(about)
        writer.scope(header_pages.items(rest), "", 2)
        return "\n".join(line for line in writer.lines if line)

    def test_a_page(self):
        self.assertEqual(self.page(), """Files that count.
Call it so:
```cpp
count(1);       // of one
```
More in [`docs/guide/a.md`](../../guide/a.md), by `a_name`, at `-EINVAL`, and
[`penstock/other.hpp`](other.md).
## enum `kind`
```cpp
enum class kind { first, second };  // kinds
```
## `count`
Counts &lt;all&gt; of it.
```cpp
template <typename T>
PENSTOCK_HD std::int64_t count(const T& of,
                               int times = 2);
```
## struct `plain`
A plain thing.
```cpp
struct plain {
    int a = 0;  // the first
    // The second.
    int b = 0;
};
```
## class `counter`
A counter.
```cpp
class counter {
    std::function<void(int)> told;  // by each addition
};
```
### `counter::counter`
```cpp
explicit counter(int from);
```
### `counter::operator+=`
Adds, and
says so.
```cpp
counter& operator+=(int more);
```""")

    def test_every_header_has_a_page_with_its_declarations(self):
        pages = header_pages.make(ROOT, {})
        headers = list((ROOT / "include/penstock").glob("*.hpp"))
        self.assertEqual(len(pages), len(headers) + 1)
        without = {name for name, text in pages.items() if "\n## " not in text}
        self.assertEqual(without, {"reference/cpp/index.md", "reference/cpp/penstock.md"})
        for name, said in (("file", "## `read`"), ("table", "### `table::gather`"),
                           ("runtime", "### `runtime::make`"), ("buffer", "class `buffer_pool`")):
            self.assertIn(said, pages[f"reference/cpp/{name}.md"])

    def test_bodies_and_private_members_are_left_out(self):
        for name, text in header_pages.make(ROOT, {}).items():
            self.assertNotIn("private:", text, name)
            self.assertNotIn("engine::deliver", text, name)
            self.assertNotRegex(text, r"(?m)^#+ *$", name)

    def test_every_comment_of_a_scope_is_shown(self):
        """By the first line of each comment that is not set in."""
        shown, pages = 0, header_pages.make(ROOT, {})
        for path in (ROOT / "include/penstock").glob("*.hpp"):
            text = path.read_text(encoding="utf-8")
            public = re.sub(r"(?s)\nnamespace detail {.*?\n}  // namespace detail", "", text)
            page = pages[f"reference/cpp/{path.stem}.md"]
            for first, below in re.findall(r"\n\n// ([A-Z].*)\n(?://.*\n)*(.*)", public):
                if not below.startswith(("inline namespace", "#")) and below:
                    line = header_pages.Writer(lambda _: None).prose(first)
                    self.assertTrue(line in page, f"{path.name}: {first}")
                    shown += 1
        self.assertGreater(shown, 60)


class Docstrings(unittest.TestCase):
    def test_names_with_text_below_are_definitions(self):
        self.assertEqual(docstrings.as_markdown("Opens.\n\npath\n    A file\n    of rows.\n"
                                                "dtype, shape\n    Of it.\n\nRaises OSError."),
                         "Opens.\n\n\n`path`\n:   A file\n    of rows.\n\n`dtype`, `shape`\n"
                         ":   Of it.\n\n\nRaises OSError.")

    def test_text_below_two_colons_is_code(self):
        self.assertEqual(docstrings.as_markdown("So::\n\n    a = 1\n    b = 2\n\nDone."),
                         "So\n\n```python\n\na = 1\nb = 2\n\n```\n\nDone.")
        self.assertEqual(docstrings.as_markdown("So::\n\n    a = 1"),
                         "So\n\n```python\n\na = 1\n```")

    def test_plain_text_stays(self):
        self.assertEqual(docstrings.as_markdown("Bytes of a row."), "Bytes of a row.")


class Plots(unittest.TestCase):
    def checked(self, folder):
        said, images = io.StringIO(), result_plots.IMAGES
        result_plots.IMAGES = pathlib.Path(folder)
        try:
            with contextlib.redirect_stdout(said):
                return result_plots.check(), said.getvalue()
        finally:
            result_plots.IMAGES = images

    def test_the_plots_show_what_the_results_have(self):
        self.assertEqual(self.checked(result_plots.IMAGES), (0, ""))

    def test_a_plot_with_another_figure_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in result_plots.PLOTS:
                text = (result_plots.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
                pathlib.Path(folder, f"{name}.svg").write_text(text, encoding="utf-8")
            self.assertEqual(self.checked(folder)[0], 0)
            self.assertIn("48.954,48.255", text)
            pathlib.Path(folder, "misses.svg").write_text(text.replace("48.954", "58.954"),
                                                          encoding="utf-8")
            self.assertEqual(self.checked(folder)[0], 1)
            pathlib.Path(folder, "misses.svg").unlink()
            self.assertIn("misses.svg does not show", self.checked(folder)[1])


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=["site_text_test.py"])
