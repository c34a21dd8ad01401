"""What `headrace plan` says is what a run does: memory peaks per tag and tier, bytes on the wire, bytes to NVMe.

Peaks are high-water marks of the arenas and pools, bytes are the communicator's and the I/O engine's counters.
"""
import json
import subprocess

import headrace_job
import job_test

TOLERANCE = 0.05
PLACEMENTS = [  # stage, optimizer, gradients, parameters
    (0, "none", "none", "none"), (0, "cpu", "none", "none"), (0, "nvme", "none", "none"),
    (1, "none", "none", "none"), (1, "cpu", "none", "none"), (1, "nvme", "none", "none"),
    (2, "none", "none", "none"), (2, "cpu", "cpu", "none"), (2, "nvme", "cpu", "none"),
    (3, "none", "none", "none"), (3, "cpu", "none", "cpu"), (3, "nvme", "cpu", "cpu"), (3, "none", "cpu", "cpu"),
    (2, "cpu", "nvme", "none"), (3, "nvme", "nvme", "nvme"), (3, "cpu", "none", "nvme"), (3, "none", "nvme", "nvme"),
]


class Plan(job_test.JobTest):
    def placement(self, stage, optimizer, gradients, parameters, **more):
        options = {**headrace_job.TINY_MODEL, "stage": stage, "offload_optimizer": optimizer, "offload_gradients": gradients,
                   "offload_parameters": parameters, "swap_block": "96KiB", "bucket": "64KiB", **more}
        if "nvme" in (optimizer, gradients, parameters):
            (self.folder / "swap").mkdir(exist_ok=True)
            options["swap_path"] = self.folder / "swap"
        return options

    def plan(self, ranks, options):
        text = subprocess.run([str(self.program), "plan", "--device", headrace_job.DEVICE, *headrace_job.flags(options), "--world-size", str(ranks), "--json"],
                              capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
        return json.loads(text)

    def run_steps(self, ranks, options, name, steps=3):
        outcome = headrace_job.train(self.program, {**options, "data": self.corpus, "steps": steps, "overwrite_swap": True},
                                     self.folder / name, ranks)
        self.assert_status(0, outcome)
        return outcome

    def check(self, ranks, placement, **more):
        if ranks > headrace_job.most_ranks():
            self.skipTest(f"{ranks} ranks need as many devices")
        options = self.placement(*placement, **more)
        plan = self.plan(ranks, options)
        outcome = self.run_steps(ranks, options, f"{ranks}-{placement}-{sorted(more.items())}".replace("'", ""))
        for tier in ("device", "host"):
            planned, peak = plan["tiers"][tier], outcome.summary["peak_tiers"][tier]
            self.assertEqual(set(planned), set(peak), (ranks, placement, tier))
            for tag, size in planned.items():
                self.assertLessEqual(abs(peak[tag] - size), TOLERANCE * size, (ranks, placement, tier, tag, size, peak[tag]))
        last = outcome.steps[-1]
        self.assertEqual(plan["step_bytes"]["reduce_scatter"], last["reduce_scatter_bytes"], (ranks, placement))
        self.assertEqual(plan["step_bytes"]["all_gather"], last["all_gather_bytes"], (ranks, placement))
        if "nvme" in placement:
            # What is read ahead for the next step is counted where it ends, in this step or the next.
            for direction in ("written",) if placement[3] == "nvme" else ("read", "written"):
                self.assertEqual(plan["step_bytes"][f"nvme_{direction}"], last[f"nvme_{direction}_bytes"], (ranks, placement, direction))
        return plan, outcome

    def test_peaks_and_bytes_of_every_stage_and_tier_are_as_planned(self):
        for ranks in (n for n in (1, 3) if n <= headrace_job.most_ranks()):
            for placement in PLACEMENTS:
                self.check(ranks, placement)

    def test_accumulation_and_recomputation_are_planned(self):
        self.check(2, (2, "cpu", "cpu", "none"), accumulation=3)
        self.check(2, (3, "nvme", "nvme", "nvme"), accumulation=3)
        self.check(2, (3, "none", "none", "none"), accumulation=2, recompute=True)

    def test_a_host_limit_that_only_smaller_regions_of_the_update_fit_is_kept_and_gives_the_same_states(self):
        for placement in ((1, "cpu", "none", "none"), (2, "cpu", "cpu", "none")):
            plan, free = self.check(2, placement)
            needed = plan["total"]["host"]
            limit = needed - 4096
            limited, outcome = self.check(2, placement, host_memory=limit)
            self.assertTrue(limited["fits"])
            self.assertLessEqual(limited["total"]["host"], limit)
            self.assertLess(outcome.summary["peak_tiers"]["host"]["staging"], free.summary["peak_tiers"]["host"]["staging"])
            self.assertEqual(free.state_hash, outcome.state_hash)

    def test_peaks_and_bytes_of_llama_are_as_planned(self):
        for recompute in (None, True):
            for placement in ((0, "none", "none", "none"), (2, "cpu", "cpu", "none"), (3, "nvme", "nvme", "nvme")):
                self.check(1, placement, model="llama-nano", recompute=recompute)
        self.check(2, (3, "cpu", "none", "cpu"), model="llama-nano", accumulation=2)

    def test_bytes_on_the_wire_are_the_formula_of_the_paper(self):
        # (n + 1) P (N - 1) / N elements a rank at stages 0 to 2; N ranks; bf16.
        for stage in (0, 1, 2):
            for ranks, accumulation in ((2, 1), (4, 1), (3, 2)):
                if ranks > headrace_job.most_ranks():
                    continue
                options = self.placement(stage, "none", "none", "none", accumulation=accumulation)
                outcome = self.run_steps(ranks, options, f"wire-{stage}-{ranks}-{accumulation}")
                sent = outcome.steps[-1]["all_gather_bytes"] + outcome.steps[-1]["reduce_scatter_bytes"]
                parameters = outcome.summary["parameters"]
                self.assertEqual((accumulation + 1) * parameters * (ranks - 1) * 2, sent, (stage, ranks, accumulation))

    def test_nvme_traffic_is_twelve_bytes_a_parameter_each_way(self):
        _, outcome = self.check(1, (3, "nvme", "cpu", "cpu"))
        for direction in ("nvme_read_bytes", "nvme_written_bytes"):
            a_parameter = outcome.steps[-1][direction] / outcome.summary["parameters"]
            self.assertLess(abs(a_parameter - 12) / 12, 0.02, direction)


if __name__ == "__main__":
    job_test.main()
