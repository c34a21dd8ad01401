"""`headrace inspect`: what it shows, of whole stores, damaged ones, and one that a running job writes."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

from program import NANO, ON_NVME, TINY, ProgramTest

AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
RUN = ["train", *TINY, *ON_NVME, "--schedule", "constant", "--quiet"]


class Inspect(ProgramTest):
    def report(self, *flags, status=0, **options):
        result = self.run_program("inspect", "swap", "--json", *flags, **options)
        self.assertEqual(result.returncode, status, result.stderr + result.stdout)
        report = json.loads(result.stdout)
        self.assertEqual(report["good"], status == 0)
        return report

    def test_json_has_the_documented_keys(self):
        self.succeeds(*RUN, "--steps", 2)
        report = self.report("--verify", "--hash", "--blocks")
        self.assertEqual(set(report), {"path", "good", "stopped", "step", "steps_applied", "data_position", "loss_scale",
                                       "state_hash", "ranks", "notes", "problems"})
        rank, = report["ranks"]
        self.assertEqual(rank["owner"]["state"], "none")
        self.assertEqual(sum(each["blocks"] for each in rank["generations"]), rank["blocks"])
        self.assertEqual(len(rank["block_list"]), rank["blocks"])
        self.assertEqual({block["state"] for block in rank["block_list"]}, {"good"})
        path, = rank["paths"]
        self.assertEqual(path["state"], "good")
        self.assertEqual(path["journal"]["torn_bytes"], 0)
        self.assertIn("commit", {record["kind"] for record in path["journal"]["records"]})
        extents = self.folder / "swap" / "rank-00000" / "extents.bin"
        self.assertEqual(path["extents_bytes"], extents.stat().st_size)

    def test_states_of_every_type_are_shown_and_hashed_as_the_run_and_the_standalone_reader_do(self):
        read_store = pathlib.Path(__file__).parents[1] / "python" / "read_store.py"
        nano = ["train", *NANO, *ON_NVME, "--schedule", "constant", "--quiet", "--steps", 2, "--overwrite-swap"]
        for flags, optimizer, text in (
            (["--moments", "int8", "--amsgrad"], "adam", "adamw or adam with amsgrad, fp32 master, int8 moments"),
            (["--moments", "bf16", "--master-dtype", "bf16"], "adam", "adamw or adam, bf16 master, bf16 moments"),
            (["--optimizer", "sgd", "--momentum", 0.9, "--moments", "int8"], "sgd", "sgd with momentum, fp32 master, int8 moments"),
            (["--optimizer", "lion", "--master-dtype", "bf16"], "lion", "lion, bf16 master, fp32 moments"),
        ):
            with self.subTest(text):
                printed = self.succeeds(*nano, *flags).stdout
                found = re.search(r"state_hash +([0-9a-f]{16})", printed)[1]
                report = self.report("--verify", "--hash")
                self.assertEqual(report["state_hash"], found)
                self.assertEqual(report["ranks"][0]["optimizer"], optimizer)
                self.assertIn(text, self.succeeds("inspect", "swap").stdout)
                alone = subprocess.run([sys.executable, read_store, "swap", "--skip-crc"], cwd=self.folder,
                                       capture_output=True, text=True, check=True).stdout
                self.assertEqual(alone.split()[0], found)

    def test_table_shows_journal_and_blocks(self):
        self.succeeds(*RUN, "--steps", 2)
        text = self.succeeds("inspect", "swap", "--blocks", "--journal").stdout
        for word in ("generations", "journal.bin", "sequence", "crc32c", "released", "unchecked"):
            self.assertIn(word, text)
        daily = self.succeeds("inspect", "swap").stdout
        for word in ("crc32c", "generations", "journal.bin", "sequence"):
            self.assertNotIn(word, daily)
        for word in ("owner", "steps", "model", "sizes", "state"):
            self.assertIn(word, daily)

    def test_running_job_is_inspected_and_not_disturbed(self):
        flags = ["train", *TINY, *ON_NVME, "--schedule", "constant", "--steps", 12]
        self.succeeds(*flags, "--quiet", "--metrics", "alone.jsonl")
        job = self.start(*flags, "--metrics", "watched.jsonl", "--overwrite-swap")
        self.wait_for_step(job, "watched.jsonl", 1)
        looks = 0
        while job.poll() is None:
            result = self.run_program("inspect", "swap", "--json")
            if result.returncode == 2:
                continue  # the job ended and removed what it keeps nowhere
            report = json.loads(result.stdout)
            if report["ranks"] and report["ranks"][0]["owner"]["state"] == "alive":
                self.assertEqual(report["ranks"][0]["owner"]["pid"], job.pid)
                looks += 1
        self.assertEqual(job.wait(), 0)
        self.assertGreater(looks, 0)
        self.assertEqual(self.summary("watched.jsonl")["state_hash"], self.summary("alone.jsonl")["state_hash"])

    def test_killed_owner_is_called_gone(self):
        job = self.start("train", *TINY, *ON_NVME, "--steps", 10000, "--metrics", "m.jsonl")
        self.wait_for_step(job, "m.jsonl", 2)
        job.send_signal(signal.SIGKILL)
        job.wait()
        rank, = self.report("--verify")["ranks"]
        self.assertEqual(rank["owner"], {"state": "dead", "pid": job.pid, "host": os.uname().nodename})

    def test_pipe_in_the_place_of_a_file_is_named_at_once(self):
        self.succeeds(*RUN, "--steps", 1)
        journal = self.folder / "swap" / "rank-00000" / "journal.bin"
        journal.unlink()
        os.mkfifo(journal)
        report = self.report(status=1, timeout=20)
        self.assertIn("pipe", report["problems"][0])

    def test_other_user_is_told_why_and_what_to_do(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        self.succeeds(*RUN, "--steps", 1)
        self.folder.chmod(0o755)
        self.assertTrue(self.report("--verify", prefix=AS_NOBODY)["good"])  # reading needs no more than reading
        rank = self.folder / "swap" / "rank-00000"
        rank.chmod(0o700)
        report = self.report(status=1, prefix=AS_NOBODY)
        self.assertIn("Permission denied", report["problems"][0])
        self.assertIn("the user who runs the job", report["problems"][0])
        (self.folder / "swap").chmod(0o700)
        self.refused("inspect", "swap", says=["Permission denied", "the user who runs the job"], prefix=AS_NOBODY)

    def interrupted(self, *arguments, attempts=50):
        """The result of a run that Ctrl-C stopped while it read; it is asked for as soon as the program takes it."""
        for _ in range(attempts):
            process = self.start(*arguments)
            status = pathlib.Path(f"/proc/{process.pid}/status")
            while process.poll() is None:
                caught = next((line for line in status.read_text().splitlines() if line.startswith("SigCgt:")), "0:0")
                if int(caught.split(":")[1], 16) >> (signal.SIGINT - 1) & 1:
                    process.send_signal(signal.SIGINT)
                    break
            stdout, stderr = process.communicate(timeout=60)
            if process.returncode != 0:
                self.assertEqual(process.returncode, 130, stderr)
                return stdout, stderr
        self.skipTest("this machine reads the store before a signal arrives")

    def test_interrupt_says_what_was_checked_and_leaves_a_store_that_the_next_repair_makes_whole(self):
        paths = [f"swap/{name}" for name in ("a", "b", "c")]
        for path in paths:
            (self.folder / path).mkdir()
        self.succeeds("train", *TINY, "--offload-optimizer", "nvme", "--swap-parity", 1, "--quiet", "--steps", 2,
                      *(f"--swap-path={path}" for path in paths))
        state_hash = json.loads(self.succeeds("inspect", *paths, "--hash", "--json").stdout)["state_hash"]
        stdout, stderr = self.interrupted("inspect", *paths, "--verify", "--hash", "--json")
        report = json.loads(stdout)
        self.assertTrue(report["stopped"])
        self.assertIsNone(report["state_hash"])
        self.assertEqual(report["problems"], [])
        self.assertIn("headrace: stopped after", stderr)
        shutil.rmtree(self.folder / "swap" / "b")
        (self.folder / "swap" / "b").mkdir()
        stdout, stderr = self.interrupted("inspect", *paths, "--repair", "--json")
        stopped = json.loads(stdout)
        self.assertEqual((stopped["repaired"], stopped["stopped"]), ([], True))
        self.assertRegex(stderr, "stopped after .* read, .* written.* can be started again")
        rank, = json.loads(self.run_program("inspect", *paths, "--json").stdout)["ranks"]
        self.assertEqual(rank["owner"]["state"], "none")
        whole = json.loads(self.succeeds("inspect", *paths, "--repair", "--json").stdout)
        self.assertFalse(whole["stopped"])
        self.assertEqual([path["rejoined"] for path in whole["repaired"][0]["paths"]], [False, True, False])
        again = json.loads(self.succeeds("inspect", *paths, "--verify", "--hash", "--json").stdout)
        self.assertEqual(again["state_hash"], state_hash)

    def make_on_paths(self, *flags):
        """A store of gpt2-nano on swap/a, swap/b and swap/c with one parity; its paths and the command that made it."""
        paths = [f"swap/{name}" for name in ("a", "b", "c")]
        for path in paths:
            (self.folder / path).mkdir()
        command = ["train", *NANO, "--offload-optimizer", "nvme", "--swap-parity", 1, "--quiet",
                   *(f"--swap-path={path}" for path in paths), *flags]
        self.succeeds(*command, "--steps", 1)
        return paths, command

    def test_repair_is_followed_by_what_was_asked_for_and_its_json_is_that_of_inspect(self):
        paths, _ = self.make_on_paths()
        whole = json.loads(self.succeeds("inspect", *paths, "--hash", "--json").stdout)
        shutil.rmtree(self.folder / "swap" / "b" / "rank-00000")
        report = json.loads(self.succeeds("inspect", "--repair", *paths, "--hash", "--blocks", "--json").stdout)
        self.assertEqual(set(report) - set(whole), {"repaired"})
        self.assertEqual((report["good"], report["state_hash"]), (True, whole["state_hash"]))
        self.assertTrue(report["repaired"][0]["paths"][1]["rejoined"])
        self.assertEqual(len(report["ranks"][0]["block_list"]), report["ranks"][0]["blocks"])
        text = self.succeeds("inspect", "--repair", "--verify", "--hash", *paths).stdout
        self.assertRegex(text, r"(?s)pieces checked.*checked .*all good.*state hash " + whole["state_hash"])

    def test_wrong_usage_gives_json_too_and_exit_status_2(self):
        paths, _ = self.make_on_paths()
        for given, said in ((["nope"], "nope does not exist"), (["."], "there is no swap store"),
                            ([*paths, "swap/b"], "the same folder"), ([paths[0], "."], "none of them")):
            result = self.run_program("inspect", *given, "--json")
            self.assertEqual(result.returncode, 2, result.stderr)
            report = json.loads(result.stdout)
            self.assertFalse(report["good"])
            self.assertIn(said, report["problems"][0])
            self.assertIn(said, result.stderr)

    def test_path_that_was_not_named_and_is_missing_is_not_rebuilt_unasked(self):
        paths, _ = self.make_on_paths()
        shutil.rmtree(self.folder / "swap" / "c" / "rank-00000")  # as an empty mount point looks
        self.refused("inspect", "--repair", paths[0], says=["swap/c", "mount its drive", "headrace inspect --repair"])
        self.assertEqual(list((self.folder / "swap" / "c").iterdir()), [])
        self.succeeds("inspect", "--repair", *paths)

    def test_repair_that_cannot_begin_says_so_in_json_too(self):
        paths, _ = self.make_on_paths()
        for path in paths[1:]:
            (self.folder / path / "rank-00000" / "journal.bin").write_text("damaged")
        result = self.run_program("inspect", "--repair", *paths, "--json")
        self.assertEqual(result.returncode, 1, result.stderr)
        report = json.loads(result.stdout)
        self.assertIn("2 of its 3 paths", report["problems"][0])
        self.assertIn("--overwrite-swap", report["problems"][0])

    def test_run_is_started_anew_as_advised_whatever_of_its_store_is_broken(self):
        command = ["train", *NANO, *ON_NVME, "--quiet", "--steps", 1]
        rank = self.folder / "swap" / "rank-00000"
        for name, action in (("store.json", lambda file: file.write_text("{")), ("journal.bin", pathlib.Path.unlink),
                             ("extents.bin", pathlib.Path.unlink)):
            self.succeeds(*command, "--overwrite-swap")
            action(rank / name)
            self.refused(*command, "--resume", "swap", status=1, says=[f"rank-00000/{name}", "--overwrite-swap"])
            self.assertIn("--overwrite-swap", self.run_program("inspect", "swap").stdout)
            self.succeeds(*command, "--overwrite-swap")

    def test_size_on_disk_is_the_one_that_train_prints_and_other_files_are_none_of_it(self):
        (self.folder / "swap" / "headrace-tune").mkdir()
        (self.folder / "swap" / "headrace-tune" / "extents.bin").write_bytes(bytes(64 << 20))
        trained = self.succeeds("train", *NANO, *ON_NVME, "--quiet", "--steps", 1).stdout
        size = re.search(r"swap store +swap, (.*) on disk", trained)[1]
        self.assertIn(f"; {size} on disk", self.succeeds("inspect", "swap").stdout)

    def test_hash_of_what_keeps_no_state_fails(self):
        self.succeeds(*RUN, "--steps", 1)
        self.assertRegex(self.report("--hash")["state_hash"], r"^[0-9a-f]{16}$")
        self.succeeds(*RUN, "--steps", 1, "--durability", "none", "--overwrite-swap")
        self.report()
        report = self.report("--hash", status=1)
        self.assertIsNone(report["state_hash"])
        self.assertIn("durability none", report["problems"][0])


if __name__ == "__main__":
    unittest.main()
