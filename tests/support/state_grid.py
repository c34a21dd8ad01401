"""The grid over which `state_hash` must not move: every legal placement, block size, prefetch depth and thread count.

For one world size and accumulation (so one batch) every case must end in the same state. `whole` gives every case,
`pairwise` a few that hold every pair of values of any two factors.
"""
import itertools
import random

import headrace_job

STEPS = 5
CLIP = 2.2  # the norms of the first steps are above, those of the last below; check_clipping proves it
TIERS = ("none", "cpu", "nvme")

FACTORS = {
    "ranks": tuple(n for n in (1, 2, 3, 4) if n <= headrace_job.most_ranks()),
    "accumulation": (1, 3),
    "stage": (0, 1, 2, 3),
    "offload_optimizer": TIERS,
    "offload_gradients": TIERS,
    "offload_parameters": TIERS,
    "swap_block": ("48KiB", "192KiB"),
    "prefetch_units": (0, 2),
    "threads": (1, 2),
}
GROUP = ("ranks", "accumulation")
REFERENCE = {"stage": 0, "offload_optimizer": "none", "offload_gradients": "none", "offload_parameters": "none",
             "swap_block": "48KiB", "prefetch_units": 0, "threads": 1}


def legal(case):
    """Whether a placement means something; prefetch is varied only where something is gathered."""
    if case["offload_gradients"] != "none" and case["stage"] < 2:
        return False
    return case["stage"] == 3 or (case["offload_parameters"] == "none" and case["prefetch_units"] == 0)


def whole():
    for values in itertools.product(*FACTORS.values()):
        case = dict(zip(FACTORS, values))
        if legal(case):
            yield case


def references():
    for values in itertools.product(*(FACTORS[name] for name in GROUP)):
        yield {**dict(zip(GROUP, values)), **REFERENCE}


def llama_cases():
    """The same for the Llama family, whose engine is the same: each stage with a tier or two, on one and two ranks."""
    placements = [
        REFERENCE,
        {**REFERENCE, "offload_optimizer": "nvme", "swap_block": "192KiB", "threads": 2},
        {**REFERENCE, "stage": 1, "offload_optimizer": "cpu"},
        {**REFERENCE, "stage": 2, "offload_optimizer": "nvme", "offload_gradients": "cpu", "threads": 2},
        {**REFERENCE, "stage": 3, "prefetch_units": 2},
        {**REFERENCE, "stage": 3, "offload_optimizer": "cpu", "offload_gradients": "nvme", "offload_parameters": "cpu"},
        {**REFERENCE, "stage": 3, "offload_optimizer": "nvme", "offload_gradients": "nvme", "offload_parameters": "nvme",
         "prefetch_units": 2, "threads": 2},
    ]
    for ranks in (n for n in (1, 2) if n in FACTORS["ranks"]):
        for placement in placements:
            yield {"ranks": ranks, "accumulation": 1, "model": "llama-nano", **placement}


def pairs(case):
    return {frozenset(pair) for pair in itertools.combinations(case.items(), 2)}


def pairwise(seed=3):
    """A small set of legal cases that holds every pair that any legal case holds; greedy, the same for a seed."""
    cases = list(whole())
    random.Random(seed).shuffle(cases)
    wanted = set().union(*map(pairs, cases))
    chosen = []
    while wanted:
        best = max(cases, key=lambda case: len(pairs(case) & wanted))
        chosen.append(best)
        wanted -= pairs(best)
    return chosen


def group_of(case):
    return tuple(case[name] for name in GROUP)


def describe(case):
    return " ".join(f"{name}={value}" for name, value in case.items())


def run(program, corpus, case, folder, **environment):
    """Trains the tiny model for STEPS steps as `case` says."""
    options = {**headrace_job.TINY_MODEL, "data": corpus, "steps": STEPS, "clip": CLIP, "learning_rate": 1e-2, "seed": 5,
               "bucket": case["swap_block"], "quiet": True,
               **{name: value for name, value in case.items() if name != "ranks"}}
    if "nvme" in (case["offload_optimizer"], case["offload_gradients"], case["offload_parameters"]):
        (folder / "swap").mkdir(parents=True, exist_ok=True)
        options["swap_path"] = folder / "swap"
    return headrace_job.train(program, options, folder, case["ranks"], environment=environment)


def check_clipping(outcome):
    """Clipping must have acted in some steps and not in others, or the grid would not test it."""
    clipped = [step["grad_norm"] > CLIP for step in outcome.steps]
    if all(clipped) or not any(clipped):
        raise AssertionError(f"clip {CLIP} acts in all steps or none: {[step['grad_norm'] for step in outcome.steps]}")


class Comparison:
    """Hashes of a growing number of runs against the reference of their group."""

    def __init__(self, program, corpus, folder):
        self.program, self.corpus, self.folder = program, corpus, folder
        self.hashes, self.runs, self.differing = {}, 0, []

    def add(self, case, **environment):
        folder = self.folder / f"run-{self.runs}"
        self.runs += 1
        outcome = run(self.program, self.corpus, case, folder, **environment)
        if outcome.status != 0:
            self.differing.append(f"{describe(case)}: {outcome}")
            return
        expected = self.hashes.setdefault(group_of(case), outcome.state_hash)
        if outcome.state_hash != expected:
            self.differing.append(f"{describe(case)} {environment}: {outcome.state_hash}, not {expected}")
        return outcome
