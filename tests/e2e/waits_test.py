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

NOT_NEEDED = {  # waits whose absence changes nothing, and why that is right
}
UNORDERED = "no event or wait orders the two"

Place = collections.namedtuple("Place", "address kind name waits runs in_steps")


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
        function, where = text.splitlines()[:2]
        line = re.sub(r" \(discriminator.*", "", pathlib.Path(where).name)
        return f"{function.split('(')[0].removeprefix('headrace::')} at {line if '?' not in line else program.name}"

    def places(self):
        """Every address that waits; of the engine's tests those of places that the program does not pass."""
        found = {}
        for index, (ranks, _) in enumerate(RUNS):
            waits = self.waits_of(index, 3)
            more = self.waits_of(index, 4) if ranks > 0 else None  # what does not grow with the steps is outside of them
            passed = {place.name for place in found.values()}
            for (address, kind), count in waits.items():
                name = self.name_of(index, address)
                if ranks == 0 and name in passed:
                    continue
                key = (ranks == 0, address)
                known = found.setdefault(key, Place(address, kind, name, 0, [], False))
                in_steps = known.in_steps or (more[address, kind] > count if more else "Communicator" not in name)
                found[key] = known._replace(waits=known.waits + count, runs=known.runs + [index], in_steps=in_steps)
        return sorted(found.values(), key=lambda place: (place.name, place.address))

    def report_without(self, place):
        """What the clocks say when the waits of a place do nothing, or None."""
        for index in place.runs:
            status, text, _ = self.run_with(index, HEADRACE_EMULATED_DROPPED_WAIT=place.address)
            if status == VIOLATION and UNORDERED in text:
                return re.search(rf"cuda_emulation: (.*{UNORDERED})", text).group(1)
        return None

    def wrong_result_without(self, place):
        """How a run goes wrong when the waits of a place do nothing and stream work is held back, or None."""
        for index in place.runs:
            status, text, computed = self.run_with(index, HEADRACE_EMULATED_DROPPED_WAIT=place.address, HEADRACE_EMULATED_DELAYS="1")
            if status != 0:
                return f"status {status}: {text.strip().splitlines()[-1] if text.strip() else ''}"
            if RUNS[index][0] > 0 and computed != self.computed[index, 3]:
                return f"computed {computed}, not {self.computed[index, 3]}"[:300]
        return None

    def verdict(self, place):
        """(whether it is needed, what shows it)."""
        if report := self.report_without(place):
            return True, report
        if place.kind == "synchronize" and (wrong := self.wrong_result_without(place)):
            return True, f"wrong result, not reported: {wrong}"
        if place.name in NOT_NEEDED:
            return True, f"nothing: {NOT_NEEDED[place.name]}"
        return False, "nothing"

    def test_every_wait_that_is_left_out_shows(self):
        self.computed = {}
        unneeded, needed = [], 0
        for place in self.places():
            if place.kind != "synchronize" and not place.in_steps:
                print(f"{place.name} ({place.kind}, {place.address}): {place.waits} waits; not in steps", flush=True)
                self.assertRegex(place.name, "Communicator|libheadrace_mpi")
                continue
            shown, what = self.verdict(place)
            where = "" if place.in_steps else " outside of steps"
            print(f"{place.name} ({place.kind}, {place.address}): {place.waits} waits{where}; without them: {what}", flush=True)
            needed += shown
            if not shown:
                unneeded.append(f"{place.name} ({place.kind}, {place.address})")
        self.assertEqual([], unneeded)
        self.assertGreater(needed, 15)


if __name__ == "__main__":
    Waits.engine_tests = pathlib.Path(sys.argv.pop(2)).resolve()
    job_test.main()
