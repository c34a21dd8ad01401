#include <gtest/gtest.h>

#include <sstream>

#include "headrace/doctor.h"

namespace headrace {
namespace {

DoctorReport report_of_two_topics() {
  DoctorReport report;
  report.machine = {{"cpus", 2}};
  report.findings = {{"processor", "model", "Some CPU"},
                     {"processor", "cgroup quota", "1.00 CPUs of time", FindingStatus::limit,
                      "The kernel stops this process for the rest of each period, and a sentence that is "
                      "long enough to need a "
                      "second line follows here."},
                     {"memory", "available", "unknown", FindingStatus::note, "Look elsewhere."}};
  return report;
}

TEST(DoctorText, is_a_table_by_topic_with_advice_below_and_a_count) {
  EXPECT_EQ(
      to_text(report_of_two_topics()),
      "processor\n"
      "  ok     model         Some CPU\n"
      "  limit  cgroup quota  1.00 CPUs of time\n"
      "            -> The kernel stops this process for the rest of each period, and a sentence that is\n"
      "               long enough to need a second line follows here.\n"
      "\n"
      "memory\n"
      "  note   available     unknown\n"
      "            -> Look elsewhere.\n"
      "\n"
      "1 limit, 1 note\n");
}

TEST(DoctorText, of_this_machine_keeps_to_96_columns) {
  std::istringstream lines(to_text(examine_machine({})));
  int count = 0;
  for (std::string text; std::getline(lines, text); ++count) EXPECT_LE(text.size(), 96u) << text;
  EXPECT_GT(count, 20);
}

TEST(DoctorJson, has_the_machine_and_every_finding_and_survives_any_bytes) {
  DoctorReport report = report_of_two_topics();
  report.findings.push_back({"swap path /\xff", "folder", "\xff", FindingStatus::limit, "x"});
  const auto object = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(object["machine"]["cpus"], 2);
  ASSERT_EQ(object["findings"].size(), 4u);
  EXPECT_EQ(object["findings"][1]["status"], "limit");
  EXPECT_EQ(object["findings"][0]["advice"], "");
}

}  // namespace
}  // namespace headrace
