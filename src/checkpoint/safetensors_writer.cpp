#include "src/checkpoint/safetensors_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "headrace/errors.h"
#include "headrace/files.h"

namespace headrace {
namespace {

using Json = nlohmann::json;

Bytes checked_file_bytes(const std::string& folder, std::string_view name, const std::string& header,
                         const std::vector<TensorDescription>& tensors) {
  const Bytes bytes = std::accumulate(tensors.begin(), tensors.end(), Bytes{header.size()},
                                      [](Bytes sum, const TensorDescription& t) { return sum + t.bytes(); });
  require_disk_space(folder, bytes, name);
  return bytes;
}

}  // namespace

Bytes TensorDescription::bytes() const {
  std::uint64_t numel = 1;
  for (const std::uint64_t dimension : shape) numel *= dimension;
  return numel * dtype.bits / 8;
}

std::string safetensors_header(const std::vector<TensorDescription>& tensors,
                               const SafetensorsMetadata& metadata) {
  std::set<std::string_view> names;
  std::vector<std::string> entries;
  if (!metadata.empty()) entries.push_back(fmt::format("\"__metadata__\":{}", Json(metadata).dump()));
  Bytes next = 0;
  for (const TensorDescription& tensor : tensors) {
    HEADRACE_CHECK(names.insert(tensor.name).second, "tensor {} is written twice", tensor.name);
    const Bytes first = next;
    next += tensor.bytes();
    const Json entry = {
        {"dtype", tensor.dtype.name}, {"shape", tensor.shape}, {"data_offsets", {first, next}}};
    entries.push_back(fmt::format("{}:{}", Json(tensor.name).dump(), entry.dump()));
  }
  std::string text = fmt::format("{{{}}}", fmt::join(entries, ","));
  text.resize(round_up(text.size(), 8), ' ');
  std::string length(8, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> 8 * i & 0xff);
  return length + text;
}

void require_disk_space(const std::string& folder, Bytes bytes, std::string_view what) {
  const Bytes available = files::file_system_of(folder).free_bytes;
  if (bytes <= available) return;
  throw DoesNotFit(
      fmt::format("{} takes {}, and the disk of {} has {} free. Free {} there, or write elsewhere.", what,
                  format_bytes(bytes), folder, format_bytes(available), format_bytes(bytes - available)));
}

SafetensorsWriter::SafetensorsWriter(const std::string& folder, std::string_view name,
                                     const std::vector<TensorDescription>& tensors,
                                     const SafetensorsMetadata& metadata)
    : file_bytes_(checked_file_bytes(folder, name, safetensors_header(tensors, metadata), tensors)),
      file_(folder, name, file_bytes_) {
  const std::string header = safetensors_header(tensors, metadata);
  file_.append(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::write(std::span<const std::byte> piece) {
  HEADRACE_CHECK(piece.size() <= file_bytes_ - file_.size_bytes(), "{} bytes too many",
                 piece.size() - (file_bytes_ - file_.size_bytes()));
  file_.append(piece);
}

void SafetensorsWriter::finish() {
  HEADRACE_CHECK(file_.size_bytes() == file_bytes_, "{} bytes of {} were written", file_.size_bytes(),
                 file_bytes_);
  file_.publish();
}

}  // namespace headrace
