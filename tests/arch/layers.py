"""The include rules of ARCHITECTURE.md, checked from the #include lines alone.

A file may include: its own module's headers, and the public headers of the modules that its module's DEPENDS in the root
CMakeLists.txt reach. Below that: which module may use which library, who may name concrete backends, and where CUDA's and
NCCL's names may stand.
"""
import pathlib
import re

# Public header -> module that owns it. `seam` headers are interfaces: they belong to no implementation.
HEADER_OWNERS = {
    "base": "block_device bytes cgroup cpu_placement cpu_pool dtype elapsed errors files first_failure folders locality log machine_files mounts numa_memory owned shell_words splitmix topology units",
    "memory": "lease memory",
    "aio": "io_batch io_engine io_file io_probe io_shape io_wait_any",
    "cpu_adam": "finite isa optimizer optimizer_state optimizer_update state_codes",
    "swap": "parity_code swap_journal swap_paths swap_store swap_ticket",
    "comm": "exchange_communicator mpi_module",
    "zero": "engine engine_options engine_states kept_format loss_scale optimizer_blocks parameter_groups state_hash step_result",
    "checkpoint": "checkpoint checkpoint_report checkpoint_space inspect model_folder pinned_checkpoints weight_source",
    "planner": "planner",
    "model": "inference model",
    "train": "backends checkpoint_settings config data module_session train",
    "bench": "adam_bench bench nvme_bench statistics",
    "doctor": "doctor",
    "generate": "generate",
    "tune": "tune",
    "seam": "attention_shape communicator device gpu_build kernels ops",
}
# Modules that implement or use a seam; the others (aio, swap, memory, base) know no device and no rank.
SEAM_USERS = {
    "device": {"seam", "device", "gpu", "comm", "zero", "checkpoint", "planner", "model", "train", "bench",
               "doctor", "generate", "tune", "cli"},
    "communicator": {"seam", "gpu", "comm", "zero", "checkpoint", "planner", "train", "bench", "doctor", "tune", "cli"},
    "attention_shape": {"seam", "gpu", "model"},
    "ops": {"seam", "gpu", "model", "train", "generate"},
    "gpu_build": {"seam", "gpu", "doctor"},
    "kernels": {"seam", "cpu_adam", "device", "gpu", "zero", "checkpoint", "planner", "train", "bench", "tune", "cli"},
}
# (reader, owner): private headers that another module reads. The planner asks the engine's own layout and sizing rules, so
# that plan and engine cannot differ.
PRIVATE_READERS = {("planner", "zero")}
# (reader, header): single private headers that another module reads. What is for benchmarks is not in the public ones.
PRIVATE_HEADER_READERS = {("tune", "src/zero/update_override.h"), ("bench", "cpu_adam/update_ceiling.h")}
# A library's headers (regular expression) -> modules that may include them.
LIBRARY_HOMES = {
    r"liburing\.h": {"aio"},
    r"(isa-l/|isa-l\.h|crc\.h|erasure_code\.h).*": {"aio", "swap"},
    r"hwloc.*": {"base"},
    r"(oneapi/)?tbb/.*": {"base", "cpu_adam"},
    r"mpi\.h": {"comm"},
    r"(oneapi/dnnl/)?dnnl.*": {"model"},
    r"xxhash\.h": {"zero"},
    r"CLI/.*": {"cli"},
    r"nlohmann/.*": {"swap", "zero", "checkpoint", "planner", "train", "doctor", "tune", "cli"},
    r"(cuda|cublas|nccl|curand|cudnn).*": {"gpu"},
    r"spdlog/.*": {"base"},
}
BACKEND_MAKERS = re.compile(
    r"\bmake_(cpu_device|cuda_device|cpu_kernels|cuda_kernels|cpu_ops|cuda_ops|(single|mpi|nccl)_communicator)\b")
BACKEND_REGISTRY = "src/train/backends.cpp"
BACKEND_HOMES = {"device", "gpu", "comm", "model"}
CUDA_NAMES = re.compile(r"^\s*#\s*if.*\b\w*(CUDA|NCCL)\w*|\b(cuda|nccl|cublas)[A-Z]\w*|\b__(global|device|host|shared)__\b"
                        r"|\b(CUDA_R|CUBLAS)_\w+|\b__nv_bfloat16\b|\bthreadIdx\b")
CUDA_HEADERS = next(pattern for pattern, homes in LIBRARY_HOMES.items() if "cuda" in pattern)
# Beside gpu/: the emulation of CUDA, its tests, and those of gpu/.
CUDA_TEST_FOLDERS = ("tests/support/cuda_emulation/", "tests/unit/cuda_emulation/", "tests/gpu/")
NOT_MODULES = ("tests", "perf", "python_bindings")  # folders whose files only the rule on CUDA's names holds
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
PUBLIC_HEADER_MAX_LINES = 150

HEADER_OWNER = {header: module for module, headers in HEADER_OWNERS.items() for header in headers.split()}


class Modules:
    """Folders and dependencies of the modules, as the root CMakeLists.txt states them."""

    def __init__(self, root):
        self.folders = {"cli": "src/cli"}
        self.depends = {"cli": {"train", "bench", "doctor", "generate", "tune"}, "seam": {"cpu_adam", "memory"}}
        text = re.sub(r"#.*", "", (root / "CMakeLists.txt").read_text())
        for call in re.findall(r"headrace_module\(([^)]*)\)", text):
            words = call.replace("${CMAKE_DL_LIBS}", "").split()
            name, keywords = words[0], {"DIRECTORY", "DEPENDS", "PUBLIC", "PRIVATE"}
            values, key = {k: [] for k in keywords}, None
            for word in words[1:]:
                if word in keywords:
                    key = word
                else:
                    values[key].append(word)
            self.folders[name] = values["DIRECTORY"][0]
            self.depends[name] = set(values["DEPENDS"])

    def reachable(self, module):
        """The module, all that its DEPENDS reach, and base."""
        found, waiting = {"base"}, [module]
        while waiting:
            name = waiting.pop()
            if name not in found or name == module:
                found.add(name)
                waiting += self.depends.get(name, set()) - found
        return found

    def of_file(self, path):
        """Module of a source file (relative path), by the longest folder that holds it; None for tests, perf and others."""
        held = [(len(folder), name) for name, folder in self.folders.items() if path.startswith(folder + "/")]
        return max(held)[1] if held else None


def include_error(modules, module, kind, target):
    """Why `module` may not include `target`, or None."""
    if kind == "<":
        for pattern, homes in LIBRARY_HOMES.items():
            if re.fullmatch(pattern, target) and module not in homes:
                return f"<{target}> belongs to {', '.join(sorted(homes))}"
        return None
    if not target.startswith("headrace/"):
        owner = modules.of_file(target)
        if (module, target) in PRIVATE_HEADER_READERS:
            return None
        return None if owner == module or (module, owner) in PRIVATE_READERS else f"{target} is private to {owner or 'no module'}"
    header = target[len("headrace/"):].removesuffix(".h")
    owner = HEADER_OWNER.get(header)
    if owner is None:
        return f"{target} has no owner: add it to HEADER_OWNERS in tests/arch/layers.py"
    if owner == "seam":
        return None if module in SEAM_USERS[header] else f"{module} does not use the seam {target}"
    return None if owner in modules.reachable(module) else f"{module} does not stand on {owner}, which owns {target}"


def line_errors(modules, module, path, line):
    include = INCLUDE.match(line)
    if include and (error := include_error(modules, module, *include.groups())):
        yield error
    if module != "gpu" and (name := CUDA_NAMES.search(line)):
        yield f"'{name.group(0).strip()}' is a name of CUDA or NCCL outside gpu/"
    public = path.startswith("include/")
    if not public and module not in BACKEND_HOMES and path != BACKEND_REGISTRY and (name := BACKEND_MAKERS.search(line)):
        yield f"{name.group(0)} names a concrete backend outside {BACKEND_REGISTRY}"


def source_files(root, modules):
    """(relative path, module) of every file under the rules."""
    for folder in sorted({"include/headrace", *modules.folders.values()}):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
                continue
            relative = path.relative_to(root).as_posix()
            module = HEADER_OWNER.get(path.stem) if folder == "include/headrace" else modules.of_file(relative)
            yield relative, module


def cuda_name_errors(root):
    """CUDA's and NCCL's names in what belongs to no module: tests, benchmarks, bindings."""
    for folder in NOT_MODULES:
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root).as_posix()
            if path.suffix not in {".h", ".cpp", ".c", ".cu", ".cuh"} or relative.startswith(CUDA_TEST_FOLDERS):
                continue
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                include = INCLUDE.match(line)
                if include and re.fullmatch(CUDA_HEADERS, include.group(2)):
                    yield f"{relative}:{number}: '{include.group(2)}' is a header of CUDA or NCCL outside gpu/ and the emulation"
                elif name := CUDA_NAMES.search(line):
                    yield f"{relative}:{number}: '{name.group(0).strip()}' is a name of CUDA or NCCL outside gpu/ and the emulation"


def fmt_errors_of_kernels(root):
    """nvcc cannot compile fmt: no header that a .cu file reaches may include it. The suite has no nvcc to say so."""
    for kernel in sorted(root.rglob("*.cu")):
        if kernel.relative_to(root).parts[0] not in ("gpu", "tests"):
            continue
        seen, waiting = {}, [(kernel, "")]
        while waiting:
            path, way = waiting.pop()
            if path in seen:
                continue
            seen[path] = way
            for line in path.read_text().splitlines():
                if not (include := INCLUDE.match(line)):
                    continue
                target = include.group(2)
                if target.startswith("fmt/"):
                    yield f"{kernel.relative_to(root)}: reaches <{target}> through {way or 'itself'}, and nvcc cannot compile it"
                for folder in ("", "include"):
                    if (found := root / folder / target).is_file():
                        waiting.append((found, f"{way} -> {target}".removeprefix(" -> ")))


def errors(root):
    """Every violation below `root`, as "file:line: why"."""
    root = pathlib.Path(root)
    modules = Modules(root)
    found = [*cuda_name_errors(root), *fmt_errors_of_kernels(root)]
    for path, module in source_files(root, modules):
        lines = (root / path).read_text().splitlines()
        if path.startswith("include/") and len(lines) > PUBLIC_HEADER_MAX_LINES:
            found.append(f"{path}:{len(lines)}: a public header is one idea: at most {PUBLIC_HEADER_MAX_LINES} lines")
        for number, line in enumerate(lines, start=1):
            found += [f"{path}:{number}: {error}" for error in line_errors(modules, module, path, line)]
    return found
