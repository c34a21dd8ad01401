#!/usr/bin/env python3
"""Reads a Headrace swap path on its own and prints its state hash.

Independent of the C++ code: written from the descriptions of the format in swap/format.h, of a block in
include/headrace/optimizer_state.h and state_codes.h, and of the hash in include/headrace/state_hash.h, with the standard library alone. numpy, where present, only makes it faster.

    read_store.py SWAP-PATH... [--step N | --pin NAME] [--pure] [--skip-crc]

Each SWAP-PATH holds folders rank-00000, rank-00001, ..., or is one of them.
"""

import argparse
import array
import json
import re
import struct
import sys
from pathlib import Path

try:
    import numpy
except ImportError:
    numpy = None

MASK = (1 << 64) - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15


class Damaged(Exception):
    """Stored bytes do not check."""


# ---- checksums and hashes ----------------------------------------------------------------------------------------------


def _crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = _crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def _rotate(x, bits):
    return ((x << bits) | (x >> (64 - bits))) & MASK


def _round(accumulator, lane):
    return _rotate((accumulator + lane * P2) & MASK, 31) * P1 & MASK


def xxh64(data, seed=0):
    position, length = 0, len(data)
    if length >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while position + 32 <= length:
            for i, word in enumerate(struct.unpack_from("<4Q", data, position)):
                lanes[i] = _round(lanes[i], word)
            position += 32
        h = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            h = ((h ^ _round(0, lane)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + length) & MASK
    while position + 8 <= length:
        (word,) = struct.unpack_from("<Q", data, position)
        h = (_rotate(h ^ _round(0, word), 27) * P1 + P4) & MASK
        position += 8
    if position + 4 <= length:
        (word,) = struct.unpack_from("<I", data, position)
        h = (_rotate(h ^ (word * P1 & MASK), 23) * P2 + P3) & MASK
        position += 4
    for byte in data[position:]:
        h = _rotate(h ^ (byte * P5 & MASK), 11) * P1 & MASK
    h = (h ^ (h >> 33)) * P2 & MASK
    h = (h ^ (h >> 29)) * P3 & MASK
    return h ^ (h >> 32)


def splitmix64(x):
    x = (x + GOLDEN_GAMMA) & MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def hash_values_pure(key, first, data):
    bits = array.array("I", data)
    if sys.byteorder != "little":
        bits.byteswap()
    total = 0
    for j, value in enumerate(bits):
        total += splitmix64(splitmix64((key + first + j) & MASK) ^ value)
    return total & MASK


def hash_values_numpy(key, first, data):
    def mix(x):
        x = x + numpy.uint64(GOLDEN_GAMMA)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return x ^ (x >> numpy.uint64(31))

    bits = numpy.frombuffer(data, dtype="<u4").astype(numpy.uint64)
    positions = numpy.arange(len(bits), dtype=numpy.uint64) + numpy.uint64((key + first) & MASK)
    return int(mix(mix(positions) ^ bits).sum(dtype=numpy.uint64))


# ---- what a block holds ------------------------------------------------------------------------------------------------

# Moments by optimizer; a squared one is kept as codes of its root.
MOMENTS = {"adam": "ms", "amsgrad": "mss", "adagrad": "s", "lion": "m", "sgd": "", "momentum": "m"}
CODES_A_SCALE = 64


def magnitude_of(code, decades):
    """A code of k = 2^e + j stands for 8^(e - decades) * (1/8 + 7/8 * (j + 1) / 2^e), and 0 for 0."""
    if code == 0:
        return 0.0
    e = code.bit_length() - 1
    return 8.0 ** (e - decades) * (0.125 + 0.875 * (code - 2**e + 1) / 2**e)


def to_fp32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def widen_codes(codes, scales, squared):
    """fp32 values as bytes: each product rounded to fp32."""
    magnitudes = [magnitude_of(code, 7 if squared else 6) for code in range(256 if squared else 128)]
    values = array.array("f")
    for i, code in enumerate(codes):
        scale = scales[i // CODES_A_SCALE]
        if squared:
            root = to_fp32(magnitudes[code] * scale)
            values.append(to_fp32(root * root))
        else:
            value = to_fp32(magnitudes[code & 127] * scale)
            values.append(-value if code & 128 else value)
    if sys.byteorder != "little":
        values.byteswap()
    return values.tobytes()


def widen_bf16(data):
    return b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))


def arrays_of(states, numel, data):
    """Master and moments of a block as fp32 bytes, in the order in which they lie there."""
    kind = "amsgrad" if states["amsgrad"] else "momentum" if states["momentum"] else states["optimizer"]
    arrays, offset = [], 0
    for dtype, squared in [(states["master"], False)] + [(states["moments"], m == "s") for m in MOMENTS[kind]]:
        if dtype == "fp32":
            arrays.append(data[offset : offset + 4 * numel])
            offset += 4 * numel
        elif dtype == "bf16":
            arrays.append(widen_bf16(data[offset : offset + 2 * numel]))
            offset += (2 * numel + 3) // 4 * 4
        else:
            blocks = (numel + CODES_A_SCALE - 1) // CODES_A_SCALE
            codes = data[offset : offset + numel]
            offset += blocks * CODES_A_SCALE
            scales = struct.unpack_from(f"<{blocks}f", data, offset)
            offset += 4 * blocks
            arrays.append(widen_codes(codes, scales, squared))
    if offset != len(data):
        raise Damaged(f"a block of {numel} elements has {len(data)} bytes instead of {offset}")
    return arrays


FP32_ADAM = {"optimizer": "adam", "amsgrad": False, "momentum": False, "master": "fp32", "moments": "fp32"}


# ---- the store ---------------------------------------------------------------------------------------------------------


class Commit:
    def __init__(self, sequence, step, table, metadata):
        self.sequence, self.step, self.table, self.metadata = sequence, step, table, metadata


def _record_at(journal, offset):
    """(kind, sequence, step, entries, metadata bytes, body, end) of the record there, or None if it does not check."""
    if offset + 40 > len(journal):
        return None
    magic, kind, sequence, step, entries, metadata_bytes, body_crc, crc = struct.unpack_from("<IIQQIIII", journal, offset)
    if magic != 0x43525248 or crc != crc32c(journal[offset : offset + 36]):
        return None
    body_bytes = (entries * 24 + metadata_bytes + 7) // 8 * 8
    body = journal[offset + 40 : offset + 40 + body_bytes]
    if len(body) < body_bytes or crc32c(body) != body_crc:
        return None
    return kind, sequence, step, entries, metadata_bytes, body, offset + 40 + body_bytes


class Journal:
    """Of one path: `commits` whose extents are reserved, oldest first, and which paths it calls lost since which epoch."""

    def __init__(self, path, store_id, entries, number):
        journal = path.read_bytes()
        if len(journal) < 1536:
            raise Damaged(f"{path} is cut short")
        magic, version, entry_count, journal_id, journal_path, crc = struct.unpack_from("<8sIIQII", journal)
        if magic != b"HRJOURNL" or crc != crc32c(journal[:28]):
            raise Damaged(f"{path}: the header does not check")
        if (version, entry_count, journal_id, journal_path) != (2, entries, store_id, number):
            raise Damaged(f"{path} belongs to another store, path or version")
        states = []
        for offset in (512, 1024):
            epoch, lost, _, crc = struct.unpack_from("<QQII", journal, offset)
            if epoch > 0 and offset == 512 + 512 * (epoch % 2) and crc == crc32c(journal[offset : offset + 20]):
                states.append((epoch, lost))
        if not states:
            raise Damaged(f"{path}: no state of the paths checks")
        self.epoch, self.lost = max(states)
        self.commits, self.released = self._read_records(path, journal, entries)

    @staticmethod
    def _read_records(path, journal, entries_of_table):
        offset, commits, released = 1536, [], False
        while (record := _record_at(journal, offset)) is not None:
            kind, sequence, step, entries, metadata_bytes, body, offset = record
            if kind == 2:
                released = True
                break
            if entries != entries_of_table or (commits and sequence != commits[-1].sequence + 1):
                raise Damaged(f"{path}: commit {sequence} is out of order")
            table = [struct.unpack_from("<QQII", body, 24 * i) for i in range(entries)]
            metadata = body[24 * entries : 24 * entries + metadata_bytes].decode()
            commits = commits[-1:] + [Commit(sequence, step, table, metadata)]
        for later in range((offset + 8) // 8 * 8, len(journal) - 39, 8):
            record = _record_at(journal, later) if journal[later : later + 4] == b"HRRC" else None
            if record is not None and (record[0] == 1 or record[1] > (commits[-1].sequence if commits else 0)):
                raise Damaged(f"{path} is damaged at offset {offset}, before its end")
        released = released or offset < len(journal)
        return (commits[-1:] if released else commits), released


def agreed_commits(journals):
    """What the journals of the paths that are not lost agree on."""
    with_commits = [journal for journal in journals if journal.commits]
    if not with_commits:
        return []
    leader = max(with_commits, key=lambda journal: journal.commits[-1].sequence)
    newest = leader.commits[-1].sequence
    released = any(journal.released and journal.commits[-1].sequence == newest for journal in with_commits)
    return leader.commits[-1:] if released else leader.commits


# ---- parity ------------------------------------------------------------------------------------------------------------


def _field_tables():
    powers, logarithms, value = [0] * 512, [0] * 256, 1
    for i in range(255):
        powers[i] = powers[i + 255] = value
        logarithms[value] = i
        value = (value << 1) ^ (0x11D if value & 0x80 else 0)
    return powers, logarithms


POWERS, LOGARITHMS = _field_tables()


def multiply(a, b):
    return POWERS[LOGARITHMS[a] + LOGARITHMS[b]] if a and b else 0


def inverse(a):
    return POWERS[255 - LOGARITHMS[a]]


def scaled(factor, data):
    return data.translate(bytes(multiply(factor, value) for value in range(256)))


def add(a, b):
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")


def rebuild_data(pieces, data_pieces):
    """All data pieces from any `data_pieces` of {number: bytes}: Gauss-Jordan on rows (coefficients, bytes)."""
    rows = []
    for number, data in list(pieces.items())[:data_pieces]:
        if number < data_pieces:
            rows.append(([int(i == number) for i in range(data_pieces)], data))
        else:
            rows.append(([inverse(number ^ i) for i in range(data_pieces)], data))
    for column in range(data_pieces):
        pivot = next(i for i in range(column, data_pieces) if rows[i][0][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        factor = inverse(rows[column][0][column])
        rows[column] = ([multiply(factor, c) for c in rows[column][0]], scaled(factor, rows[column][1]))
        for i in range(data_pieces):
            factor = rows[i][0][column]
            if i != column and factor:
                coefficients = [a ^ multiply(factor, b) for a, b in zip(rows[i][0], rows[column][0])]
                rows[i] = (coefficients, add(rows[i][1], scaled(factor, rows[column][1])))
    return [data for _, data in rows]


# ---- a store -----------------------------------------------------------------------------------------------------------


def read_description(folder):
    text = (folder / "store.json").read_bytes()
    description = json.loads(text)
    if description["format"] not in (2, 3):
        raise Damaged(f"{folder} has format {description['format']}")
    if text[:11] != b'{"crc32c":"' or int(text[11:19], 16) != crc32c(text[:11] + b"0" * 8 + text[19:]):
        raise Damaged(f"{folder}/store.json does not check")
    return description


class Store:
    """One rank's, from the folders of it that are there."""

    def __init__(self, folders):
        self.folders, problems, description = {}, [], None
        for folder in folders:
            try:
                description = read_description(folder)
                self.folders[description["path"]] = folder
            except (OSError, Damaged) as problem:
                problems.append(problem)
        if description is None:
            raise problems[0]
        self.paths, self.parity = len(description["paths"]), description["parity"]
        self.alignment = description["extent_alignment"]
        self.blocks = description["blocks"]
        self.layout = json.loads(description["layout"])
        self.pieces = self.paths if self.parity else 1
        self.commits, self.pins = [], {}
        if description["durability"] == "step":
            self._read_journals(int(description["store_id"], 16), problems)
        if len(self.folders) < self.paths - self.parity:
            raise Damaged(f"{self.paths - len(self.folders)} of {self.paths} paths are missing: {problems}")

    def _read_journals(self, store_id, problems):
        journals = {}
        for number, folder in list(self.folders.items()):
            try:
                journals[number] = Journal(folder / "journal.bin", store_id, len(self.blocks) * self.pieces, number)
            except (OSError, Damaged) as problem:
                problems.append(problem)
                del self.folders[number]
        lost = max((journal.epoch, journal.lost) for journal in journals.values())[1] if journals else 0
        for number in [number for number in journals if lost >> number & 1]:
            problems.append(f"{self.folders[number]} is stale")
            del journals[number], self.folders[number]
        self.commits = agreed_commits(list(journals.values()))
        self._read_pins(store_id)

    def _read_pins(self, store_id):
        for number, folder in self.folders.items():
            for file in sorted(folder.glob("pin-*.bin")):
                try:
                    commit = Journal(file, store_id, len(self.blocks) * self.pieces, number).commits[-1]
                except (Damaged, IndexError):
                    continue  # of another path it may check
                name = file.name[len("pin-") : -len(".bin")]
                if name not in self.pins or self.pins[name].sequence < commit.sequence:
                    self.pins[name] = commit

    def commit(self, step):
        """Of a step, or of a pin."""
        return self.pins[step] if isinstance(step, str) else next(c for c in self.commits if c.step == step)

    def read_block(self, block, entries, check_crc):
        data_pieces = self.pieces - self.parity if self.parity else 1
        step = self.alignment * data_pieces
        piece_bytes = (block["bytes"] + step - 1) // step * step // data_pieces
        checked = piece_bytes if self.parity else block["bytes"]
        good, wrong = {}, []
        for number, (offset, _, crc, path) in enumerate(entries):
            if all(i in good for i in range(data_pieces)):
                break
            if path not in self.folders:
                continue
            with open(self.folders[path] / "extents.bin", "rb") as extents:
                extents.seek(offset)
                data = extents.read(checked)
            if len(data) != checked or (check_crc and crc32c(data) != crc):
                wrong.append(f"{self.folders[path]}/extents.bin at offset {offset}")
            else:
                good[number] = data
        if len(good) < data_pieces:
            raise Damaged(f"block {block['name']} of {', '.join(wrong)} does not check")
        if not self.parity:
            return good[0]
        return b"".join(rebuild_data(good, data_pieces))[: block["bytes"]]

    def read_blocks(self, step, check_crc):
        """(layout entry, bytes) of each block of a step."""
        table = self.commit(step).table
        for i, (block, entry) in enumerate(zip(self.blocks, self.layout["blocks"])):
            entries = table[i * self.pieces : (i + 1) * self.pieces]
            if entries[0][1] == 0:
                raise Damaged(f"block {block['name']} was never written")
            yield entry, self.read_block(block, entries, check_crc)


def sum_of_store(store, step, hash_values, check_crc):
    """Sum over the store's parameter elements, and how many there are."""
    total = elements = 0
    keys = {}
    for entry, data in store.read_blocks(step, check_crc):
        first, numel = entry["first"], entry["numel"]
        arrays = arrays_of(store.layout.get("states", FP32_ADAM), numel, data)
        for parameter in store.layout["units"][entry["unit"]]["parameters"]:
            begin = max(first, parameter["offset"])
            end = min(first + numel, parameter["offset"] + parameter["numel"])
            if begin >= end:
                continue
            name = parameter["name"]
            if name not in keys:
                keys[name] = xxh64(name.encode())
            for kind, values in enumerate(arrays):  # master, then the moments
                part = values[4 * (begin - first) : 4 * (end - first)]
                total += hash_values(splitmix64(keys[name] ^ kind), begin - parameter["offset"], part)
            elements += end - begin
    return total & MASK, elements


def stores_in(paths):
    """The folders of each rank's store."""
    if any((path / "store.json").exists() for path in paths):
        return [paths]
    found = {p.name for path in paths if path.is_dir() for p in path.iterdir() if (p / "store.json").exists()}
    ranks = sorted((name for name in found if re.fullmatch(r"rank-\d+", name)), key=lambda name: int(name[5:]))
    return [[path / rank for path in paths] for rank in ranks]


def state_hash(paths, step=None, pure=False, check_crc=True):
    """(step, hash) of a run's swap paths: the newest step that every rank has, unless one or a pin's name is given."""
    paths = [Path(path) for path in (paths if isinstance(paths, (list, tuple)) else [paths])]
    stores = [Store(folders) for folders in stores_in(paths)]
    if not stores:
        raise Damaged(f"there is no swap store in {', '.join(map(str, paths))}")
    if step is None:
        common = set.intersection(*({commit.step for commit in store.commits} for store in stores))
        if not common:
            raise Damaged("the ranks have no committed step in common")
        step = max(common)
    if not stores[0].layout["optimizer_sharded"]:
        stores = stores[:1]
    hash_values = hash_values_pure if pure or numpy is None else hash_values_numpy
    total = elements = 0
    for store in stores:
        part, count = sum_of_store(store, step, hash_values, check_crc)
        total += part
        elements += count
    expected = sum(p["numel"] for unit in stores[0].layout["units"] for p in unit["parameters"])
    if elements != expected:
        raise Damaged(f"the stores hold {elements} of {expected} elements: is a rank missing?")
    commit = stores[0].commit(step)
    state = json.loads(commit.metadata)
    (scale_bits,) = struct.unpack("<Q", struct.pack("<d", state["loss_scale"]))
    h = total & MASK
    for x in (state["steps_applied"], state["rng_state"], scale_bits, state["data_position"]):
        h = splitmix64(h ^ x)
    return commit.step, h


def main():
    parser = argparse.ArgumentParser(description="Prints the state hash of a Headrace swap path.")
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--step", type=int)
    parser.add_argument("--pin", metavar="NAME", help="the version pinned as NAME")
    parser.add_argument("--pure", action="store_true", help="do not use numpy")
    parser.add_argument("--skip-crc", action="store_true", help="do not check extents (slow in Python)")
    options = parser.parse_args()
    try:
        step, h = state_hash(options.paths, options.pin or options.step, options.pure, not options.skip_crc)
    except (Damaged, OSError) as error:
        print(f"read_store.py: {error}", file=sys.stderr)
        return 1
    print(f"{h:016x} step {step}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
