#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "headrace/errors.h"
#include "headrace/model_folder.h"
#include "headrace/state_hash.h"
#include "src/checkpoint/family_layout.h"
#include "src/checkpoint/weight_files.h"
#include "src/checkpoint/weight_names.h"

namespace headrace {
namespace {

// A tensor of one of the files, and what it stands for.
struct Found {
  const SafetensorsFile* file = nullptr;
  const StoredTensor* tensor = nullptr;
  std::string native;
};

std::vector<std::int64_t> signed_shape(const StoredTensor& tensor) {
  return {tensor.shape.begin(), tensor.shape.end()};
}

// The weights among the tensors. A tied table is stored once, by either of its names; where it is stored by
// both, the head's is the copy.
std::vector<Found> weights_among(const std::vector<SafetensorsFile>& files, const ModelConfig& config) {
  const FamilyLayout& family = family_of(config);
  std::vector<Found> found;
  for (const SafetensorsFile& file : files)
    for (const StoredTensor& tensor : file.tensors())
      if (const auto native = family.native_name(tensor.name)) found.push_back({&file, &tensor, *native});
  if (!config.tied_embedding) return found;
  const auto head = std::ranges::find(found, family.head, &Found::native);
  if (head == found.end()) return found;
  const auto table = std::ranges::find(found, family.tied_to, &Found::native);
  if (table == found.end())
    head->native = family.tied_to;
  else if (head->tensor->shape == table->tensor->shape)
    found.erase(head);
  return found;
}

std::vector<std::string> all_differences(const std::vector<Found>& found,
                                         const std::vector<UnitSpec>& units) {
  std::vector<NamedShape> shapes;
  for (const Found& f : found) shapes.push_back({f.native, f.tensor->name, signed_shape(*f.tensor)});
  std::vector<std::string> result = differences(shapes, units);
  for (const Found& f : found)
    if (!native_dtype(f.tensor->dtype))
      result.push_back(fmt::format("{} is of type {}, and F32, F16 and BF16 are read", f.tensor->name,
                                   f.tensor->dtype.name));
  return result;
}

}  // namespace

struct ModelWeights::Impl {
  std::vector<SafetensorsFile> files;
  std::unordered_map<std::string, Found> weights;  // by native name
};

ModelWeights::ModelWeights(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelWeights::ModelWeights(ModelWeights&&) noexcept = default;
ModelWeights& ModelWeights::operator=(ModelWeights&&) noexcept = default;
ModelWeights::~ModelWeights() = default;

std::optional<ModelWeights> ModelWeights::open(const std::string& folder, const ModelConfig& config,
                                               const std::vector<UnitSpec>& units) {
  auto impl = std::make_unique<Impl>();
  impl->files = open_weight_files(folder);
  if (impl->files.empty()) return std::nullopt;
  const std::vector<Found> found = weights_among(impl->files, config);
  if (const std::vector<std::string> list = all_differences(found, units); !list.empty())
    throw UsageError(
        fmt::format("the weights in {} are not those of the model that its {} describes:\n  {}\nNothing "
                    "was changed. Give the folder of one model, as it was saved.",
                    folder, config_file_name, fmt::join(list, "\n  ")));
  for (const Found& f : found) impl->weights.emplace(f.native, f);
  return ModelWeights(std::move(impl));
}

void ModelWeights::read(const ParameterSpec& parameter, std::uint64_t first, std::span<float> out) const {
  const Found& found = impl_->weights.at(parameter.name);
  const DType dtype = *native_dtype(found.tensor->dtype);
  if (dtype == DType::f32)
    return found.file->read(*found.tensor, first * sizeof(float), std::as_writable_bytes(out));
  std::array<std::uint16_t, 16384> narrow;
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), narrow.size());
    found.file->read(*found.tensor, first * sizeof(narrow[0]),
                     std::as_writable_bytes(std::span(narrow).first(count)));
    for (std::size_t i = 0; i < count; ++i) out[i] = element_at(narrow.data(), i, dtype);
    out = out.subspan(count), first += count;
  }
}

std::uint64_t ModelWeights::fingerprint() const {
  constexpr Bytes sampled_bytes = 4096;
  std::string text;
  for (const SafetensorsFile& file : impl_->files)
    for (const StoredTensor& tensor : file.tensors()) {
      std::string start(std::min(tensor.bytes, sampled_bytes), '\0');
      file.read(tensor, 0, std::as_writable_bytes(std::span(start)));
      text += fmt::format("{} {} {} {} {:016x}\n", tensor.name, tensor.dtype.name,
                          fmt::join(tensor.shape, "x"), tensor.first, hash_bytes(start));
    }
  return hash_bytes(text);
}

DType ModelWeights::dtype() const {
  std::set<DType> dtypes;
  for (const auto& [name, found] : impl_->weights) dtypes.insert(*native_dtype(found.tensor->dtype));
  return dtypes.size() == 1 ? *dtypes.begin() : DType::f32;
}

std::string ModelWeights::summary() const {
  Bytes bytes = 0;
  std::set<std::string_view> dtypes;
  for (const SafetensorsFile& file : impl_->files) bytes += file.file_bytes();
  for (const auto& [name, found] : impl_->weights) dtypes.insert(found.tensor->dtype.name);
  return fmt::format("{} file{}, {}, {}", impl_->files.size(), impl_->files.size() == 1 ? "" : "s",
                     fmt::join(dtypes, " and "), format_bytes(bytes));
}

}  // namespace headrace
