#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "headrace/doctor.h"

namespace headrace {
namespace {

constexpr std::size_t columns = 96;

std::string_view name_of(FindingStatus status) {
  switch (status) {
    case FindingStatus::ok:
      return "ok";
    case FindingStatus::note:
      return "note";
    case FindingStatus::limit:
      return "limit";
  }
  return "";
}

// `text` behind `head`, broken between words, the lines after the first one indented to where it began.
std::string wrapped(const std::string& head, const std::string& text) {
  std::string out = head;
  std::size_t column = head.size();
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool first = column == head.size();
    if (!first && column + 1 + word.size() > columns) {
      out.append(1, '\n').append(head.size(), ' ');
      column = head.size();
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + '\n';
}

std::string summary(const DoctorReport& report) {
  const auto count = [&](FindingStatus status) {
    return std::count_if(report.findings.begin(), report.findings.end(),
                         [&](const Finding& finding) { return finding.status == status; });
  };
  const auto limits = count(FindingStatus::limit), notes = count(FindingStatus::note);
  return fmt::format("\n{} limit{}, {} note{}\n", limits, limits == 1 ? "" : "s", notes,
                     notes == 1 ? "" : "s");
}

}  // namespace

std::string to_text(const DoctorReport& report) {
  std::size_t width = 0;
  for (const Finding& finding : report.findings) width = std::max(width, finding.what.size());
  std::string text;
  const std::string* topic = nullptr;
  for (const Finding& finding : report.findings) {
    if (topic == nullptr || *topic != finding.topic)
      text += fmt::format("{}{}\n", topic == nullptr ? "" : "\n", finding.topic);
    topic = &finding.topic;
    text += wrapped(fmt::format("  {:<5}  {:<{}}  ", name_of(finding.status), finding.what, width),
                    finding.value);
    if (!finding.advice.empty()) text += wrapped("            -> ", finding.advice);
  }
  return text + summary(report);
}

std::string to_json(const DoctorReport& report) {
  using nlohmann::ordered_json;
  ordered_json findings = ordered_json::array();
  for (const Finding& finding : report.findings)
    findings.push_back({{"topic", finding.topic},
                        {"what", finding.what},
                        {"value", finding.value},
                        {"status", name_of(finding.status)},
                        {"advice", finding.advice}});
  const ordered_json object = {{"machine", report.machine}, {"findings", findings}};
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace);  // a path may be any bytes
}

}  // namespace headrace
