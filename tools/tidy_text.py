"""Reading C++ as text, for tools/tidy.py: comments told from code, and where functions begin and
end."""
import re

MARK = re.compile(r"""//|/\*|["']""")
NO_NEWLINE = re.compile(r"[^\n]")
CONTROL = re.compile(r"\b(if|for|while|switch|catch|do|else|return)\b")
TYPE = re.compile(r"\b(namespace|class|struct|union|enum|extern|concept|requires)\b")


def split_comments(text):
    """(code, comments): both as long as `text` line by line; in each, the other's characters are
    spaces. Strings and characters are blanked out of the code, but keep their quotes."""
    code, comments, i = [], [], 0

    def put(target, other, piece):
        target.append(piece)
        other.append(blanked(piece))

    while i < len(text):
        mark = MARK.search(text, i)
        start = mark.start() if mark else len(text)
        put(code, comments, text[i:start])
        i = start
        if mark is None:
            break
        if mark.group() == "//":
            end = text.find("\n", i)
            end = len(text) if end < 0 else end
            put(comments, code, text[i:end])
        elif mark.group() == "/*":
            end = text.find("*/", i + 2)
            end = len(text) if end < 0 else end + 2
            put(comments, code, text[i:end])
        elif text[i] == '"' and text[i - 1:i] == "R":
            limit = text[i + 1:text.index("(", i)]
            end = text.index(")" + limit + '"', i) + len(limit) + 2
            put(code, comments, '"' + blanked(text[i + 1:end - 1]) + '"')
        elif text[i] == '"' or not text[i - 1:i].isalnum():
            end = end_of_literal(text, i)
            put(code, comments, text[i] + blanked(text[i + 1:end - 1]) + text[end - 1:end])
        else:  # between the digits of a number
            end = i + 1
            put(code, comments, text[i])
        i = end
    return "".join(code), "".join(comments)


def blanked(text):
    return NO_NEWLINE.sub(" ", text)


def end_of_literal(text, start):
    i = start + 1
    while i < len(text) and text[i] not in (text[start], "\n"):
        i += 2 if text[i] == "\\" else 1
    return min(i + 1, len(text))


def functions(code):
    """(name, first line, last line) of every function body; a lambda counts for the function it
    stands in."""
    code = re.sub(r"^[ \t]*#.*$", lambda m: " " * len(m.group()), code, flags=re.MULTILINE)
    found, scopes, head_start = [], [], 0
    for mark in re.finditer("[{};]", code):
        i, character = mark.start(), mark.group()
        if character == "{":
            head = code[head_start:i]
            outside = all(kind == "outer" for kind, _, _ in scopes)
            if (outside and TYPE.search(re.sub(r"<[^<>]*>|\([^()]*\)", "", head))
                and not is_function(head)):
                scopes.append(("outer", "", 0))
            elif outside and is_function(head):
                stripped = len(head) - len(head.lstrip())
                scopes.append(("function", name_of(head), head_start + stripped))
            else:
                scopes.append(("inner", "", 0))
            head_start = i + 1
        elif character == "}":
            if scopes:
                kind, name, start = scopes.pop()
                if kind == "function":
                    found.append((name, code.count("\n", 0, start) + 1, code.count("\n", 0, i) + 1))
            head_start = i + 1
        # not in for (;;)
        elif character == ";" and code.count("(", head_start, i) <= code.count(")", head_start, i):
            head_start = i + 1
    return found


def is_function(head):
    flat = head.strip()
    return (re.search(r"\)\s*(const|noexcept|override|final|mutable|&|->.*|:[^:].*)?\s*(const|noexc"
                      r"ept|override|final)?\s*$",
                      flat, re.DOTALL)
            is not None
            and not CONTROL.match(flat)
            and "=" not in flat.split("(")[0].replace("operator==", "").replace("operator=", ""))


def name_of(head):
    match = re.search(r"([\w:~]+|operator\S+)\s*\(", head)
    return match.group(1) if match else "?"
