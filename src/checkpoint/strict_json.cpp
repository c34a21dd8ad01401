#include "src/checkpoint/strict_json.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <vector>

#include "headrace/errors.h"
#include "headrace/owned.h"

namespace headrace {
namespace {

using Json = nlohmann::json;

constexpr std::size_t largest_file_bytes = std::size_t{64} << 20;
constexpr int deepest = 64;

std::string read_text(const std::string& path) {
  const Fd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a pipe would hold open(2) up
  if (!fd) throw IoError("open", path, 0, 0, errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw IoError("fstat", path, 0, 0, errno);
  if (!S_ISREG(status.st_mode))
    throw CorruptData(fmt::format("{} is not a regular file. Give a file.", path));
  if (static_cast<std::size_t>(status.st_size) > largest_file_bytes)
    throw CorruptData(fmt::format("{} has {} bytes: no such file is longer than {}. Fetch or write it again.",
                                  path, status.st_size, largest_file_bytes));
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::pread(fd.get(), text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError("read", path, done, text.size() - done, errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace

Json read_json_object(const std::string& path) {
  const auto refuse = [&path](const std::string& why) {
    throw CorruptData(fmt::format("{}: {}. Fetch or write it again.", path, why));
  };
  std::vector<std::set<std::string>> keys;  // of the objects around the event
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > deepest) refuse(fmt::format("it is nested deeper than {} levels", deepest));
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key)
      if (const auto& key = parsed.get_ref<const std::string&>(); !keys.back().insert(key).second)
        refuse(fmt::format("\"{}\" stands twice", shortened(key)));
    return true;
  };
  try {
    const std::string text = read_text(path);
    if (text.find('\0') != std::string::npos)
      refuse("it holds a zero byte, which is not JSON");  // the parser stops there
    Json json = Json::parse(text, check);
    if (!json.is_object()) refuse("it is not a JSON object");
    return json;
  } catch (const Json::parse_error& error) {
    refuse(fmt::format("it is not JSON from byte {} on", error.byte));
  }
  return {};
}

}  // namespace headrace
