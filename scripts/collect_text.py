#!/usr/bin/env python3
"""Collects the C and C++ headers below a folder into two files: text to train on and text held out.

The split is by file and by content: a file goes to the held-out part when the SHA-256 of its bytes says so (one in
twenty), so the same headers give the same split in any order and anywhere, and copies of one header never stand on both sides.
"""
import argparse
import hashlib
import pathlib
import sys

SUFFIXES = {".h", ".hh", ".hpp", ".hxx", ".tcc", ".inl", ""}  # the C++ library's headers have no suffix
HELD_OUT_ONE_IN = 20


def headers(folder):
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink():
            yield path


def is_text(data):
    try:
        return b"\0" not in data and bool(data.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def split(folder, limit_bytes):
    """Returns {"train": [...], "held-out": [...]} of whole files, each content once."""
    parts, seen, total = {"train": [], "held-out": []}, set(), 0
    for path in headers(folder):
        data = path.read_bytes()
        digest = hashlib.sha256(data).digest()
        if digest in seen or not is_text(data):
            continue
        seen.add(digest)
        part = "held-out" if digest[0] % HELD_OUT_ONE_IN == 0 else "train"
        parts[part].append(data)
        total += len(data)
        if total >= limit_bytes:
            break
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/usr/include"))
    parser.add_argument("--to", type=pathlib.Path, required=True, help="folder for train.txt and held-out.txt")
    parser.add_argument("--limit-bytes", type=int, default=64 << 20)
    arguments = parser.parse_args()

    parts = split(arguments.folder, arguments.limit_bytes)
    if not parts["train"] or not parts["held-out"]:
        sys.exit(f"collect_text: too few C or C++ headers below {arguments.folder} to train on")
    arguments.to.mkdir(parents=True, exist_ok=True)
    for part, files in parts.items():
        text = b"".join(files)
        (arguments.to / f"{part}.txt").write_bytes(text)
        print(f"{part}.txt: {len(text) / 2**20:.1f} MiB of {len(files)} headers")


if __name__ == "__main__":
    main()
