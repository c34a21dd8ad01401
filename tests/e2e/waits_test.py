"""Each wait of a step is needed: without it, the emulation's vector clocks report what it ordered.

The emulation names the places that wait (by the call's offset in the program) and lets all waits of one of them do nothing.
A place that waits for all lanes may order plain host memory alone, which the emulation does not watch: there a result that
differs when stream work is held back shows that it is needed. Prints the list: place, how many waits in the runs, and what
came of leaving them out. A communicator's waits for events at its start and end order plain host memory: listed, not tried.

usage: waits_test.py PROGRAM ENGINE-TESTS
"""
import collections
import os
import pathlib
import re
import subprocess
import sys

import headrace_job
import job_test

VIOLATION = 86
# Together they pass every place that waits; the quick ones first.
RUNS = [  # ranks, options; or a filter of the engine's tests
    (1, {"stage": 3, "offload_optimizer": "cpu", "offload_gradients": "cpu", "offload_parameters": "cpu", "accumulation": 2}),
    (1, {"stage": 3, "offload_optimizer": "none", "offload_gradients": "cpu", "offload_parameters": "cpu"}),
    (1, {"stage": 0, "offload_optimizer": "none", "accumulation": 2}),
    (1, {"stage": 2, "offload_optimizer": "cpu", "offload_gradients": "cpu"}),
    (2, {"stage": 3, "offload_optimizer": "cpu", "offload_gradients": "none", "offload_parameters": "cpu"}),
    (2, {"stage": 3, "offload_optimizer": "none", "offload_gradients": "none", "prefetch_units": 0}),
    (2, {"stage": 2, "offload_optimizer": "cpu", "offload_gradients": "none"}),
    (2, {"stage": 1, "offload_optimizer": "none", "accumulation": 2}),
    (0, "*an_order_of_units_that_changes*"),  # on two ranks
]

NOT_NEEDED = [  # functions that hold one wait whose absence changes nothing, and why that is right
    ("CudaDevice::~CudaDevice", "all have waited for the lanes before; a lane's stream ends after its work in any case"),
    ("Engine::~Engine", "the last step and the state's hash have waited for the lanes; needed when a step throws"),
    ("Updater::refresh", "those who start or resume an engine publish its parameters next, on the device, and wait for the lanes"),
    ("run_steps|StepRunner::run", "Engine::step waits for the lanes, after the losses were sent to the host"),
    ("run_steps|~LanesDrain", "the step has waited for the lanes; needed when it throws"),
]
UNORDERED = "no event or wait orders the two"

Place = collections.namedtuple("Place", "address kind name waits runs in_steps")  # runs: [(index, address)]


class Waits(job_test.JobTest):
    engine_tests = None

    def run_with(self, index, steps=3, **environment):
        """(status, stderr, what the run computed) of RUNS[index] under the emulation's variables."""
        ranks, options = RUNS[index]
        if ranks == 0:
            result = subprocess.run([*headrace_job.MPIRUN, "-n", "2", str(self.engine_tests), f"--gtest_filter={options}"],
                                    capture_output=True, text=True, timeout=300,
                                    env={**os.environ, **environment, "HEADRACE_MODULE_PATH": str(self.program.parent)})
            return result.returncode, result.stderr, None
        outcome = self.train(ranks, name=f"run-{index}", environment=environment,
                             **{"swap_path": None, "swap_block": "48KiB", "bucket": "48KiB", "timeout": 60, "steps": steps, **options})
        computed = outcome.summary and (outcome.state_hash, [(step["loss"], step["grad_norm"]) for step in outcome.steps])
        return outcome.status, outcome.stderr, computed

    def waits_of(self, index, steps):
        """{(address, kind): waits} of one run."""
        listed = self.folder / f"waits-{index}-{steps}"
        status, text, computed = self.run_with(index, steps, HEADRACE_EMULATED_WAITS=str(listed))
        self.assertEqual(0, status, text)
        self.computed[index, steps] = computed
        waits = collections.Counter()
        for line in listed.read_text().splitlines():
            address, kind, count = line.split()
            waits[address, kind] += int(count)
        return waits

    def name_of(self, index, address):
        program = self.engine_tests if RUNS[index][0] == 0 else self.program
        if "+" in address:
            program, address = self.program.parent / address.split("+")[0], address.split("+")[1]
        text = subprocess.run(["addr2line", "-Cfe", str(program), address], capture_output=True, text=True, check=True).stdout
        function, where = re.sub(r"headrace::|\(anonymous namespace\)::", "", text).splitlines()[:2]
        line = re.sub(r" \(discriminator.*", "", pathlib.Path(where).name)
        return f"{function.split('(')[0]} at {line if '?' not in line else program.name}"

    def places(self):
        """Every address that waits. The engine's tests are one more run of places that the program passes too."""
        found = {}
        for index, (ranks, _) in enumerate(RUNS):
            waits = self.waits_of(index, 3)
            more = self.waits_of(index, 4) if ranks > 0 else None  # what does not grow with the steps is outside of them
            passed = collections.defaultdict(list)
            for key, place in found.items():
                passed[place.name].append(key)
            for (address, kind), count in waits.items():
                name = self.name_of(index, address)
                if ranks == 0 and name in passed:
                    for key in passed[name]:
                        found[key].runs.append((index, address))
                    continue
                key = (ranks == 0, address)
                known = found.setdefault(key, Place(address, kind, name, 0, [], False))
                in_steps = known.in_steps or (more[address, kind] > count if more else "Communicator" not in name)
                found[key] = known._replace(waits=known.waits + count, runs=known.runs + [(index, address)], in_steps=in_steps)
        return sorted(found.values(), key=lambda place: (place.name, place.address))

    def shown_without(self, place):
        """What shows that the waits of a place do nothing: what the clocks say of any run, or how a run went wrong, or None."""
        held_back = {"HEADRACE_EMULATED_DELAYS": "1"} if place.kind == "synchronize" else {}
        wrong = None
        for index, address in place.runs:
            status, text, computed = self.run_with(index, HEADRACE_EMULATED_DROPPED_WAIT=address, **held_back)
            if status == VIOLATION and UNORDERED in text:
                return re.search(rf"cuda_emulation: (.*{UNORDERED})", text).group(1)
            if not held_back or wrong:
                continue
            if status != 0:
                wrong = f"the run ended with status {status}"
            elif RUNS[index][0] > 0 and computed != self.computed[index, 3]:
                wrong = f"computed {computed}, not {self.computed[index, 3]}"
        return wrong and f"wrong result, not reported: {wrong[:300]}"

    def verdict(self, place):
        """(whether it is needed or proven not to be, what shows it)."""
        if shown := self.shown_without(place):
            return True, shown
        for entry in self.proofs:
            if re.search(entry[0], place.name):
                self.proofs.remove(entry)
                return True, f"nothing: {entry[1]}"
        return False, "nothing"

    def test_every_wait_that_is_left_out_shows(self):
        self.computed, self.proofs = {}, list(NOT_NEEDED)
        unneeded, needed = [], 0
        places = self.places()
        gone = [entry[0] for entry in NOT_NEEDED if not any(re.search(entry[0], place.name) for place in places)]
        for place in places:
            if not place.in_steps and re.search("Communicator|libheadrace_mpi", place.name):
                print(f"{place.name} ({place.kind}, {place.address}): {place.waits} waits; not in steps", flush=True)
                continue
            shown, what = self.verdict(place)
            where = "" if place.in_steps else " outside of steps"
            print(f"{place.name} ({place.kind}, {place.address}): {place.waits} waits{where}; without them: {what}", flush=True)
            needed += shown
            if not shown:
                unneeded.append(f"{place.name} ({place.kind}, {place.address})")
        self.assertEqual([], unneeded)
        self.assertEqual([], gone, "no such place waits any more")
        self.assertGreater(needed, 15)


if __name__ == "__main__":
    Waits.engine_tests = pathlib.Path(sys.argv.pop(2)).resolve()
    job_test.main()
