#include "headrace/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <mutex>
#include <set>

namespace headrace {
namespace {

std::atomic<LogLevel> level{LogLevel::normal};
std::atomic<int> rank{0};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created =
        std::make_shared<spdlog::logger>("headrace", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    created->set_pattern("%v");
    created->set_level(spdlog::level::trace);
    created->flush_on(spdlog::level::trace);
    return created;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel value) {
  level = value;
}
void set_log_rank(int value) {
  rank = value;
}

void log_info(std::string_view message) {
  if (level.load() != LogLevel::quiet && rank.load() == 0) logger().info("{}", message);
}

void log_verbose(std::string_view message) {
  if (level.load() == LogLevel::verbose && rank.load() == 0) logger().debug("{}", message);
}

void log_warning(std::string_view message) {
  if (rank.load() == 0)
    logger().warn("headrace: warning: {}", message);
  else
    logger().warn("headrace: warning (rank {}): {}", rank.load(), message);
}

bool warn_once(std::string_view key, std::string_view message) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> seen;
  {
    const std::lock_guard lock(mutex);
    if (!seen.emplace(key).second) return false;
  }
  log_warning(message);
  return true;
}

}  // namespace headrace
