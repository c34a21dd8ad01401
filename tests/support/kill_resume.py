"""Kills runs with optimizer states on NVMe at random moments. After each kill the state on disk must be that of the last step
that was committed on every rank, by every bit, and the next run goes on from it."""
import os
import random
import shutil
import signal
import subprocess
import time

import headrace_job

OPTIONS = {**headrace_job.TINY_MODEL, "stage": 3, "offload_optimizer": "nvme", "offload_parameters": "nvme",
           "offload_gradients": "nvme", "swap_block": "48KiB", "learning_rate": 1e-2, "schedule": "constant", "seed": 11,
           "threads": 1, "timeout": 20}


def takes(program, flag):
    """Whether `headrace train` has the flag."""
    return flag in subprocess.run([str(program), "train", "--help"], capture_output=True, text=True).stdout


class KillResume:
    def __init__(self, program, corpus, folder, ranks, seed, steps=16, paths=1, parity=0):
        self.program, self.folder, self.ranks = program, folder, ranks
        self.draw = random.Random(seed)
        self.steps, self.paths = steps, paths
        self.options = {**OPTIONS, "data": corpus}
        if parity > 0:
            self.options["swap_parity"] = parity
        self.expected = self.reference()
        self.reached = None  # the step that is on disk now; None: no store

    def swap_paths(self, name):
        paths = [self.folder / name / f"swap-{number}" for number in range(self.paths)]
        for path in paths:
            path.mkdir(parents=True, exist_ok=True)
        return paths

    def options_of(self, name, steps, resume):
        return {**self.options, "swap_path": self.swap_paths(name), "steps": steps, "resume": "swap" if resume else None}

    def inspect(self, name):
        """(step, state hash) on disk; (None, None) where no step is."""
        status, report = headrace_job.inspect_json(self.program, self.swap_paths(name), "--hash")
        step = report.get("step")
        if step is None:
            return None, None
        return step, report.get("state_hash") if status == 0 else f"{report['problems']}"

    def reference(self):
        """The state hash after each step of a run that nobody kills, made by runs of one step each."""
        hashes = {}
        for steps in range(1, self.steps + 1):
            outcome = headrace_job.train(self.program, self.options_of("reference", steps, steps > 1),
                                         self.folder / "reference", self.ranks)
            if outcome.status != 0:
                raise AssertionError(f"the uninterrupted run failed: {outcome}")
            step, state_hash = self.inspect("reference")
            if (step, state_hash) != (steps, outcome.state_hash):
                raise AssertionError(f"inspect finds step {step} {state_hash}, the run ended with {steps} {outcome.state_hash}")
            hashes[steps] = state_hash
        return hashes

    def start(self, name):
        """A run that goes on from what is on disk, or a new one where that is nothing or nearly the end."""
        if self.reached is not None and self.reached >= self.steps - 2:
            for path in self.swap_paths(name):
                shutil.rmtree(path)
            self.reached = None
        (self.folder / name / "metrics.jsonl").unlink(missing_ok=True)
        options = self.options_of(name, self.steps, self.reached is not None)
        return headrace_job.Job(self.program, options, self.folder / name, self.ranks)

    def wait_for_the_moment(self, job):
        """A moment of the start (a store is made or opened, ranks agree on a step), or one in a random step."""
        if self.draw.random() < 0.3:
            while job.process.poll() is None and len(job.rank_pids()) < self.ranks:
                time.sleep(0.001)
            time.sleep(self.draw.random() * 0.15)
            return "at the start"
        steps = self.draw.randrange(1, 6)
        job.wait_for_steps(steps)
        time.sleep(self.draw.random() * 0.02)
        return f"{steps} steps on"

    def kill(self, job):
        """Kills ranks at different times, with one of them delayed or not. Says how."""
        pids = job.rank_pids()
        self.draw.shuffle(pids)
        stopped = pids[-1:] if self.draw.random() < 0.5 else []
        victims = pids[:self.draw.randrange(1, max(2, len(pids)))]
        for pid in stopped:
            send(pid, signal.SIGSTOP)
            time.sleep(self.draw.random() * 0.02)
        for pid in victims:
            send(pid, signal.SIGKILL)
            time.sleep(self.draw.random() * 0.01)
        for pid in stopped:
            send(pid, signal.SIGCONT)
        return f"{len(victims)} of {self.ranks} killed" + (", one delayed" if stopped and self.ranks > 1 else "")

    def trial(self, number):
        """One moment. Returns (text, whether the state on disk is right)."""
        name = "killed"
        (self.folder / name).mkdir(exist_ok=True)
        before = self.reached
        job = self.start(name)
        before = before if self.reached is not None else None
        when = self.wait_for_the_moment(job)
        how = self.kill(job)
        try:
            outcome = job.wait(60)
        except subprocess.TimeoutExpired:  # of a rank that dies while MPI starts, mpirun does not always hear
            how += ", mpirun did not notice"
            outcome = job.outcome(-signal.SIGKILL)
        acknowledged = max((event["step"] for event in outcome.steps), default=before)
        step, state_hash = self.inspect(name)
        self.reached = step
        text = f"{when}, {how}: committed {acknowledged}, found {step} {state_hash}"
        if outcome.status not in (0, -signal.SIGKILL, 128 + signal.SIGKILL):
            return f"{text}; it did not end by the kill: {outcome}", False
        if step is None or step == 0:
            return text, not acknowledged
        return text, step >= (acknowledged or 0) and state_hash == self.expected[step]

    def finish(self):
        """The killed run goes on to its end; returns (text, whether that is the unkilled run's end)."""
        if self.reached is None:
            return "nothing was committed at last", True
        outcome = headrace_job.train(self.program, self.options_of("killed", self.steps, True), self.folder / "killed", self.ranks)
        same = outcome.status == 0 and outcome.state_hash == self.expected[self.steps]
        return f"resumed from step {self.reached} to the end", same


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has ended
        pass
