"""Each wait for an event in the program is needed: without it, the emulation's vector clocks report what it ordered.

The emulation names the places that wait (by the call's offset in the program) and lets all waits of one of them do nothing.
Prints the list: place, how many waits in the runs, and what was reported without it.
"""
import os
import re
import subprocess

import job_test

VIOLATION = 86
# Together they pass every place that waits; the quick ones first.
RUNS = [  # ranks, options
    (1, {"stage": 3, "offload_optimizer": "cpu", "offload_gradients": "cpu", "offload_parameters": "cpu", "accumulation": 2}),
    (1, {"stage": 3, "offload_optimizer": "none", "offload_gradients": "cpu", "offload_parameters": "cpu"}),
    (1, {"stage": 0, "offload_optimizer": "none", "accumulation": 2}),
    (1, {"stage": 2, "offload_optimizer": "cpu", "offload_gradients": "cpu"}),
    (2, {"stage": 3, "offload_optimizer": "cpu", "offload_gradients": "none", "offload_parameters": "cpu", "eval_every": 1}),
    (2, {"stage": 3, "offload_optimizer": "none", "offload_gradients": "none", "prefetch_units": 0}),
    (2, {"stage": 2, "offload_optimizer": "cpu", "offload_gradients": "none"}),
    (2, {"stage": 1, "offload_optimizer": "none", "accumulation": 2}),
]


class EventWaits(job_test.JobTest):
    def run_with(self, index, **environment):
        """Outcome of RUNS[index] under the emulation's variables."""
        ranks, options = RUNS[index]
        if "eval_every" in options:
            options = {**options, "eval_data": self.corpus}
        return self.train(ranks, name=f"run-{index}", environment=environment,
                          **{"swap_path": None, "swap_block": "48KiB", "bucket": "48KiB", "timeout": 60, **options})

    def places(self):
        """{place: ([runs that pass it], waits in all of them)}."""
        found = {}
        for index in range(len(RUNS)):
            listed = self.folder / f"waits-{index}"
            self.assert_status(0, self.run_with(index, HEADRACE_EMULATED_WAITS=str(listed)))
            for line in listed.read_text().splitlines():
                place, count = line.split()
                runs, waits = found.setdefault(place, (set(), 0))
                found[place] = (runs | {index}, waits + int(count))
        return found

    def name_of(self, place):
        text = subprocess.run(["addr2line", "-Cfe", str(self.program), place], capture_output=True, text=True, check=True).stdout
        function, where = text.splitlines()[:2]
        where = re.sub(r" \(discriminator.*", "", os.path.relpath(where.split("../")[-1]) if "../" in where else where)
        return f"{function.split('(')[0]} at {os.path.basename(where)}"

    def test_the_clocks_report_every_wait_that_is_left_out(self):
        needed, unneeded = [], []
        for place, (runs, waits) in sorted(self.places().items(), key=lambda item: self.name_of(item[0])):
            report = None
            for index in sorted(runs):
                outcome = self.run_with(index, HEADRACE_EMULATED_DROPPED_WAIT=place)
                if outcome.status == VIOLATION:
                    report = re.search(r"cuda_emulation: (.*)", outcome.stderr).group(1)
                    break
            line = f"{self.name_of(place)}: {waits} waits; without them: {report}"
            print(line, flush=True)
            (needed if report else unneeded).append(line)
        self.assertGreater(len(needed), 15)
        self.assertEqual([], unneeded)


if __name__ == "__main__":
    job_test.main()
