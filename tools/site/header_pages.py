"""The reference of the C++ headers: a page for each include/penstock/*.hpp, made of the contracts
that stand as comments above the declarations.

What is private, deleted or in a namespace `detail` is left out, and so are the bodies of functions.
A type without functions is shown as it is written, since its comments stand beside its members."""
import html
import pathlib
import posixpath
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tidy_text  # noqa: E402  (found through the path above)

FOLDER = "reference/cpp/"
NO_NAMES = {"requires", "decltype", "noexcept", "sizeof", "alignas"}
HIDDEN = {"detail"}
SHARING = {"function", "other"}  # those below a comment have it together
TYPE = re.compile(r"(?:template\s*<.*?>\s*)?(class|struct|union|enum(?:\s+class)?)\b[^(;{]*?"
                  r"(\w+)\s*(?:final\s*)?(?::(?!:).*)?$", re.DOTALL)
OPERATOR = re.compile(r"\boperator\s*(\(\)|[^\s(]+)\s*\(")
NAME = re.compile(r"(operator\s*[^\s(]+|operator\s*\(\)|~?\w+)\s*\(")
WORD = re.compile(r"(?P<file>(?:penstock/|docs/|src/)?[\w/-]+\.(?:hpp|cuh|md))\b"
                  r"|(?P<code>-E[A-Z0-9]+\b|\b[A-Za-z_]\w*(?:::~?\w+)+(?:\(\))?"
                  r"|\b[A-Za-z]\w*_\w*(?:\(\))?|\b\w+\(\))"
                  r"|(?P<mark>[*_<>\[\]\\`#|])")


class Item:
    """A declaration with the comment above it. `kind`: namespace, type, function or other."""

    def __init__(self, comment, kind, head, text, body=None):
        self.comment, self.kind, self.head, self.text, self.body = comment, kind, head, text, body
        self.follows = False  # right below the declaration before, whose comment it shares


def items(text):
    """The declarations of a scope. `text` is what stands between its braces."""
    code, _ = tidy_text.split_comments(text)
    found, comment, at, touches = [], [], 0, False
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end].strip()
        if line.startswith("//"):
            comment.append(line)
        elif not line or line.startswith("#"):
            comment, touches = [], False
        elif re.fullmatch(r"(public|private|protected):", line):
            found.append(Item([], "access", line[:-1], line))
            comment, touches = [], False
        else:
            item, end = declaration(text, code, at, comment)
            item.follows = touches and not comment
            found.append(item)
            comment, touches = [], True
        at = end + 1
    return found


def declaration(text, code, at, comment):
    """The declaration that begins at `at`, and where its last line ends."""
    depth, kind, head_end, body = 0, "other", None, None
    for i in range(at, len(text)):
        character = code[i]
        if character == "{" and depth == 0 and head_end is None:
            head = code[at:i].strip()
            kind = kind_of(head)
            head_end, body_from = i, i + 1
        depth += (character in "({[") - (character in ")}]")
        if depth > 0:
            continue
        if character == "}" and head_end is not None and body is None:
            body = text[body_from:i]
        if character == ";" or (character == "}" and kind in ("namespace", "function")):
            break
    if kind == "other":
        kind = kind_of(code[at:i].strip())
        head_end = None
    end = text.find("\n", i)
    end = len(text) if end < 0 else end
    head = text[at:i if head_end is None else head_end].strip()
    return Item(comment, kind, head, text[at:end], body), end


def kind_of(head):
    if re.match(r"(inline\s+)?namespace\b", head):
        return "namespace"
    if TYPE.match(head):
        return "type"
    plain = OPERATOR.sub("f(", head)
    while plain != (shorter := re.sub(r"<[^<>]*>", "", plain)):
        plain = shorter
    return "function" if "(" in plain and "=" not in plain.split("(")[0] else "other"


def public(found, is_public):
    for item in found:
        if item.kind == "access":
            is_public = item.head == "public"
        elif is_public:
            yield item


def signature(item):
    """The declaration without its body."""
    text = item.text
    if item.kind == "function" and item.body is not None:
        head = re.sub(r"\)\s*(const)?\s*:\s[^:].*$", lambda m: ")" + (" const" if m[1] else ""),
                      item.head, flags=re.DOTALL)
        text = text[:len(text) - len(text.lstrip())] + head.rstrip() + ";"
    return dedent(re.sub(r"^(.*)PENSTOCK_INLINE (.*(?:\n.*)*)$", without_word, text,
                         flags=re.MULTILINE))


def without_word(match):
    """Lines that were set in below the word move with it."""
    return match[1] + re.sub(r"\n {16}(?= *\S)", "\n", match[2])


def dedent(text):
    lines = text.strip("\n").split("\n")
    least = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[min(least, len(line) - len(line.lstrip())):].rstrip() for line in lines)


def name_of(item):
    if item.kind == "type":
        return TYPE.match(item.head).group(2)
    if item.kind == "function":
        names = NAME.findall(re.sub(r"template\s*<[^(]*>\s|\[\[.*?\]\]", "", item.head))
        names = [name for name in names if name not in NO_NAMES]
        return names[0] if names else ""
    names = re.findall(r"(\w+)\s*(?:=|\{|$)", item.head)
    return names[0] if names else ""


def is_listed(item):
    code = tidy_text.split_comments(item.text)[0].strip()
    if item.kind == "type" and item.body is None:
        return False  # a forward declaration
    if re.match(r"(static_assert|friend\s+(class|struct))\b", code):
        return False
    return item.kind != "function" or "= delete" not in code


class Writer:
    def __init__(self, links):
        self.lines, self.links = [], links

    def put(self, *lines):
        self.lines.extend([*lines, ""])

    def code(self, text):
        self.put("```cpp", text, "```")

    def comment(self, lines):
        text = [re.sub(r"^// ?", "", line) for line in lines]
        block = []
        for line in [*text, ""]:
            if line.startswith("  "):
                block.append(line)
                continue
            if block:
                body = dedent("\n".join(block))
                # Blank lines, since the text may go on right behind an example.
                self.put("", "```" + ("cpp" if ";" in body or "#" in body else "text"), body, "```")
                block = []
            self.lines.append(self.prose(line))
        self.lines.append("")

    def prose(self, line):
        pieces = re.split(r"(`[^`]+`)", line)
        return "".join(piece if piece.startswith("`") else WORD.sub(self.word, piece)
                       for piece in pieces)

    def word(self, match):
        if match["mark"]:
            return html.escape(match["mark"]) if match["mark"] in "<>" else "\\" + match["mark"]
        link = self.links(match["file"]) if match["file"] else None
        shown = f"`{match.group()}`"
        return f"[{shown}]({link})" if link else shown

    def scope(self, found, prefix, level):
        """Declarations, those that share a comment together."""
        groups = []
        for item in filter(is_listed, found):
            shares = item.kind in SHARING and item.follows and groups
            if shares and groups[-1][0].kind == item.kind:
                groups[-1].append(item)
            else:
                groups.append([item])
        for group in groups:
            if group[0].kind == "namespace":
                self.namespace(group[0], prefix, level)
            elif group[0].kind == "type":
                self.type(group[0], prefix, level)
            else:
                names = dict.fromkeys(name for name in map(name_of, group) if name)
                self.put(f"{'#' * level} " + ", ".join(f"`{prefix}{name}`" for name in names))
                self.comment(group[0].comment)
                self.code("\n".join(map(signature, group)))

    def namespace(self, item, prefix, level):
        name = item.head.split()[-1]
        if name not in HIDDEN:
            inside = prefix
            if not item.head.startswith("inline") and name != "penstock":
                inside += name.removeprefix("penstock::") + "::"
            self.scope(items(item.body), inside, level)

    def type(self, item, prefix, level):
        word, name = TYPE.match(item.head).groups()
        word = word.split()[0]
        inside = list(public(items(item.body), word != "class")) if word != "enum" else []
        self.put(f"{'#' * level} {word} `{prefix}{name}`")
        self.comment(item.comment)
        if not has_functions(inside):
            self.code(dedent(item.text))
            return
        data = [part for part in inside if part.kind == "other" or (
            part.kind == "type" and part.body and not has_functions(items(part.body)))]
        members = "\n".join(written(part) for part in data)
        self.code(dedent(item.head) + (" {\n" + members + "\n};" if data else ";"))
        self.scope([part for part in inside if part not in data], f"{prefix}{name}::", level + 1)


def has_functions(found):
    return any(part.kind == "function" for part in found)


def written(item):
    """The declaration with its comment, set in."""
    return "\n".join("    " + line for line in [*item.comment, *dedent(item.text).split("\n")])


def essay(text):
    """The comment that a header begins with, and the rest."""
    lines = text.split("\n")
    count = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    return lines[:count], "\n".join(lines[count:])


def page(path, links):
    about, rest = essay(path.read_text(encoding="utf-8"))
    writer = Writer(links)
    writer.put(f"# {path.name}")
    writer.put(f"`#include \"penstock/{path.name}\"`")
    writer.comment(about)
    writer.scope(items(rest), "", 2)
    return writer


def make(root, places):
    """The pages by their place on the site."""
    def links(name):
        for path in (name, "include/" + name, "include/penstock/" + name):
            if path in places:
                return posixpath.relpath(places[path], FOLDER)
        return None

    paths = sorted((root / "include/penstock").glob("*.hpp"))
    pages, index = {}, Writer(links)
    index.put("# C++ headers")
    index.put("A page for each header, made from the contracts that stand in it. Calls that take a "
              "group are for kernels and for the host: `PENSTOCK_HD` marks what both may call. "
              "A count or 0 is success, a negative errno is an error "
              "([error.hpp](error.md) has the list).")
    index.lines.extend(["| header | what it is |", "| --- | --- |"])
    for path in paths:
        pages[f"{FOLDER}{path.stem}.md"] = "\n".join(page(path, links).lines)
        about = " ".join(line.removeprefix("//").strip() for line in
                         essay(path.read_text(encoding="utf-8"))[0])
        first = re.match(r".*?\.(?= |$)", about).group()
        index.lines.append(f"| [{path.name}]({path.stem}.md) | {index.prose(first)} |")
    return {FOLDER + "index.md": "\n".join(index.lines) + "\n", **pages}
