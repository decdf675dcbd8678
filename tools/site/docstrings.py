"""Docstrings of the package as Markdown, for mkdocstrings: a name on a line of its own with its
text set in below is a definition, and what follows `::` is code."""
import re

import griffe


class Docstrings(griffe.Extension):
    def on_object(self, *, obj, **_):
        self.change(obj)

    def on_package(self, *, pkg, **_):
        self.change(pkg)

    def change(self, obj):
        if not obj.is_alias and obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text):
    """What lies set in below `::` is code; below a line of names it is their definition."""
    done, kind = [], None
    lines = text.split("\n")
    for line, below in zip(lines, [*lines[1:], ""]):
        is_set_in = line.startswith("    ")
        if kind == "code" and line.strip() and not is_set_in:
            done.extend(["```", ""])
            kind = None
        if kind == "code":
            done.append(line[4:])
        elif line.endswith("::") and not is_set_in:
            done.extend([line[:-2], "", "```python"])
            kind = "code"
        elif re.fullmatch(r"\*{0,2}\w+(, \*{0,2}\w+)*", line) and re.match(r" {4}\S", below):
            done.extend(["", ", ".join(f"`{name}`" for name in line.split(", "))])
            kind = "term"
        elif kind == "term":
            done.append(":   " + line.strip())
            kind = "definition"
        else:
            if kind == "definition" and line and not is_set_in:
                done.append("")
                kind = None
            done.append(line)
    return "\n".join(done + ["```"] if kind == "code" else done)
