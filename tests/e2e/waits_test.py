"""Each wait for an event in a step is needed: without it, the emulation's vector clocks report what it ordered.

The emulation names the places that wait (by the call's offset in the program) and lets all waits of one of them do nothing.
Prints the list: place, how many waits in the runs, and what was reported without it. Waits outside of steps (a communicator's
start and end) order plain host memory, which the emulation does not watch: they are listed too.

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

Place = collections.namedtuple("Place", "name addresses waits in_steps")  # addresses: {run: address}


class EventWaits(job_test.JobTest):
    engine_tests = None

    def run_with(self, index, steps=3, **environment):
        """(status, stderr) of RUNS[index] under the emulation's variables."""
        ranks, options = RUNS[index]
        if ranks == 0:
            result = subprocess.run([*headrace_job.MPIRUN, "-n", "2", str(self.engine_tests), f"--gtest_filter={options}"],
                                    capture_output=True, text=True, timeout=300,
                                    env={**os.environ, **environment, "HEADRACE_MODULE_PATH": str(self.program.parent)})
            return result.returncode, result.stderr
        outcome = self.train(ranks, name=f"run-{index}", environment=environment,
                             **{"swap_path": None, "swap_block": "48KiB", "bucket": "48KiB", "timeout": 60, "steps": steps, **options})
        return outcome.status, outcome.stderr

    def waits_of(self, index, steps):
        """{address: waits} of one run."""
        listed = self.folder / f"waits-{index}-{steps}"
        status, text = self.run_with(index, steps, HEADRACE_EMULATED_WAITS=str(listed))
        self.assertEqual(0, status, text)
        waits = collections.Counter()
        for line in listed.read_text().splitlines():
            address, count = line.split()
            waits[address] += int(count)
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
        found = {}
        for index, (ranks, _) in enumerate(RUNS):
            waits = self.waits_of(index, 3)
            more = self.waits_of(index, 4) if ranks > 1 else None  # what does not grow with the steps is outside of them
            for address, count in waits.items():
                name = self.name_of(index, address)
                known = found.setdefault(name, Place(name, {}, 0, False))
                known.addresses[index] = address
                in_steps = known.in_steps or (more[address] > count if more else "Communicator" not in name)
                found[name] = known._replace(waits=known.waits + count, in_steps=in_steps)
        return sorted(found.values())

    def report_without(self, place):
        """What the emulation says when the waits of a place do nothing, or None."""
        for index, address in sorted(place.addresses.items()):
            status, text = self.run_with(index, HEADRACE_EMULATED_DROPPED_WAIT=address)
            if status == VIOLATION:
                return re.search(r"cuda_emulation: (.*)", text).group(1)
        return None

    def test_the_clocks_report_every_wait_of_a_step_that_is_left_out(self):
        unneeded, needed = [], 0
        for place in self.places():
            report = self.report_without(place) if place.in_steps else "not in steps"
            print(f"{place.name}: {place.waits} waits; without them: {report}", flush=True)
            if not place.in_steps:
                self.assertRegex(place.name, "Communicator|libheadrace_mpi")
            elif report is None:
                unneeded.append(place.name)
            else:
                needed += 1
        self.assertEqual([], unneeded)
        self.assertGreater(needed, 15)


if __name__ == "__main__":
    EventWaits.engine_tests = pathlib.Path(sys.argv.pop(2)).resolve()
    job_test.main()
