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


def inspect(program, paths, expected_status=0):
    """(step, state hash) on disk; (None, None) where no step is, and the problems in place of the hash where there are others."""
    status, report = headrace_job.inspect_json(program, paths, "--hash")
    step = report.get("step")
    if step is None:
        return None, None
    return step, report.get("state_hash") if status == expected_status else f"status {status}, {report['problems']}"


def reference(program, corpus, folder, ranks, steps, more=None):
    """The state hash after each step of a run that nobody kills, made by runs of one step each. It is the same over any paths. `more`: options beside OPTIONS."""
    swap, hashes = folder / "swap", {}
    swap.mkdir(parents=True)
    for last in range(1, steps + 1):
        options = {**OPTIONS, **(more or {}), "data": corpus, "swap_path": swap, "steps": last,
                   "resume": "swap" if last > 1 else None}
        outcome = headrace_job.train(program, options, folder, ranks)
        if outcome.status != 0:
            raise AssertionError(f"the uninterrupted run failed: {outcome}")
        step, state_hash = inspect(program, [swap])
        if (step, state_hash) != (last, outcome.state_hash):
            raise AssertionError(f"inspect finds step {step} {state_hash}, the run ended with {last} {outcome.state_hash}")
        hashes[last] = state_hash
    return hashes


class KillResume:
    """Kills one run after the other over the same paths. `expected` is what reference() returns for as many ranks."""

    def __init__(self, program, corpus, folder, ranks, seed, expected, paths=1, parity=0, more=None):
        self.program, self.folder, self.ranks = program, folder, ranks
        self.draw = random.Random(seed)
        self.expected, self.steps, self.parity = expected, max(expected), parity
        self.paths = [folder / f"swap-{number}" for number in range(paths)]
        self.options = {**OPTIONS, **(more or {}), "data": corpus, "swap_path": self.paths, "steps": self.steps}
        if parity > 0:
            self.options["swap_parity"] = parity
        self.reached = None  # the step that is on disk now; None: no store

    def inspect_without_a_path(self):
        """What parity makes of the others."""
        path = self.draw.choice(self.paths)
        away = path.with_name(path.name + "-away")
        path.rename(away)
        found = inspect(self.program, self.paths, expected_status=1)
        away.rename(path)
        return found

    def start(self):
        """A run that goes on from what is on disk, or a new one where that is nothing or nearly the end."""
        if self.reached is not None and self.reached >= self.steps - 2:
            for path in self.paths:
                shutil.rmtree(path)
            self.reached = None
        for path in self.paths:
            path.mkdir(parents=True, exist_ok=True)
        (self.folder / "metrics.jsonl").unlink(missing_ok=True)
        options = {**self.options, "resume": None if self.reached is None else "swap"}
        return headrace_job.Job(self.program, options, self.folder, self.ranks)

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

    def kill(self, job, delayed):
        """Kills ranks at different times, while one of them is delayed or not. Says how."""
        pids = job.rank_pids()
        self.draw.shuffle(pids)
        stopped = pids[-1:] if delayed else []
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
        """One moment; in every second one a rank is delayed. Returns (text, whether the state on disk is right)."""
        job = self.start()
        before = self.reached
        when = self.wait_for_the_moment(job)
        how = self.kill(job, delayed=number % 2 == 1)
        try:
            outcome = job.wait(60)
        except subprocess.TimeoutExpired:  # of a rank that dies while MPI starts, mpirun does not always hear
            how += ", mpirun did not notice"
            outcome = job.outcome(-signal.SIGKILL)
        acknowledged = max((event["step"] for event in outcome.steps), default=before)
        found = inspect(self.program, self.paths)
        self.reached = found[0]
        text = f"{when}, {how}: committed {acknowledged}, found {found[0]} {found[1]}"
        ends = [0, -signal.SIGKILL, 128 + signal.SIGKILL]
        if self.ranks > 1:
            ends.append(-signal.SIGPIPE)  # of mpirun itself, which wrote to a rank that was killed while it started
        if outcome.status not in ends:
            return f"{text}; it did not end by the kill: {outcome}", False
        good = self.is_right(found, acknowledged)
        if self.parity > 0:
            found = self.inspect_without_a_path()
            text += f", without a path {found[0]} {found[1]}"
            good = good and self.is_right(found, acknowledged)
        return text, good

    def is_right(self, found, acknowledged):
        step, state_hash = found
        if step is None or step == 0:
            return not acknowledged
        return step >= (acknowledged or 0) and state_hash == self.expected[step]

    def finish(self):
        """The killed run goes on to its end; returns (text, whether that is the unkilled run's end)."""
        if self.reached is None:
            return "nothing was committed at last", True
        outcome = headrace_job.train(self.program, {**self.options, "resume": "swap"}, self.folder, self.ranks)
        same = outcome.status == 0 and outcome.state_hash == self.expected[self.steps]
        return f"resumed from step {self.reached} to the end", same


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has ended
        pass
