"""The objects of the build directory given keep the rules of wide_instructions.py, which catches planted violations.

usage: wide_instructions_test.py BUILD-DIRECTORY COMPILER
"""
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

import wide_instructions

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD, COMPILER = pathlib.Path(sys.argv[1]), sys.argv[2]

LOCAL = "namespace { __attribute__((noinline)) void add(float* a) { for (int i = 0; i < 64; ++i) a[i] += 1; } }\n"
WEAK = "inline __attribute__((noinline)) void add(float* a) { for (int i = 0; i < 64; ++i) a[i] += 1; }\n"
USER = "void use(float* a);\nvoid use(float* a) { add(a); }\n"


def setUpModule():
    if platform.machine() != "x86_64":
        raise unittest.SkipTest("not an x86-64 machine")
    for tool in ("objdump", "nm"):
        if shutil.which(tool) is None:
            raise unittest.SkipTest(f"{tool} is not installed (package binutils)")


class BuildTest(unittest.TestCase):
    def test_wide_instructions_stand_in_dispatched_files_alone(self):
        self.assertEqual([], wide_instructions.errors(ROOT, BUILD))

    def test_dispatched_files_of_the_build_do_use_them(self):
        used = [source for source, object_file in wide_instructions.objects(ROOT, BUILD)
                if wide_instructions.DISPATCHED.search(source) and wide_instructions.wide_functions(object_file)]
        self.assertIn("cpu_adam/kernels_avx512.cpp", used)


class PlantedViolationTest(unittest.TestCase):
    def errors(self, name, text, *flags):
        with tempfile.TemporaryDirectory() as folder:
            source, output = pathlib.Path(folder) / name, pathlib.Path(folder) / "planted.o"
            source.write_text(text)
            # The text is without instructions of its own width: the flag alone decides.
            subprocess.run([COMPILER, "-O3", "-c", *flags, str(source), "-o", str(output)], check=True)
            return list(wide_instructions.errors_of(name, output))

    def test_avx_in_an_ordinary_file_is_refused(self):
        self.assertIn("outside dispatched code", self.errors("plain.cpp", LOCAL + USER, "-mavx2")[0])
        self.assertIn("outside dispatched code", self.errors("plain.cpp", LOCAL + USER, "-mavx512f")[0])

    def test_ordinary_file_without_avx_is_allowed(self):
        self.assertEqual([], self.errors("plain.cpp", LOCAL + USER))

    def test_function_named_after_its_instructions_is_allowed(self):
        self.assertEqual([], self.errors("plain.cpp", (LOCAL + USER).replace("add", "add_avx2").replace("use", "use_avx2"), "-mavx2"))

    def test_local_function_of_a_dispatched_file_is_allowed(self):
        self.assertEqual([], self.errors("kernel_avx2.cpp", LOCAL + USER, "-mavx2"))

    def test_weak_function_of_a_dispatched_file_is_refused(self):
        self.assertIn("is weak", self.errors("kernel_avx2.cpp", WEAK + USER, "-mavx2")[0])


if __name__ == "__main__":
    sys.exit(unittest.main(argv=sys.argv[:1]))
