# SPDX-License-Identifier: Apache-2.0
"""No class of gnmr/ and apps/ owns more than twenty data members: one that does has more than one job.

python class_members.py SOURCE [--list]
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIMIT = 20
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}

HEAD = re.compile(
    r"\b(?:class|struct|union)\s+(?:alignas\s*\([^)]*\)\s*)?(?:\[\[.*?\]\]\s*)?([A-Za-z_]\w*(?:::\w+)*)\s*"
    r"(?:final\s*)?(?::[^;{}()]*)?$"
)
NO_MEMBER = re.compile(r"^(?:using|typedef|friend|static|template|extern|static_assert|namespace|enum)\b")


@dataclass
class Class:
    name: str
    path: Path
    members: list[str]


def code_of(text: str) -> str:
    """The text without comments, literals, preprocessor lines and attributes."""
    token = re.compile(
        r'R"([^\s()\\]{0,16})\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'',
        re.S,
    )
    text = token.sub(lambda found: " " if found.group(0).startswith("/") else '""', text)
    text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n(?:[^\n\\]|\\.)*)*", "", text, flags=re.M)
    return re.sub(r"\[\[.*?\]\]", "", text, flags=re.S)


def without_template_arguments(text: str) -> str:
    text = re.sub(r"operator\s*(?:<=>|<<=?|>>=?|<=|>=|<|>|->\*?)", "operator", text)
    before = None
    while before != text:
        before = text
        text = re.sub(r"(?<=\w)\s*<[^<>;{}]*>", "", text)
    return text


def closing(text: str, at: int) -> int:
    """The place behind the brace that closes the one at `at`."""
    depth = 0
    for place in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return len(text)


def declared(statement: str) -> list[str]:
    """The data members that a statement of a class body declares, by name."""
    statement = re.sub(r"\b(?:public|protected|private)\s*:(?!:)", " ", statement)
    statement = re.sub(r"\balignas\s*\([^)]*\)", " ", without_template_arguments(statement)).strip()
    if not statement or NO_MEMBER.match(statement) or re.search(r"\boperator\b", statement):
        return []
    if re.match(r"(?:class|struct|union)\s+\w+$", statement):
        return []
    head = re.split(r"=|\{", statement, maxsplit=1)[0]
    if "(" in head:
        return []
    flat = re.sub(r"\{[^{}]*\}", "", statement)
    names = []
    for part in re.sub(r"\([^()]*\)", "", flat).split(","):
        found = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?::\s*\w+\s*)?$", re.split(r"=", part)[0].strip())
        if found:
            names.append(found.group(1))
    return names


def classes_in(text: str, path: Path, outer: str = "", owner: Class | None = None) -> Iterator[Class]:
    """Every class that is defined in `text`, which is a file or the body of `owner`."""
    start = place = 0
    while place < len(text):
        sign = text[place]
        if sign == ";":
            if owner is not None:
                owner.members += declared(text[start:place])
            start = place = place + 1
            continue
        if sign == "}":
            start = place = place + 1
            continue
        if sign != "{":
            place += 1
            continue
        end = closing(text, place)
        head = re.sub(r"\b(?:public|protected|private)\s*:(?!:)", " ", text[start:place]).strip()
        plain = without_template_arguments(re.sub(r"^template\s*<", "template <", head))
        found = HEAD.search(plain)
        body = text[place + 1 : end - 1]
        if found and "(" not in plain.split(found.group(1))[0]:
            made = Class(outer + found.group(1), path, [])
            yield from classes_in(body, path, made.name + "::", made)
            yield made
            # `struct {...} name;` declares a member too.
            stop = text.find(";", end)
            stop = len(text) if stop < 0 else stop
            if owner is not None and text[end:stop].strip():
                owner.members += declared("X " + text[end:stop])
            start = place = stop + 1
        elif re.search(r"\bnamespace\b[^;()]*$|\bextern\s*\"\"$", plain):
            yield from classes_in(body, path, outer)
            start = place = end
        elif plain.count("(") > plain.count(")") or (owner is not None and "(" not in plain.split("=")[0]):
            place = end  # an initialiser, a default argument or an enum: the statement goes on
        else:
            # A function: its constructor's list may have braces, too.
            while more := re.match(r"\s*(?:,\s*[\w:<>]+\s*(?:\([^{}]*\)\s*,\s*[\w:<>]+\s*)*)?\{", text[end:]):
                end = closing(text, end + more.end() - 1)
            start = place = end


def main() -> int:
    source = Path(sys.argv[1])
    found: list[Class] = []
    for folder in ("gnmr", "apps"):
        for path in sorted((source / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                found += classes_in(code_of(path.read_text(encoding="utf-8")), path.relative_to(source))
    if "--list" in sys.argv:
        for one in sorted(found, key=lambda one: -len(one.members)):
            print(len(one.members), one.name, one.path, *one.members)
    if len(found) < 100:
        print(f"only {len(found)} classes were found", file=sys.stderr)
        return 1
    wrong = [one for one in found if len(one.members) > LIMIT]
    for one in wrong:
        print(f"{one.path}: {one.name} has {len(one.members)} data members: has it more than one job?", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
