# SPDX-License-Identifier: Apache-2.0
"""No line of sources, docs and build files is longer than 120 columns; data and bundled scripts are exempt.

python line_length.py SOURCE
"""

import sys
from collections.abc import Iterator
from pathlib import Path

LIMIT = 120
FOLDERS = ("docs", "gnmr", "apps", "python", "bench", "scripts", "cmake", "tests", "examples")
ROOT_FILES = ("*.md", "CMakeLists.txt", "Makefile")
SUFFIXES = {
    *(".h", ".c", ".cpp", ".cu", ".cuh", ".py", ".pyi", ".sh", ".js", ".mjs"),
    *(".css", ".html", ".cmake", ".txt", ".md"),
}
EXEMPT = {"gnmr/report/web/report.js"}  # the bundle
EXEMPT_FOLDERS = {"node_modules", "__pycache__", "build", "assets"}  # assets: files of others


def files(source: Path) -> Iterator[Path]:
    for pattern in ROOT_FILES:
        yield from source.glob(pattern)
    for folder in FOLDERS:
        for path in (source / folder).rglob("*"):
            inside = path.relative_to(source)
            if path.suffix in SUFFIXES and not EXEMPT_FOLDERS.intersection(inside.parts):
                if inside.as_posix() not in EXEMPT:
                    yield path


def main() -> int:
    source = Path(sys.argv[1])
    seen = wrong = 0
    for path in sorted(files(source)):
        seen += 1
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > LIMIT:
                wrong += 1
                print(f"{path.relative_to(source)}:{number}: {len(line)} columns", file=sys.stderr)
    if seen < 500:
        print(f"only {seen} files were found", file=sys.stderr)
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
