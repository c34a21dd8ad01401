"""The tree keeps the include rules, and the checker of layers.py catches each kind of violation planted in a small tree."""
import pathlib
import sys
import tempfile
import unittest

import layers

ROOT = pathlib.Path(__file__).resolve().parents[2]

CMAKE = """
headrace_module(base DIRECTORY src/base PUBLIC fmt::fmt)
headrace_module(memory DIRECTORY src/memory DEPENDS base)
headrace_module(aio DIRECTORY aio DEPENDS base memory)
headrace_module(cpu_adam DIRECTORY cpu_adam DEPENDS base)
headrace_module(swap DIRECTORY swap DEPENDS base memory aio)
headrace_module(device DIRECTORY src/device DEPENDS base memory cpu_adam)
headrace_module(gpu DIRECTORY gpu DEPENDS base)
headrace_module(zero DIRECTORY src/zero DEPENDS base memory cpu_adam swap)
headrace_module(planner DIRECTORY src/planner DEPENDS base memory zero)
headrace_module(model DIRECTORY src/model DEPENDS base memory zero)
headrace_module(train DIRECTORY src/train DEPENDS base model zero planner device gpu)
headrace_module(bench DIRECTORY src/bench DEPENDS base memory)
headrace_module(tune DIRECTORY src/tune DEPENDS base memory zero)
"""


class TreeTest(unittest.TestCase):
    def test_repository_keeps_the_include_rules(self):
        self.assertEqual([], layers.errors(ROOT))

    def test_every_public_header_has_one_owner(self):
        headers = sorted(path.stem for path in (ROOT / "include/headrace").glob("*.h"))
        self.assertEqual(headers, sorted(layers.HEADER_OWNER))

    def test_every_owner_is_a_module_of_the_build(self):
        modules = layers.Modules(ROOT)
        self.assertLessEqual(set(layers.HEADER_OWNERS) - {"seam"}, set(modules.folders))

    def test_build_graph_has_no_cycle(self):
        modules = layers.Modules(ROOT)
        for name, depends in modules.depends.items():
            for below in depends:
                self.assertNotIn(name, modules.reachable(below), f"{name} -> {below} -> {name}")


class PlantedViolationTest(unittest.TestCase):
    """Each: one file with one line, and what the checker must say of it."""

    def found(self, path, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "CMakeLists.txt").write_text(CMAKE)
            (root / path).parent.mkdir(parents=True)
            (root / path).write_text(text + "\n")
            return layers.errors(root)

    def assert_refused(self, path, text, *words):
        errors = self.found(path, text)
        self.assertEqual(1, len(errors), f"{path}: {text}: {errors}")
        self.assertTrue(errors[0].startswith(path + ":"), errors[0])
        for word in words:
            self.assertIn(word, errors[0])

    def assert_allowed(self, path, text):
        self.assertEqual([], self.found(path, text))

    def test_upward_include_is_refused(self):
        self.assert_refused("aio/a.cpp", '#include "headrace/engine.h"', "aio", "zero")
        self.assert_refused("swap/a.cpp", '#include "headrace/train.h"', "train")
        self.assert_refused("src/planner/a.cpp", '#include "headrace/model.h"', "model")
        self.assert_refused("src/base/a.cpp", '#include "headrace/memory.h"', "memory")

    def test_upward_include_in_a_public_header_is_refused(self):
        self.assert_refused("include/headrace/io_engine.h", '#include "headrace/swap_store.h"', "swap")
        self.assert_refused("include/headrace/device.h", '#include "headrace/engine.h"', "zero")

    def test_downward_include_is_allowed(self):
        self.assert_allowed("src/train/a.cpp", '#include "headrace/engine.h"')
        self.assert_allowed("src/zero/a.cpp", '#include "headrace/io_engine.h"')  # through swap
        self.assert_allowed("src/cli/a.cpp", '#include "headrace/memory.h"')

    def test_device_and_gpu_never_see_each_other(self):
        self.assert_refused("gpu/a.cpp", '#include "src/device/lane_thread.h"', "private to device")
        self.assert_refused("src/device/a.cpp", '#include "gpu/stream.h"', "private to gpu")

    def test_low_modules_know_no_rank_and_no_device(self):
        for path in ("aio/a.cpp", "swap/a.cpp", "cpu_adam/a.cpp", "src/memory/a.cpp"):
            self.assert_refused(path, '#include "headrace/communicator.h"', "seam")
            self.assert_refused(path, '#include "headrace/device.h"', "seam")

    def test_benchmarks_stand_on_the_seams_and_the_program_alone_on_them(self):
        for header in ("device", "communicator", "kernels", "memory"):
            self.assert_allowed("src/bench/a.cpp", f'#include "headrace/{header}.h"')
        self.assert_allowed("src/cli/a.cpp", '#include "headrace/bench.h"')
        for header in ("engine", "train", "backends", "ops"):
            self.assert_refused("src/bench/a.cpp", f'#include "headrace/{header}.h"', "bench")
        self.assert_refused("src/bench/a.cpp", "auto d = make_cpu_device(o);", "make_cpu_device")
        self.assert_refused("src/train/a.cpp", '#include "headrace/bench.h"', "bench")
        self.assert_refused("src/zero/a.cpp", '#include "headrace/bench.h"', "bench")

    def test_private_header_of_another_module_is_refused(self):
        self.assert_refused("src/train/a.cpp", '#include "src/zero/context.h"', "private to zero")
        self.assert_refused("src/train/a.cpp", '#include "tests/support/toy_module.h"', "private")

    def test_single_private_header_may_be_open_to_one_module(self):
        self.assert_allowed("src/tune/a.cpp", '#include "src/zero/update_override.h"')
        self.assert_refused("src/tune/a.cpp", '#include "src/zero/context.h"', "private to zero")
        self.assert_refused("src/train/a.cpp", '#include "src/zero/update_override.h"', "private to zero")

    def test_private_header_of_the_own_module_is_allowed(self):
        self.assert_allowed("src/zero/a.cpp", '#include "src/zero/context.h"')

    def test_library_outside_its_home_is_refused(self):
        self.assert_refused("src/zero/a.cpp", "#include <mpi.h>", "comm")
        self.assert_refused("swap/a.cpp", "#include <liburing.h>", "aio")
        self.assert_refused("src/zero/a.cpp", "#include <oneapi/dnnl/dnnl.hpp>", "model")

    def test_cuda_name_outside_gpu_is_refused(self):
        self.assert_refused("src/zero/a.cpp", "#ifdef HEADRACE_CUDA", "CUDA")
        self.assert_refused("src/zero/a.cpp", "#if defined(USE_NCCL)", "NCCL")
        self.assert_refused("src/train/a.cpp", "  cudaMalloc(&p, 1);", "CUDA")
        self.assert_refused("src/train/a.cpp", "#include <cuda_runtime.h>", "gpu")

    def test_cuda_name_in_other_tests_is_refused(self):
        self.assert_refused("tests/engine/a.cpp", "  cudaMalloc(&p, 1);", "emulation")
        self.assert_refused("perf/link/a.cpp", "ncclComm_t comm; ncclAllGather(x);", "emulation")
        for line in ("#include <cuda_bf16.h>", "#include <nccl.h>", "#include <cublasLt.h>", '#include "cuda_runtime.h"',
                     "auto type = CUDA_R_16BF;", "CUBLAS_COMPUTE_32F", "__nv_bfloat16 x;", "i = threadIdx.x;", "__shared__ float x[1];"):
            self.assert_refused("tests/engine/a.cpp", line, "emulation")
        self.assert_allowed("tests/gpu/a_test.cpp", "#include <cuda_bf16.h>")
        self.assert_allowed("tests/support/cuda_emulation/a.cpp", "cudaError_t cudaMalloc(void** p, size_t n) {")
        self.assert_allowed("tests/gpu/a_test.cpp", "  cudaMalloc(&p, 1);")

    def test_cuda_name_in_gpu_is_allowed(self):
        self.assert_allowed("gpu/a.cpp", "  cudaMalloc(&p, 1);")

    def test_kernel_that_reaches_fmt_is_refused(self):
        self.assert_refused("gpu/a.cu", "#include <fmt/format.h>", "nvcc")
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "CMakeLists.txt").write_text(CMAKE)
            (root / "include/headrace").mkdir(parents=True)
            (root / "gpu").mkdir()
            (root / "gpu/a.cu").write_text('#include "headrace/bytes.h"\n')
            (root / "include/headrace/bytes.h").write_text('#include "headrace/errors.h"\n')
            (root / "include/headrace/errors.h").write_text("#include <fmt/format.h>\n")
            errors = layers.errors(root)
        self.assertEqual(1, len(errors), errors)
        self.assertIn("headrace/bytes.h -> headrace/errors.h", errors[0])

    def test_concrete_backend_outside_the_registry_is_refused(self):
        self.assert_refused("src/train/loop.cpp", "auto d = make_cuda_device(1);", "make_cuda_device")
        self.assert_refused("src/zero/a.cpp", "auto c = make_mpi_communicator(d, o);", "make_mpi_communicator")

    def test_concrete_backend_in_the_registry_is_allowed(self):
        self.assert_allowed("src/train/backends.cpp", "auto d = make_cuda_device(1);")

    def test_long_public_header_is_refused(self):
        self.assert_refused("include/headrace/bytes.h", "\n" * layers.PUBLIC_HEADER_MAX_LINES, "one idea")

    def test_public_header_without_owner_is_refused(self):
        self.assert_refused("src/zero/a.cpp", '#include "headrace/brand_new.h"', "no owner")


if __name__ == "__main__":
    sys.exit(unittest.main())
