"""Markdown of the repository as the site's: links to files elsewhere in the tree lead to pages of
the site, and lists are set in as Python-Markdown reads them."""
import posixpath
import re

ITEM = re.compile(r"( *)([-*+]|\d{1,9}[.)])( +)(?=\S)")
FENCE = re.compile(r" *(```+|~~~+)")
LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)\s]+)((?:\s+\"[^\"]*\")?)\)")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
RESULT = re.compile(r"(?:bench/results/)?((?:cpu|h100|h200)/\d{4}-\d\d-\d\d-[\w-]+\.(?:json|txt))")


def outside_fences(text, change):
    """The text with `change` applied to each stretch of lines that is not in a fenced block."""
    pieces, stretch, fence = [], [], None

    def end_stretch():
        if stretch:
            pieces.append(change("\n".join(stretch)))
            stretch.clear()

    for line in text.split("\n"):
        mark = FENCE.match(line)
        if fence is None and mark:
            end_stretch()
            fence = mark.group(1)
            pieces.append(line)
        elif fence is not None:
            pieces.append(line)
            if mark and line.strip() == fence:
                fence = None
        else:
            stretch.append(line)
    end_stretch()
    return "\n".join(pieces)


def set_in_lists(text):
    """Nested items and what belongs to an item are set in by four columns a level, and a list that
    follows a paragraph without an empty line gets one."""
    return "\n".join(lines_set_in(text.split("\n")))


def lines_set_in(lines):
    columns, before = [], ""  # where the text of each open item begins
    for line in lines:
        item, indent = ITEM.match(line), len(line) - len(line.lstrip(" "))
        if not line.strip():
            yield line
        elif item and (columns or not before.strip() or item.group(2) in ("-", "*", "+", "1.")):
            while columns and indent < columns[-1]:
                columns.pop()
            if not columns and before.strip() and not ITEM.match(before) and not is_in_item(before):
                yield ""
            yield " " * 4 * len(columns) + line.lstrip(" ")
            columns.append(indent + item.end() - len(item.group(1)))
        else:
            if indent == 0 and not before.strip():
                columns.clear()  # a paragraph after the list
            while columns and 0 < indent < columns[-1]:
                columns.pop()
            yield " " * 4 * len(columns) + line.lstrip(" ") if columns and indent else line
        before = line


def is_in_item(line):
    return line.startswith("  ")


def map_links(text, change):
    """`change` gets the target of each link and gives another; code in backticks stays, but names
    of results become links. A link may go over a line's end, so a paragraph is taken at a time."""
    return "".join(replace_outside_code(paragraph, change)
                   for paragraph in re.split(r"(\n\s*\n)", text))


def replace_outside_code(text, change):
    # Links first: their text may hold code.
    done, at = [], 0
    codes = [code.span() for code in CODE.finditer(text)]
    for link in LINK.finditer(text):
        if any(begin < link.start() < end for begin, end in codes):
            continue
        done.append(link_results(text[at:link.start()], change))
        done.append(f"{link.group(1)}({change(link.group(2))}{link.group(3)})")
        at = link.end()
    done.append(link_results(text[at:], change))
    return "".join(done)


def link_results(text, change):
    def linked(code):
        result = RESULT.fullmatch(code.group().strip("`"))
        if result is None:
            return code.group()
        return f"[{code.group()}]({change('/bench/results/' + result.group(1))})"

    return CODE.sub(linked, text)


def target_mapper(page, places, report):
    """A function from the target of a link on a page (its path in the repository) to the target on
    the site. `places` has for each path in the repository where it is on the site; a target that
    begins with / is looked up from the root of the repository."""
    at = posixpath.dirname(places[page])

    def change(target):
        if re.match(r"[a-z]+:|#", target):
            return target
        path, mark, anchor = target.partition("#")
        if path.startswith("/"):
            path = path[1:]
        else:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        place = places.get(path)
        if place is None:
            report(f"{page}: the link to {target} leads to {path}, which is not on the site")
            return target
        return posixpath.relpath(place, at or ".") + mark + anchor

    return change
