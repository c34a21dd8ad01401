#include "src/train/metrics.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "headrace/errors.h"
#include "headrace/train.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity: null says that a value is not finite.
Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json tags(const TagBytes& bytes) {
  Json object = Json::object();
  for (std::size_t t = 0; t < memory_tag_count; ++t)
    if (bytes.bytes[t] > 0) object[std::string(name_of(static_cast<MemoryTag>(t)))] = bytes.bytes[t];
  return object;
}

TagBytes sum(TagBytes a, const TagBytes& b) {
  for (std::size_t t = 0; t < memory_tag_count; ++t) a.bytes[t] += b.bytes[t];
  return a;
}

// What is there already may be somebody's data, and is refused unless it is metrics. A last line without its
// end, of a run that was killed, is dropped.
void take_over(const std::string& path) {
  if (std::error_code absent; !std::filesystem::is_regular_file(path, absent))
    return;  // a device may be endless
  std::ifstream present(path, std::ios::binary);
  std::string line;
  std::uint64_t whole_bytes = 0;
  while (std::getline(present, line)) {
    if (whole_bytes == 0 && !line.starts_with("{\"event\":"))
      throw UsageError(fmt::format(
          "--metrics: {} exists and does not hold metrics. Give another name, or remove it.", path));
    if (present.eof()) return std::filesystem::resize_file(path, whole_bytes);
    whole_bytes += line.size() + 1;
  }
}

}  // namespace

RankSample difference(const EngineCounters& now, const EngineCounters& before) {
  RankSample sample;
  sample.upload_stall_seconds = now.upload_stall_seconds - before.upload_stall_seconds;
  sample.download_stall_seconds = now.download_stall_seconds - before.download_stall_seconds;
  sample.nvme_stall_seconds = now.nvme_stall_seconds - before.nvme_stall_seconds;
  sample.communicate_stall_seconds = now.communicate_stall_seconds - before.communicate_stall_seconds;
  sample.optimizer_seconds = now.optimizer_seconds - before.optimizer_seconds;
  sample.nvme_read_bytes = now.io.read_bytes - before.io.read_bytes;
  sample.nvme_written_bytes = now.io.written_bytes - before.io.written_bytes;
  sample.all_gather_bytes = now.traffic.all_gather_bytes - before.traffic.all_gather_bytes;
  sample.reduce_scatter_bytes = now.traffic.reduce_scatter_bytes - before.traffic.reduce_scatter_bytes;
  sample.all_reduce_bytes = now.traffic.all_reduce_bytes - before.traffic.all_reduce_bytes;
  return sample;
}

RankSample combine_ranks(const RankSample& own, Communicator& communicator, Device& device) {
  RankSample all;
  for (const RankSample& rank : gather_from_ranks(own, communicator, device, "step report")) {
    all.loss += rank.loss / communicator.size();
    all.upload_stall_seconds = std::max(all.upload_stall_seconds, rank.upload_stall_seconds);
    all.download_stall_seconds = std::max(all.download_stall_seconds, rank.download_stall_seconds);
    all.nvme_stall_seconds = std::max(all.nvme_stall_seconds, rank.nvme_stall_seconds);
    all.communicate_stall_seconds = std::max(all.communicate_stall_seconds, rank.communicate_stall_seconds);
    all.optimizer_seconds = std::max(all.optimizer_seconds, rank.optimizer_seconds);
    all.nvme_read_bytes += rank.nvme_read_bytes;
    all.nvme_written_bytes += rank.nvme_written_bytes;
    all.all_gather_bytes += rank.all_gather_bytes;
    all.reduce_scatter_bytes += rank.reduce_scatter_bytes;
    all.all_reduce_bytes += rank.all_reduce_bytes;
    all.device_peak_bytes = std::max(all.device_peak_bytes, rank.device_peak_bytes);
    all.host_peak_bytes = std::max(all.host_peak_bytes, rank.host_peak_bytes);
    all.stop_requested += rank.stop_requested;
    all.terminated += rank.terminated;
  }
  return all;
}

void largest_of_ranks(std::span<Bytes> values, Communicator& communicator, Device& device) {
  for (Bytes& value : values)
    for (const Bytes rank : gather_from_ranks(value, communicator, device, "run summary"))
      value = std::max(value, rank);
}

MetricsFile::MetricsFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  std::error_code absent;
  // A pipe would stop the run until somebody reads it.
  if (const auto kind = std::filesystem::status(path, absent).type();
      kind == std::filesystem::file_type::fifo || kind == std::filesystem::file_type::socket)
    throw UsageError(
        fmt::format("--metrics: {} is a pipe; give a file, and follow it with `tail -f`.", path));
  take_over(path);
  file_.open(path, std::ios::app);
  if (!file_)
    throw UsageError(
        fmt::format("--metrics: the file {} cannot be written: {}.", path, std::strerror(errno)));
}

void MetricsFile::start_over() {
  if (!path_.empty() && std::filesystem::is_regular_file(path_)) std::filesystem::resize_file(path_, 0);
}

void MetricsFile::line(const std::string& text) {
  if (path_.empty()) return;
  file_ << text << '\n';
  file_.flush();
  if (!file_)
    throw Error(fmt::format("writing the metrics file {} failed: {}.", path_, std::strerror(errno)));
}

void MetricsFile::write(const StepMetrics& m) {
  const RankSample& all = m.ranks;
  Json json = {{"event", "step"},
               {"step", m.step},
               {"loss", finite(all.loss)},
               {"grad_norm", finite(m.gradient_norm)},
               {"learning_rate", m.learning_rate},
               {"step_seconds", m.step_seconds},
               {"tokens_per_second", m.tokens_per_second},
               {"skipped", m.skipped},
               {"loss_scale", m.loss_scale},
               {"device_peak_bytes", all.device_peak_bytes},
               {"host_peak_bytes", all.host_peak_bytes},
               {"nvme_read_bytes", all.nvme_read_bytes},
               {"nvme_written_bytes", all.nvme_written_bytes},
               {"all_gather_bytes", all.all_gather_bytes},
               {"reduce_scatter_bytes", all.reduce_scatter_bytes},
               {"all_reduce_bytes", all.all_reduce_bytes},
               {"stall_seconds",
                {{"upload", all.upload_stall_seconds},
                 {"download", all.download_stall_seconds},
                 {"nvme", all.nvme_stall_seconds},
                 {"communicate", all.communicate_stall_seconds},
                 {"optimizer", all.optimizer_seconds}}}};
  if (m.eval_loss) json["eval_loss"] = finite(*m.eval_loss);
  line(json.dump());
}

void MetricsFile::write(const RunSummary& s) {
  line(Json{
      {"event", "summary"},
      {"steps", s.steps},
      {"state_hash", format_hash(s.state_hash)},
      {"parameters", s.parameters},
      {"peak_rss_bytes", s.peak_rss_bytes},
      {"planned", tags(sum(s.planned.device, s.planned.host))},
      {"peak", tags(sum(s.device_peak, s.host_peak))},
      {"planned_tiers",
       {{"device", tags(s.planned.device)}, {"host", tags(s.planned.host)}, {"nvme", tags(s.planned.nvme)}}},
      {"peak_tiers", {{"device", tags(s.device_peak)}, {"host", tags(s.host_peak)}}}}
           .dump());
}

std::string format_loss(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "not finite";
}

std::string format_hash(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

Bytes peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string text; std::getline(status, text);)
    if (text.starts_with("VmHWM:")) return std::stoull(text.substr(6)) * 1024;
  return 0;
}

}  // namespace headrace
