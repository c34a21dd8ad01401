"""tests/FIELD-CASES.md against the tests that exist."""
import pathlib
import re

CASES = ["A1", "A2", "A3", "A4", "A5", "A7", "A8", "A9", "A11", "A12", "A13", "A15", "A16", "A17", "A20", "A22", "M1", "M2", "M3",
         "N4", "N5", "N6", "N7", "N8", "N9", "N10", "N15", "N16", "N18", "N19", "N20", "T2", "T4", "T5", "P1", "P2", "P3", "P5",
         "C1", "C3", "C4", "C5", "C6", "C7", "C8", "C11", "C13", "C14", "C15", "C19", "C20", "C21", "C22"]
GOOGLE_TEST = re.compile(r"\b(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)")
PYTHON_TEST = re.compile(r"^    def (test_\w+)\(", re.MULTILINE)


def existing_tests(root):
    """The names of all tests that a build file runs: programs are built of every *_test.cpp, Python files are listed."""
    names = set()
    for path in (root / "tests").rglob("*.cpp"):
        names.update(f"{suite}.{test}" for suite, test in GOOGLE_TEST.findall(path.read_text()))
    for path in (root / "tests").rglob("*.py"):
        build_file = path.parent / "CMakeLists.txt"
        short = path.stem.removesuffix("_test").removeprefix("test_")
        if build_file.exists() and re.search(rf"\b{short}\b", build_file.read_text()):
            names.update(f"{path.stem}.{test}" for test in PYTHON_TEST.findall(path.read_text()))
    return names


def rows(text):
    """[(case, what stands in its last column)]"""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return [(row[0], row[-1]) for row in cells if re.fullmatch(r"[A-Z]\d+", row[0])]


def errors(text, existing):
    """What is wrong with the table."""
    table = rows(text)
    found = [case for case, _ in table]
    problems = [f"{case} is missing" for case in CASES if case not in found]
    problems += [f"{case} stands there twice" for case in sorted(set(found)) if found.count(case) > 1]
    for case, here in table:
        named = re.findall(r"`([^`]+)`", here)
        problems += [f"{case}: there is no test {name}" for name in named if name not in existing]
        if not named and not here.startswith("does not arise: "):
            problems.append(f"{case}: names no test and no reason")
    return problems
