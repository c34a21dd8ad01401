// Reads a header as a stream of JSON's events: nothing is built that the format does not have, so neither
// nesting nor length can make the reader take memory beyond a small multiple of the header's.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "headrace/errors.h"
#include "src/checkpoint/safetensors.h"

namespace headrace {
namespace {

using Json = nlohmann::json;

constexpr Bytes largest_header_bytes = 100'000'000;  // the format's own limit
constexpr std::string_view metadata_key = "__metadata__";
constexpr std::size_t most_dimensions = 64;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw CorruptData(
      fmt::format("{} is not a sound safetensors file: {}. Fetch or write it again.", path, why));
}

// The product, or none where it does not fit 64 bits.
std::optional<std::uint64_t> checked_product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::nullopt : std::optional(product);
}

class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(Bytes data_bytes, const std::string& path) : data_bytes_(data_bytes), path_(path) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("true or false"); }
  bool number_integer(std::int64_t value) override {
    unexpected(fmt::format("{}, a negative number", value));
  }
  bool number_float(double, const std::string& text) override {
    unexpected(fmt::format("{}, which is not a whole number of 64 bits", shortened(text)));
  }
  bool binary(Json::binary_t&) override { unexpected("binary data"); }
  bool number_unsigned(std::uint64_t value) override;
  bool string(std::string& value) override;
  bool start_object(std::size_t) override;
  bool key(std::string& name) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    refuse(path_, fmt::format("its header is not JSON from byte {} on", position));
  }

 private:
  // Where the next event stands: outside of all, among the tensors, in one of them or in the metadata, in a
  // list.
  enum class Level : std::uint8_t { outside, tensors, entry, list };

  [[noreturn]] void refuse_here(const std::string& why) const {
    const std::string subject = level_ == Level::outside || (level_ == Level::tensors && names_.empty())
                                    ? "its header"
                                : name_ == metadata_key ? std::string(metadata_key)
                                                        : fmt::format("tensor \"{}\"", shortened(name_));
    refuse(path_, fmt::format("{}: {}", subject, why));
  }
  [[noreturn]] void unexpected(const std::string& what) const;
  void finish_tensor();
  Bytes bytes_of_shape() const;

  Bytes data_bytes_;
  const std::string& path_;
  SafetensorsHeader header_;
  Level level_ = Level::outside;
  std::set<std::string, std::less<>> names_, fields_;
  std::string name_, field_;                 // the keys on the way here
  StoredTensor tensor_;                      // the one that is being read
  std::vector<std::uint64_t> data_offsets_;  // its
};

void HeaderReader::unexpected(const std::string& what) const {
  if (level_ == Level::outside) refuse_here(fmt::format("it is {} instead of an object", what));
  if (level_ == Level::tensors) refuse_here(fmt::format("it is {} instead of an object", what));
  if (name_ == metadata_key)
    refuse_here(fmt::format("\"{}\" is {}, and only text is allowed", shortened(field_), what));
  refuse_here(fmt::format("its {} is or holds {}", field_, what));
}

bool HeaderReader::start_object(std::size_t) {
  if (level_ == Level::outside) {
    level_ = Level::tensors;
  } else if (level_ == Level::tensors) {
    level_ = Level::entry;
    fields_.clear(), data_offsets_.clear();
    tensor_ = {.name = name_, .dtype = {}, .shape = {}, .first = 0, .bytes = 0};
  } else {
    unexpected("an object");
  }
  return true;
}

bool HeaderReader::key(std::string& name) {
  if (level_ == Level::tensors) {
    name_ = name;
    if (!names_.insert(name).second) refuse_here("it stands twice");
    return true;
  }
  field_ = name;
  if (!fields_.insert(name).second) refuse_here(fmt::format("\"{}\" stands twice", shortened(name)));
  if (name_ != metadata_key && name != "dtype" && name != "shape" && name != "data_offsets")
    refuse_here(fmt::format("\"{}\" is not a key of the format", shortened(name)));
  return true;
}

bool HeaderReader::string(std::string& value) {
  if (level_ != Level::entry) unexpected("text");
  if (name_ == metadata_key) {
    header_.metadata[field_] = value;
    return true;
  }
  if (field_ != "dtype") unexpected("text");
  const auto dtype = find_safetensors_dtype(value);
  if (!dtype) refuse_here(fmt::format("its dtype \"{}\" is not known to this version", shortened(value)));
  tensor_.dtype = *dtype;
  return true;
}

bool HeaderReader::start_array(std::size_t) {
  if (level_ != Level::entry || name_ == metadata_key || field_ == "dtype") unexpected("a list");
  level_ = Level::list;
  return true;
}

bool HeaderReader::number_unsigned(std::uint64_t value) {
  if (level_ != Level::list) unexpected(fmt::format("the number {}", value));
  std::vector<std::uint64_t>& list = field_ == "shape" ? tensor_.shape : data_offsets_;
  if (list.size() == (field_ == "shape" ? most_dimensions : 2))
    refuse_here(fmt::format("its {} holds more than {} numbers", field_, list.size()));
  list.push_back(value);
  return true;
}

bool HeaderReader::end_array() {
  level_ = Level::entry;
  return true;
}

bool HeaderReader::end_object() {
  if (level_ == Level::entry) {
    if (name_ != metadata_key) finish_tensor();
    level_ = Level::tensors;
  } else {
    level_ = Level::outside;
  }
  return true;
}

Bytes HeaderReader::bytes_of_shape() const {
  std::optional<std::uint64_t> bits = tensor_.dtype.bits;
  std::uint64_t numel = 1;
  for (const std::uint64_t dimension : tensor_.shape) {
    const auto product = checked_product(numel, dimension);
    if (!product) refuse_here("its shape has more elements than 64 bits count");
    numel = *product;
  }
  bits = checked_product(*bits, numel);
  if (!bits) refuse_here("its shape has more bits than 64 bits count");
  if (*bits % 8 != 0) refuse_here("its elements do not fill whole bytes");
  return *bits / 8;
}

void HeaderReader::finish_tensor() {
  for (const std::string_view field : {"dtype", "shape", "data_offsets"})
    if (!fields_.contains(field)) refuse_here(fmt::format("it has no {}", field));
  if (data_offsets_.size() != 2) refuse_here("its data_offsets are not two numbers");
  const Bytes begin = data_offsets_[0], end = data_offsets_[1];
  if (begin > end) refuse_here(fmt::format("its data end at byte {}, before they begin at {}", end, begin));
  if (end > data_bytes_)
    refuse_here(
        fmt::format("its data end at byte {}, but the file has {} bytes of data: it was cut short, or "
                    "its header was changed",
                    end, data_bytes_));
  if (const Bytes needed = bytes_of_shape(); needed != end - begin)
    refuse_here(fmt::format("its shape and dtype {} need {} bytes, and its data are {}", tensor_.dtype.name,
                            needed, end - begin));
  tensor_.first = begin, tensor_.bytes = end - begin;
  header_.tensors.push_back(std::move(tensor_));
}

// Sorts the tensors by their data, which must be all of the data, each byte once.
void sort_and_check_ranges(SafetensorsHeader& header, Bytes data_bytes, const std::string& path) {
  std::ranges::stable_sort(header.tensors, {},
                           [](const StoredTensor& t) { return std::pair(t.first, t.bytes); });
  Bytes next = 0;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.first < next)
      refuse(path,
             fmt::format("tensor \"{}\": its data begin at byte {}, within those of another tensor, which "
                         "end at {}",
                         shortened(tensor.name), tensor.first, next));
    if (tensor.first > next)
      refuse(path,
             fmt::format("tensor \"{}\": its data begin at byte {}, and bytes {} to {} belong to no tensor",
                         shortened(tensor.name), tensor.first, next, tensor.first));
    next += tensor.bytes;
  }
  if (next != data_bytes)
    refuse(path, fmt::format("the last {} bytes of its data belong to no tensor", data_bytes - next));
}

}  // namespace

std::uint64_t StoredTensor::numel() const {
  std::uint64_t numel = 1;
  for (const std::uint64_t dimension : shape) numel *= dimension;
  return numel;
}

Bytes safetensors_header_bytes(const std::array<std::byte, 8>& start, Bytes file_bytes,
                               const std::string& path) {
  Bytes header_bytes = 0;
  for (std::size_t i = start.size(); i-- > 0;)
    header_bytes = header_bytes << 8 | std::to_integer<Bytes>(start[i]);
  if (header_bytes > largest_header_bytes)
    refuse(path, fmt::format("its header would have {} bytes, and the format allows {}", header_bytes,
                             largest_header_bytes));
  if (header_bytes > file_bytes - std::min<Bytes>(file_bytes, start.size()))
    refuse(path, fmt::format(
                     "its header would have {} bytes, and the file has {} in all: it was cut short, or it is "
                     "another kind of file",
                     header_bytes, file_bytes));
  return header_bytes;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, Bytes data_bytes, const std::string& path) {
  if (!json.starts_with('{')) refuse(path, "its header does not begin with \"{\"");
  // The parser takes a zero byte for the end of the text: anything could stand behind it.
  if (json.find('\0') != std::string_view::npos) refuse(path, "its header is not JSON: it holds a zero byte");
  HeaderReader reader(data_bytes, path);
  Json::sax_parse(json.begin(), json.end(), &reader);
  SafetensorsHeader header = reader.take();
  sort_and_check_ranges(header, data_bytes, path);
  return header;
}

}  // namespace headrace
