"""AVX instructions stand in dispatched code alone, and cannot leak out of it.

Dispatched code has avx2 or avx512 in the name of its file, or of its function where a file holds just one. Two rules,
checked in the object files of a build:
- no other function uses a vector instruction of AVX: the program must run on a CPU that has none;
- none that does is weak: the linker might keep that copy for all callers.
"""
import json
import pathlib
import re
import subprocess

FOLDERS = ("src", "aio", "cpu_adam", "swap", "gpu")
DISPATCHED = re.compile(r"avx(2|512)", re.IGNORECASE)
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
WIDE = re.compile(r"^\s*[0-9a-f]+:\s+(v\w+)\s.*%[xyz]mm|^\s*[0-9a-f]+:\s+(v\w+)\s.*%k[0-7]")


def wide_functions(object_file):
    """Names of the functions of an object file that use AVX, each with one instruction."""
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(object_file)], check=True, capture_output=True,
                             text=True).stdout
    found, function = {}, None
    for line in listing.splitlines():
        if header := FUNCTION.match(line):
            function = header.group(1)
        elif WIDE.match(line):
            found.setdefault(function, line.split(":", 1)[1].strip())
    return found


def weak_functions(object_file):
    listing = subprocess.run(["nm", str(object_file)], check=True, capture_output=True, text=True).stdout
    return {words[-1] for words in map(str.split, listing.splitlines()) if words[-2] in "Ww"}


def errors_of(source, object_file):
    wide = wide_functions(object_file)
    dispatched_file = DISPATCHED.search(pathlib.Path(source).name)
    weak = weak_functions(object_file)
    for name, line in sorted(wide.items()):
        if not dispatched_file and not DISPATCHED.search(name):
            yield f"{source}: {name} uses AVX outside dispatched code: {line}"
        elif name in weak:
            yield f"{source}: {name} uses AVX and is weak: make it local to the file"


def objects(root, build):
    """(source relative to root, object file) of every compiled file of the modules."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        output = re.search(r" -o (\S+)", entry["command"])
        if not source.is_relative_to(root) or source.relative_to(root).parts[0] not in FOLDERS:
            continue
        if output.group(1).startswith("tests/"):
            continue  # gpu/ as the tests' emulation compiles it: no part of the program
        object_file = pathlib.Path(entry["directory"]) / output.group(1)
        if object_file.exists():
            yield source.relative_to(root).as_posix(), object_file


def errors(root, build):
    return [error for source, object_file in objects(root, build) for error in errors_of(source, object_file)]
