"""Kills a run with optimizer states on NVMe at a random moment, resumes it, and compares the end with an unkilled run."""
import os
import random
import signal
import time

import headrace_job

STEPS = 8
OPTIONS = {**headrace_job.TINY_MODEL, "steps": STEPS, "stage": 3, "offload_optimizer": "nvme", "offload_parameters": "cpu",
           "offload_gradients": "cpu", "swap_block": "48KiB", "learning_rate": 1e-2, "seed": 11, "threads": 1}


class KillResume:
    def __init__(self, program, corpus, folder, ranks, seed):
        self.program, self.folder, self.ranks = program, folder, ranks
        self.draw = random.Random(seed)
        self.options = {**OPTIONS, "data": corpus}
        reference = self.run("reference")
        if reference.status != 0:
            raise AssertionError(f"the uninterrupted run failed: {reference}")
        self.expected = reference.state_hash
        self.step_seconds = sorted(step["step_seconds"] for step in reference.steps)[STEPS // 2]

    def options_in(self, name):
        swap = self.folder / name / "swap"
        swap.mkdir(parents=True, exist_ok=True)
        return {**self.options, "swap_path": swap}

    def run(self, name, **more):
        return headrace_job.train(self.program, {**self.options_in(name), **more}, self.folder / name, self.ranks)

    def kill(self, name):
        """Starts a run and kills one rank, or all of them, somewhere in a random step. Says when."""
        job = headrace_job.Job(self.program, self.options_in(name), self.folder / name, self.ranks)
        steps, part = self.draw.randrange(STEPS), self.draw.random()
        job.wait_for_steps(steps)
        time.sleep(part * 1.5 * self.step_seconds)
        victims = job.rank_pids()
        if self.draw.random() < 0.5:
            victims = self.draw.sample(victims, k=min(1, len(victims)))
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        outcome = job.wait()
        moment = f"{len(victims)} of {self.ranks} killed {part * 1.5:.2f} steps after step {steps}"
        return moment, outcome

    def resume(self, name):
        """Ends the run: from its last commit, or from the start when the kill came before the store was there."""
        options = {**self.options_in(name), "resume": "swap"}
        outcome = headrace_job.Job(self.program, options, self.folder / name, self.ranks).wait()
        if outcome.status == 2 and ("nothing to continue" in outcome.stderr or "no committed" in outcome.stderr):
            return "nothing was committed", self.run(name)
        return "resumed", outcome

    def trial(self, number):
        """Returns (text, whether the end is the unkilled run's end)."""
        name = f"trial-{number}"
        moment, killed = self.kill(name)
        if killed.status == 0:
            return f"{moment}: it had ended before", killed.state_hash == self.expected
        how, outcome = self.resume(name)
        if outcome.status != 0:
            return f"{moment}: {how}: {outcome}", False
        status, report = headrace_job.inspect_json(self.program, self.options_in(name)["swap_path"], "--hash")
        same = outcome.state_hash == self.expected == report.get("state_hash") and status == 0
        return f"{moment}; {how}; hash {outcome.state_hash}, inspect {report.get('state_hash')}", same
