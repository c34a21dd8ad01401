"""`headrace inspect`: what it shows, of whole stores, damaged ones, and one that a running job writes."""

import json
import os
import pathlib
import shutil
import signal
import unittest

from program import ON_NVME, TINY, ProgramTest

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
        self.assertEqual(json.loads(stdout), {"repaired": [], "stopped": True})
        self.assertRegex(stderr, "stopped after .* read, .* written.* can be started again")
        rank, = json.loads(self.run_program("inspect", *paths, "--json").stdout)["ranks"]
        self.assertEqual(rank["owner"]["state"], "none")
        whole = json.loads(self.succeeds("inspect", *paths, "--repair", "--json").stdout)
        self.assertFalse(whole["stopped"])
        self.assertEqual([path["rejoined"] for path in whole["repaired"][0]["paths"]], [False, True, False])
        again = json.loads(self.succeeds("inspect", *paths, "--verify", "--hash", "--json").stdout)
        self.assertEqual(again["state_hash"], state_hash)

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
