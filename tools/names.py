"""Measure how names in mm2mgr read: filler words among bound names, participles and prepositions as function names, long lines.

`python -m tools.names` prints the figures per folder; `python -m tools.names FOLDER` the names behind them. `python -m tools.names
--tighten` writes the table of tests/project/names.json anew where a figure has fallen; the test lets none rise.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
TABLE = REPOSITORY / "tests" / "project" / "names.json"

# A name of only these words says nothing of the value that it holds.
FILLERS = frozenset(["one", "each", "found", "seen", "known", "kept", "wanted", "what", "why", "said", "made", "given"])
PREPOSITIONS = frozenset(
    re.findall(
        r"\w+",
        """about above across after against along among around at before behind below beneath beside besides between beyond
        by despite down during except for from in inside into like near of off on onto out outside over past per since
        than through to toward towards under until up upon via with within without""",
    )
)
# Participles that do not end in -ed; those that are verbs as well (read, run, set, split) are left out.
PARTICIPLES = frozenset(
    re.findall(
        r"\w+",
        """been begun bound broken brought built called chosen come dealt done drawn driven fallen felt found given gone
        grown heard held hidden kept known laid led left lent lost made meant met paid said seen sent shown sold spent
        stood taken taught thought thrown told torn understood undone unfound unknown unread unsaid unseen unsent
        untaken untold unwritten woken won worn wound written""",
    )
)
NO_PARTICIPLES = frozenset(["embed", "exceed", "feed", "need", "proceed", "seed", "shed", "shred", "speed", "succeed"])
LONG = 120
TOO_LONG = 160


@dataclass(frozen=True)
class Name:
    """A name where it gets its value."""

    text: str
    file: Path
    line: int


@dataclass
class Figures:
    """What one folder of mm2mgr binds, and which of it says little."""

    names: int = 0
    fillers: list[Name] = field(default_factory=list)
    functions: list[Name] = field(default_factory=list)
    long_lines: list[Name] = field(default_factory=list)
    too_long_lines: list[Name] = field(default_factory=list)

    def to_row(self) -> dict[str, float]:
        return {
            "fillers_percent": round(100 * len(self.fillers) / self.names, 2) if self.names else 0.0,
            "function_names": len(self.functions),
            "long_lines": len(self.long_lines),
            "too_long_lines": len(self.too_long_lines),
        }


def is_filler(name: str) -> bool:
    """Return whether a name is made of filler words only; digits and underscores do not change it."""
    words = name.lower().strip("_0123456789").split("_")
    return all(word.removesuffix("s") in FILLERS for word in words)


def is_bare(name: str) -> bool:
    """Return whether a function is called by one participle or preposition, which is no verb phrase and no noun."""
    word = name.strip("_")
    if "_" in word or name.startswith("__"):
        return False
    return word in PREPOSITIONS or word in PARTICIPLES or (word.endswith("ed") and word not in NO_PARTICIPLES)


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name with the line that binds it: parameters, assignments, targets of loops, functions; not imports."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                if node.arg not in ("self", "cls"):
                    yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno
            case ast.MatchMapping(rest=str(name)):
                yield name, node.lineno
            case _:
                pass


def measure_file(file: Path, figures: Figures) -> None:
    """Add what a file binds to the figures of its folder."""
    text = file.read_text("utf-8")
    tree = ast.parse(text)
    for name, line in bound_names(tree):
        if name == "_":
            continue
        figures.names += 1
        if is_filler(name):
            figures.fillers.append(Name(name, file, line))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_bare(node.name):
            figures.functions.append(Name(node.name, file, node.lineno))
    for number, line_text in enumerate(text.splitlines(), 1):
        if len(line_text) > LONG:
            figures.long_lines.append(Name(f"{len(line_text)} characters", file, number))
        if len(line_text) > TOO_LONG:
            figures.too_long_lines.append(Name(f"{len(line_text)} characters", file, number))


def measure(package: Path = REPOSITORY / "mm2mgr") -> dict[str, Figures]:
    """Return the figures of every folder of the package; `.` is the package's own modules."""
    folders: dict[str, Figures] = defaultdict(Figures)
    for file in sorted(package.rglob("*.py")):
        inside = file.relative_to(package)
        measure_file(file, folders[inside.parts[0] if len(inside.parts) > 1 else "."])
    return dict(sorted(folders.items()))


def read_table() -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = json.loads(TABLE.read_text("utf-8"))
    return table


def exceeding(folders: dict[str, Figures], table: dict[str, dict[str, float]]) -> list[str]:
    """Return a line for each figure that is above its table; a folder that the table lacks may have no figure above 0."""
    return [
        f"{folder}: {figure} {value:g}, and {allowed:g} are allowed"
        for folder, figures in folders.items()
        for figure, value in figures.to_row().items()
        if value > (allowed := table.get(folder, {}).get(figure, 0))
    ]


def tighten() -> None:
    """Write the table with the figures of today where they are lower; a folder that is gone goes."""
    table = read_table() if TABLE.exists() else {}
    lower = {
        folder: {figure: min(value, table.get(folder, {}).get(figure, value)) for figure, value in row.items()}
        for folder, row in ((folder, figures.to_row()) for folder, figures in measure().items())
    }
    TABLE.write_text(json.dumps(lower, indent=2) + "\n", "utf-8")


def print_figures(folders: dict[str, Figures]) -> None:
    print(f"{'folder':14} {'names':>6} {'fillers':>8} {'%':>6} {'functions':>10} {'>120':>6} {'>160':>6}")
    for folder, figures in folders.items():
        row = figures.to_row()
        print(
            f"{folder:14} {figures.names:6} {len(figures.fillers):8} {row['fillers_percent']:6.1f} {len(figures.functions):10}"
            f" {len(figures.long_lines):6} {len(figures.too_long_lines):6}"
        )
    names = sum(figures.names for figures in folders.values())
    fillers = sum(len(figures.fillers) for figures in folders.values())
    print(f"{'all':14} {names:6} {fillers:8} {100 * fillers / names:6.1f}")


def print_names(figures: Figures) -> None:
    for name in (*figures.fillers, *figures.functions, *figures.long_lines):
        print(f"{name.file.relative_to(REPOSITORY)}:{name.line}: {name.text}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.names", description=__doc__)
    parser.add_argument(
        "folders", nargs="*", metavar="FOLDER", help="print the names behind the figures of these folders"
    )
    parser.add_argument("--tighten", action="store_true", help="lower the table of the test to the figures of today")
    options = parser.parse_args(arguments)
    if options.tighten:
        tighten()
        return 0
    folders = measure()
    for folder in options.folders:
        print_names(folders[folder])
    if not options.folders:
        print_figures(folders)
    return 0


if __name__ == "__main__":
    sys.exit(main())
