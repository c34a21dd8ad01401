"""Runs `headrace train` as users do, alone or under mpirun, and reads what it says. Python's library alone."""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

TINY_MODEL = {"model": "gpt2-nano", "sequence_length": 32, "batch_size": 1}
DEVICE = os.environ.get("HEADRACE_JOB_DEVICE", "cpu")  # on which every job runs
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def real_devices():
    """How many CUDA devices this machine has."""
    if shutil.which("nvidia-smi") is None:
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def most_ranks():
    """Ranks that a job may have: a rank on a real device needs one of its own."""
    return real_devices() if os.environ.get("HEADRACE_JOB_NEEDS_DEVICES") else 4


def write_corpus(path, size_bytes=1 << 17, seed=7):
    """Text with some order in it, the same for every caller."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(400)]
    text, length = [], 0
    while length < size_bytes:
        text.append(draw.choice(words) + draw.choice("    \n"))
        length += len(text[-1])
    path.write_text("".join(text)[:size_bytes])
    return path


def flags(options):
    """{"batch_size": 2, "recompute": True} -> ["--batch-size", "2", "--recompute"]; None and False are left out, of a list each
    value has the flag. Who resumes from the swap path overwrites nothing, nor does who saves no checkpoint."""
    result = []
    for name, values in options.items():
        if name == "overwrite_swap" and options.get("resume") == "swap":
            continue
        if name == "overwrite_checkpoints" and options.get("checkpoint_dir") is None:
            continue
        for value in values if isinstance(values, list) else [values]:
            if value is None or value is False:
                continue
            result.append("--" + name.replace("_", "-"))
            if value is not True:
                result.append(str(value))
    return result


class Outcome:
    """A finished job: its status, its text, and the lines of its metrics file."""

    def __init__(self, status, stdout, stderr, metrics):
        self.status, self.stdout, self.stderr = status, stdout, stderr
        events = read_events(metrics)
        self.steps = [event for event in events if event["event"] == "step"]
        summaries = [event for event in events if event["event"] == "summary"]
        self.summary = summaries[-1] if summaries else None

    @property
    def state_hash(self):
        return self.summary["state_hash"]

    def __str__(self):
        return f"status {self.status}\n{self.stdout}\n{self.stderr}"


def read_events(metrics):
    """The whole lines of a metrics file, which may be growing."""
    if not metrics.exists():
        return []
    return [json.loads(line) for line in metrics.read_text().splitlines(keepends=True) if line.endswith("\n")]


class Job:
    """One `headrace train` in its own process group. `folder` keeps its metrics and its output. `prefix` is a command that
    starts each rank, `environment` what is added to the ranks' environment."""

    def __init__(self, program, options, folder, ranks=1, metrics=None, environment=None, prefix=()):
        self.metrics = metrics or folder / "metrics.jsonl"
        self.out, self.err = folder / "stdout", folder / "stderr"
        launcher = [*MPIRUN, "-n", str(ranks)] if ranks > 1 else []
        command = [*launcher, *map(str, prefix), str(program), "train", "--device", DEVICE, *flags(options), "--metrics", str(self.metrics)]
        self.ranks = ranks
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                                            env={**os.environ, **(environment or {})})

    def rank_pids(self):
        """Process ids of the ranks, once they have started."""
        if self.ranks == 1:
            return [self.process.pid]
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        try:
            return [int(pid) for pid in children.read_text().split() if is_program(pid)]
        except FileNotFoundError:
            return []

    def steps_done(self):
        return sum(event["event"] == "step" for event in read_events(self.metrics))

    def wait_for_steps(self, count):
        """Waits until `count` steps are in the metrics or the job has ended; says which."""
        while self.process.poll() is None:
            if self.steps_done() >= count and len(self.rank_pids()) == self.ranks:
                return True
            time.sleep(0.001)
        return False

    def wait(self, timeout=300):
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return self.outcome(status)

    def kill(self):
        """Ends the launcher and every rank at once."""
        for pid in self.rank_pids():  # mpirun gives each a group of its own
            os.kill(pid, signal.SIGKILL)
        os.killpg(self.process.pid, signal.SIGKILL)
        return self.outcome(self.process.wait())

    def outcome(self, status):
        return Outcome(status, self.out.read_text(errors="replace"), self.err.read_text(errors="replace"), self.metrics)


def is_program(pid):
    """Whether a child of mpirun is the program already, and not mpirun's own copy before exec."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("headrace")
    except OSError:
        return False


def train(program, options, folder, ranks=1, timeout=300, environment=None, prefix=()):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").unlink(missing_ok=True)
    return Job(program, options, folder, ranks, environment=environment, prefix=prefix).wait(timeout)


def inspect_json(program, swap_path, *arguments):
    """(exit status, report) of `headrace inspect`; swap_path is one path or a list of them."""
    paths = swap_path if isinstance(swap_path, list) else [swap_path]
    result = subprocess.run([str(program), "inspect", *map(str, paths), "--json", *arguments], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL)
    return result.returncode, json.loads(result.stdout) if result.stdout else {"problems": [result.stderr]}
