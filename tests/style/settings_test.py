#!/usr/bin/env python3
"""docs/guide/settings.md says what include/penstock/options.hpp says: every option, its variable
and its default."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEMBER = re.compile(r"^    (?:[\w:]+(?:<.*>)?) (\w+)(?: = ([^;]+))?;", re.MULTILINE)
DEFAULTS = {"std::uint64_t{256} << 20": "256MiB", "65536": None, "backend::automatic": "auto",
            "io_method::automatic": "auto", "direct_mode::automatic": "auto", "true": "on",
            "0": None}


def options_of(header):
    """{option: (environment variable or None, default)}, from the struct and the comments above its
    members."""
    body = header[header.index("struct options {"):header.index("static status from_environment")]
    found, start = {}, 0
    for match in MEMBER.finditer(body):
        variables = re.findall(r"PENSTOCK_[A-Z_]+", body[start:match.start()])
        found[match.group(1)] = (variables[0] if variables else None, match.group(2))
        start = match.end()
    return found


def rows_of(document):
    """{option: cells} of every table row that begins with an option in backticks."""
    rows = {}
    for line in document.split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) > 3:
            rows[cells[0].strip("`")] = cells
    return rows


def problems(header, document, source):
    options, rows = options_of(header), rows_of(document)
    if len(options) < 10:
        yield "options.hpp could not be read: fewer than ten options found"
    for name, (variable, default) in options.items():
        cells = rows.get(name)
        if cells is None:
            yield f"docs/guide/settings.md has no row for {name}"
            continue
        if variable is not None and f"`{variable}`" not in cells[1]:
            yield f"docs/guide/settings.md: the row of {name} does not name {variable}"
        if variable is not None and f'"{variable}"' not in source:
            yield f"src/settings/options.cpp does not read {variable}"
        wanted = DEFAULTS.get(default, default) or default
        if wanted is not None and wanted not in cells[2]:
            yield f"docs/guide/settings.md: the default of {name} is {cells[2]} and not {wanted}"
    for name in rows:
        if name not in options:
            yield f"docs/guide/settings.md has a row for {name}, which is no option"
    for variable in re.findall(r'"(PENSTOCK_[A-Z_]+)"', source):
        if f"`{variable}`" not in document:
            yield f"docs/guide/settings.md does not name {variable}"


def main():
    header = (ROOT / "include/penstock/options.hpp").read_text(encoding="utf-8")
    document = (ROOT / "docs/guide/settings.md").read_text(encoding="utf-8")
    source = (ROOT / "src/settings/options.cpp").read_text(encoding="utf-8")
    found = list(problems(header, document, source))
    # The check must be able to fail.
    if not list(problems(header, document.replace("| `page_bytes`", "| `pages`"), source)):
        found.append("a row taken away was not missed")
    if not list(problems(header, document.replace("PENSTOCK_IO", "PENSTOCK_OI"), source)):
        found.append("a variable misspelt was not missed")
    print("\n".join(found) or "docs/guide/settings.md is complete")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
