"""Each field case has tests that exist, and the checker of field_cases.py sees each way in which the table can be wrong."""
import pathlib
import unittest

import field_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "tests/FIELD-CASES.md").read_text()


class FieldCases(unittest.TestCase):
    def test_every_case_names_tests_that_exist(self):
        self.assertEqual([], field_cases.errors(TEXT, field_cases.existing_tests(ROOT)))

    def test_a_test_that_is_gone_is_noticed(self):
        existing = field_cases.existing_tests(ROOT)
        name = "UpdatePlan.never_holds_more_state_buffers_than_it_has_and_uses_them_all"
        self.assertIn(f"A8: there is no test {name}", field_cases.errors(TEXT, existing - {name}))

    def test_a_python_test_that_no_build_file_runs_does_not_exist(self):
        self.assertNotIn("field_cases.test_nothing", field_cases.existing_tests(ROOT))
        self.assertIn("field_cases_test.test_a_test_that_is_gone_is_noticed", field_cases.existing_tests(ROOT))

    def test_missing_double_and_empty_rows_are_noticed(self):
        text = "| A1 | x | `S.t` |\n| A2 | x | |\n| A3 | x | does not arise: no such thing |\n| A3 | x | `S.t` |\n"
        problems = field_cases.errors(text, {"S.t"})
        self.assertIn("A2: names no test and no reason", problems)
        self.assertIn("A3 stands there twice", problems)
        self.assertIn("M1 is missing", problems)
        self.assertNotIn("A1 is missing", problems)


if __name__ == "__main__":
    unittest.main()
