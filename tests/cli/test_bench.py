"""`headrace bench`: what it prints, that a paced link has its pace, how it stops, and what it refuses."""

import json
import os
import re
import shutil
import signal
import subprocess
import unittest

import program
from program import ProgramTest

MPIRUN = shutil.which("mpirun")
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all")
BUS_FACTORS_OF_TWO_RANKS = dict(zip(COLLECTIVES, (0.5, 0.5, 1, 1, 0.5)))
SIX_CASES = [f"{memory} {direction}" for memory in ("pinned", "pageable") for direction in ("upload", "download", "both")]
QUICK = ["--seconds", "0.01"]


def ranks(count):
    return [MPIRUN, "-n", str(count), "--oversubscribe"]


class BenchTest(ProgramTest):
    def report(self, benchmark, *flags, **options):
        """The one JSON object, with the keys that DESIGN section 10 names."""
        report = json.loads(self.succeeds("bench", benchmark, *flags, "--json", **options).stdout)
        self.assertEqual(set(report), {"benchmark", "machine", "results"})
        self.assertEqual(report["benchmark"], benchmark)
        self.assertLessEqual({"cpu", "cpus", "device", "link", "copy_engines", "ranks"}, set(report["machine"]))
        for result in report["results"]:
            self.assertLessEqual({"case", "value", "unit", "ceiling", "ratio", "rounds"}, set(result))
            self.assertGreater(result["value"], 0)
            self.assertGreaterEqual(result["rounds"], 3)
            if result["ceiling"] is None:
                self.assertIsNone(result["ratio"])
            else:
                self.assertAlmostEqual(result["ratio"], result["value"] / result["ceiling"])
        return report

    def stop_at(self, percent, process, terminal, number=signal.SIGINT):
        """Sends the signal once the progress says so much; returns what the program printed."""
        drawn = b""
        while not any(int(done) >= percent for done in re.findall(rb"(\d+)% ", drawn)):
            chunk = program.read_terminal(terminal)
            self.assertNotEqual(chunk, b"", drawn)
            drawn += chunk
        process.send_signal(number)
        output = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 130)
        return output


class Link(BenchTest):
    def test_a_paced_link_carries_its_pace_in_each_direction(self):
        report = self.report("link", "--link-bandwidth", "200MB/s", "--sizes", "2MiB", "--seconds", "0.9")
        self.assertEqual(report["machine"]["link"], "paced at 0.2 GB/s")
        self.assertEqual([r["case"] for r in report["results"]], [f"{case} 2MiB" for case in SIX_CASES])
        for result in report["results"]:
            self.assertEqual(result["unit"], "GB/s")
            self.assertAlmostEqual(result["ceiling"], 0.4 if "both" in result["case"] else 0.2)
            self.assertAlmostEqual(result["ratio"], 1, delta=0.1, msg=result)

    def test_without_a_pace_the_ceiling_is_memcpy(self):
        report = self.report("link", "--sizes", "1000003,64KiB", *QUICK)
        self.assertEqual(report["machine"]["link"], "memcpy")
        self.assertEqual([r["case"] for r in report["results"]],
                         [f"{case} {size}" for size in ("64KiB", "1000003B") for case in SIX_CASES])
        for result in report["results"]:
            self.assertGreater(result["ceiling"], 0)

    def test_a_person_reads_a_table_and_stderr_stays_empty(self):
        result = self.succeeds("bench", "link", "--sizes", "64KiB", *QUICK)
        for text in ("GB/s", "ceiling", "ratio", "memcpy", "2 copy engines", *SIX_CASES):
            self.assertIn(text, result.stdout)
        self.assertEqual(result.stderr, "")

    def test_a_terminal_sees_the_progress_and_not_in_the_result(self):
        process, terminal = self.start_on_terminal("bench", "link", "--sizes", "4KiB", *QUICK)
        drawn = b"".join(iter(lambda: program.read_terminal(terminal), b""))
        output = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 0)
        self.assertIn(b"% ", drawn)
        self.assertIn(b"pinned upload 4KiB", drawn)
        self.assertTrue(drawn.endswith(b"\r\x1b[K"), drawn[-40:])
        self.assertNotIn("%", output)

    def test_ctrl_c_prints_what_is_measured_so_far(self):
        process, terminal = self.start_on_terminal("bench", "link", "--sizes", "64KiB", "--seconds", "1")
        output = self.stop_at(30, process, terminal)
        self.assertIn("pinned upload 64KiB", output)
        self.assertIn("stopped: medians of the rounds so far", output)

    def test_ctrl_c_before_the_first_result_prints_nothing(self):
        process, terminal = self.start_on_terminal("bench", "link", "--sizes", "64KiB", "--seconds", "9", "--json")
        self.assertEqual(self.stop_at(0, process, terminal), "")

    def test_it_is_one_device_that_is_measured(self):
        if MPIRUN is None:
            self.skipTest("mpirun is not installed")
        result = self.run_program("bench", "link", *QUICK, prefix=ranks(2))
        self.assertEqual(result.returncode, 2)
        self.assertIn("mpirun started 2 ranks", result.stderr)

    # FIELD-CASES: where pinning is refused, the benchmark says "pageable".
    def test_refused_pinning_leaves_pageable_cases(self):
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            self.skipTest("needs root and setpriv, to run as another user")
        other_user = ["prlimit", "--memlock=65536", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        os.chmod(self.folder, 0o755)
        result = self.run_program("bench", "link", "--sizes", "1MiB", *QUICK, prefix=other_user)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("could not be pinned", result.stderr)
        self.assertIn("only pageable memory was measured", result.stdout)
        self.assertNotIn("pinned upload", result.stdout)


class Collectives(BenchTest):
    @unittest.skipIf(MPIRUN is None, "mpirun is not installed")
    def test_two_ranks_print_one_object_with_the_bandwidths_of_nccl_tests(self):
        report = self.report("collectives", "--sizes", "4KiB,1MiB", *QUICK, prefix=ranks(2))
        self.assertEqual(report["machine"]["ranks"], 2)
        cases = [r["case"].split()[0] for r in report["results"]]
        self.assertEqual(cases, [name for name in COLLECTIVES for _ in range(3)])
        self.assertEqual(sum("(uneven)" in r["case"] for r in report["results"]), len(COLLECTIVES))
        for name, result in zip(cases, report["results"], strict=True):
            algorithm = result["bytes"] / result["seconds"] / 1e9
            self.assertEqual(result["unit"], "GB/s")
            self.assertAlmostEqual(result["algorithm_bandwidth"], algorithm)
            self.assertAlmostEqual(result["value"], algorithm * BUS_FACTORS_OF_TWO_RANKS[name])
            self.assertGreater(result["ceiling"], 0)

    @unittest.skipIf(MPIRUN is None, "mpirun is not installed")
    def test_rank_0_prints_one_table(self):
        result = self.succeeds("bench", "collectives", "--sizes", "4KiB", *QUICK, prefix=ranks(3))
        for text in ("3 ranks", "algbw GB/s", "busbw GB/s", *COLLECTIVES):
            self.assertIn(text, result.stdout)
        self.assertEqual(result.stdout.count("all_to_all 4KiB"), 1)

    @unittest.skipIf(MPIRUN is None, "mpirun is not installed")
    def test_ranks_with_other_sizes_are_refused_and_do_not_hang(self):
        second = [":", "-n", "1", program.PROGRAM, "bench", "collectives", "--sizes", "8KiB", *QUICK]
        result = self.run_program("bench", "collectives", "--sizes", "4KiB", *QUICK, *second, prefix=ranks(1), timeout=60)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("other sizes", result.stderr)

    @unittest.skipIf(MPIRUN is None, "mpirun is not installed")
    def test_sigusr1_to_mpirun_stops_every_rank_with_what_is_measured(self):
        process, terminal = self.start_on_terminal("bench", "collectives", "--sizes", "4KiB", "--seconds", "3", prefix=ranks(2))
        output = self.stop_at(50, process, terminal, signal.SIGUSR1)
        self.assertIn("all_gather 4KiB", output)
        self.assertIn("stopped: medians of the rounds so far", output)

    def test_one_rank_alone_says_that_nothing_moves(self):
        result = self.succeeds("bench", "collectives", "--sizes", "4KiB", *QUICK)
        self.assertIn("1 rank: nothing moves between ranks", result.stdout)
        self.assertNotIn("busbw", result.stdout)
        for entry in self.report("collectives", "--sizes", "4KiB", *QUICK)["results"]:
            self.assertEqual((entry["unit"], entry["ceiling"]), ("us", None))


class Adam(BenchTest):
    QUICK = ["--elements", "64,3x4Ki", "--seconds", "0.01"]

    def test_each_format_has_a_figure_a_ceiling_and_their_ratio(self):
        report = json.loads(self.succeeds("bench", "adam", *self.QUICK, "--json").stdout)
        self.assertEqual(set(report), {"benchmark", "machine", "results", "notes"})
        self.assertEqual(report["benchmark"], "adam")
        self.assertLessEqual({"cpu", "cpus", "isa", "threads"}, set(report["machine"]))
        formats = ["fp32", "bf16", "fp16", "bf16-moments", "int8-moments", "bf16-master", "bf16-all"]
        self.assertEqual([r["case"] for r in report["results"]],
                         [f"{name} adamw {shape}" for name in formats for shape in ("64", "3x4Ki")])
        for result in report["results"]:
            self.assertLessEqual({"case", "value", "unit", "ceiling", "ratio", "rounds"}, set(result))
            self.assertEqual(result["unit"], "GB/s")
            self.assertGreaterEqual(result["rounds"], 3)
            moved = result["bytes_per_element"] * result["tensors"] * result["numel"] * 1e-9
            self.assertAlmostEqual(result["value"] * result["seconds"] / moved, 1, delta=0.5)
            self.assertAlmostEqual(result["ratio"] * result["ceiling"] / result["value"], 1, delta=0.9)

    def test_the_table_fits_a_hundred_columns(self):
        text = self.succeeds("bench", "adam", *self.QUICK, "--optimizer", "adamw,amsgrad").stdout
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        self.assertIn("int8-moments amsgrad 3x4Ki", text)

    def test_rows_are_apart_only_where_several_of_them_belong_together(self):
        alone = ["bench", "adam", "--elements", "64", "--seconds", "0.01", "--optimizer", "adamw,lion,sgd", "--format", "fp32"]
        rows = self.succeeds(*alone).stdout.rstrip().splitlines()[-3:]
        self.assertEqual([row.split()[1] for row in rows if row], ["adamw", "lion", "sgd"])
        together = self.succeeds("bench", "adam", *self.QUICK, "--format", "fp32,bf16").stdout.rstrip().splitlines()[-5:]
        self.assertEqual([bool(row) for row in together], [True, True, False, True, True])

    def test_the_help_says_which_sgd_it_is(self):
        self.assertIn("sgd has momentum 0.9", " ".join(self.succeeds("bench", "adam", "--help").stdout.split()))

    def test_threads_are_as_many_as_asked_for_and_omp_num_threads_is_ignored(self):
        flags = ["bench", "adam", *self.QUICK, "--format", "fp32", "--json"]
        machine = json.loads(self.succeeds(*flags, "--threads", "3").stdout)["machine"]
        self.assertEqual(machine["threads"], 3)
        prefixes = ((), ["env", "OMP_NUM_THREADS=1"])
        usual, with_omp = (json.loads(self.succeeds(*flags, prefix=prefix).stdout)["machine"] for prefix in prefixes)
        self.assertEqual(usual["threads"], with_omp["threads"])

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs two CPUs to bind to")
    def test_on_two_numa_nodes_threads_are_bound_and_the_bits_are_the_same(self):
        two_nodes = ["taskset", "-c", "0,1", "env", "HWLOC_SYNTHETIC=node:2 pu:1", "HWLOC_THISSYSTEM=1"]
        flags = ["--elements", "1Mi,100x64Ki", "--seconds", "0.01", "--format", "bf16", "--json", "--threads", "2"]
        report = json.loads(self.succeeds("bench", "adam", *flags, prefix=two_nodes).stdout)
        self.assertEqual(report["machine"]["threads_by_node"], "node 0: 1 thread, node 1: 1 thread")
        self.assertEqual(len(report["results"]), 2)

    def test_what_does_not_fit_is_named(self):
        flags = ["--elements", "64,1Mi", "--seconds", "0.01", "--format", "bf16"]
        text = self.succeeds("bench", "adam", *flags, "--host-memory", "1MiB").stdout
        self.assertIn("left out: bf16 adamw 1Mi takes 16.0 MiB of memory", text)
        self.refused("bench", "adam", "--elements", "1Mi", "--host-memory", "1MiB", status=3,
                     says=["smallest case takes 8", "1.00 MiB are allowed by --host-memory", "smaller --elements"])

    def test_more_than_the_machine_has_is_refused_before_it_is_taken(self):
        self.refused("bench", "adam", "--elements", "16384Gi", "--format", "bf16", status=3,
                     says=["smallest case takes 256 TiB", "available", "Give smaller --elements."])

    def test_wrong_values_name_the_flag_and_what_is_allowed(self):
        for flag, value, allowed in (("--elements", "65", "64 divides"), ("--elements", "64,", "like 64Ki"),
                                     ("--elements", "16777216x16384Gi", "2^44"),
                                     ("--format", "bf61", "Did you mean bf16?"), ("--optimizer", "adan", "Did you mean adam"),
                                     ("--threads", "0", "from 1"), ("--threads", "1.5", "whole"),
                                     ("--seconds", "0", "from 0.001"), ("--host-memory", "0", "no limit")):
            with self.subTest(flag=flag, value=value):
                self.refused("bench", "adam", flag, value, says=[allowed])


class Usage(BenchTest):
    def test_without_a_benchmark_the_help_is_shown_and_the_status_is_2(self):
        result = self.run_program("bench")
        self.assertEqual(result.returncode, 2)
        for text in ("headrace bench", "link", "collectives", "nvme", "adam"):
            self.assertIn(text, result.stdout)

    def test_wrong_names_get_the_nearest(self):
        self.refused("bench", "lnik", says=["lnik", "Did you mean link?"])
        self.refused("bench", "link", "--sises", "1MiB", says=["--sises", "Did you mean --sizes?"])
        self.refused("bench", "link", "--device", "cuba", says=["cuba", "Did you mean cuda?"])
        self.refused("bench", "collectives", "--time-out", "3", says=["--time-out", "Did you mean --timeout?"])

    def test_misplaced_words_are_told_where_they_belong(self):
        self.refused("bench", "link", "word", says=["the argument word is not known"])
        self.refused("bench", "link", "collectives", says=["collectives cannot follow bench link"])
        self.refused("bench", "link", "train", says=["train cannot follow bench"])
        self.refused("bench", "--sizes", "1MiB", "link", says=["--sizes comes behind its command: headrace bench link"])

    def test_wrong_values_name_the_flag_and_what_is_allowed(self):
        for flag, value, allowed in (
            ("--sizes", "0", "from 1 byte"), ("--sizes", "4XB", "64MiB"), ("--sizes", "1MiB,", "not a size"),
            ("--sizes", "2TiB", "to 1TiB"), ("--seconds", "0", "from 0.001"), ("--seconds", "nan", "from 0.001"),
            ("--link-bandwidth", "1", "1MB/s"), ("--device-memory", "0", "no limit"), ("--host-memory", "1.5", "fraction"),
            ("--device", "cuda", "CUDA"),
        ):
            with self.subTest(flag=flag, value=value):
                self.refused("bench", "link", flag, value, says=[allowed])
        self.refused("bench", "collectives", "--sizes", "3", says=["from 4 bytes"])
        self.refused("bench", "link", "--sizes", "1MiB", "--sizes", "2MiB", says=["--sizes is given twice"])
        self.refused("bench", "link", "--device", "cuda", "--link-bandwidth", "8GB/s", says=["--link-bandwidth"])

    def test_limits_too_small_are_refused_with_what_fits(self):
        result = self.refused("bench", "link", "--device-memory", "64MiB", status=3,
                              says=["512 MiB of device memory", "limit 64.0 MiB", "or as it is with --device-memory 512MiB"])
        self.assertIn("It fits with --sizes 4KiB,32KiB,256KiB,2MiB,16MiB,", result.stderr)
        self.refused("bench", "link", "--sizes", "1MiB", "--host-memory", "3MiB", status=3, says=["--host-memory 4MiB"])
        self.refused("bench", "collectives", "--device-memory", "1MiB", status=3, says=["It fits with --device-memory"])
        self.refused("bench", "link", "--sizes", "1TiB", status=3, says=["available", "smaller --sizes"])

    def test_what_is_said_to_fit_does(self):
        self.succeeds("bench", "link", "--sizes", "1MiB", "--host-memory", "4MiB", "--device-memory", "2MiB", *QUICK)


if __name__ == "__main__":
    unittest.main()
