#include "src/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "headrace/checkpoint.h"
#include "headrace/engine_states.h"
#include "headrace/errors.h"
#include "headrace/io_engine.h"
#include "src/checkpoint/parity.h"
#include "src/checkpoint/stored_arrays.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view format_name = "headrace checkpoint";
constexpr std::string_view no_crc = "00000000";

std::uint32_t crc_of(std::string_view text) {
  return crc32c(std::as_bytes(std::span(text)));
}

Json states_json(const StateFormat& format) {
  return {{"optimizer", name_of(format.kind)},
          {"amsgrad", format.amsgrad},
          {"momentum", format.momentum},
          {"master", name_of(format.master)},
          {"moments", name_of(format.moments)}};
}

template <class Enum>
Enum named(const Json& json, std::initializer_list<Enum> all) {
  const auto name = json.get<std::string>();
  for (const Enum one : all)
    if (name_of(one) == name) return one;
  throw CorruptData(fmt::format("\"{}\" is not known", shortened(name)));
}

StateFormat parse_states(const Json& json) {
  using enum OptimizerKind;
  return {.kind = named(json.at("optimizer"), {adam, adagrad, lion, sgd}),
          .amsgrad = json.at("amsgrad").get<bool>(),
          .momentum = json.at("momentum").get<bool>(),
          .master = named(json.at("master"), {MasterDType::f32, MasterDType::bf16}),
          .moments = named(json.at("moments"), {MomentDType::f32, MomentDType::bf16, MomentDType::int8})};
}

Json slices_json(const std::vector<ManifestSlice>& slices) {
  Json all = Json::array();
  for (const ManifestSlice& s : slices)
    all.push_back({s.parameter, s.array, s.first, s.numel, s.file, s.begin, s.crc32c});
  return all;
}

// Without conversions that would wrap.
std::uint64_t count(const Json& json) {
  if (!json.is_number_unsigned()) throw CorruptData(fmt::format("{} is not a count", shortened(json.dump())));
  return json.get<std::uint64_t>();
}
std::uint32_t small(const Json& json) {
  const std::uint64_t value = count(json);
  if (value > 0xffffffffu) throw CorruptData(fmt::format("{} is too large", value));
  return static_cast<std::uint32_t>(value);
}

ManifestParameter parse_parameter(const Json& json) {
  constexpr std::uint64_t most = std::uint64_t{1} << 60;
  ManifestParameter parameter{.name = json.at("name").get<std::string>(), .shape = {}};
  std::uint64_t numel = 1;
  for (const Json& size : json.at("shape")) {
    const std::uint64_t dimension = count(size);
    if (dimension > most || (dimension != 0 && numel > most / dimension))
      throw CorruptData(fmt::format("the shape of {} is too large", shortened(parameter.name)));
    numel *= dimension;
    parameter.shape.push_back(static_cast<std::int64_t>(dimension));
  }
  return parameter;
}

ManifestFile parse_name_and_size(const Json& json) {
  ManifestFile file{.name = json.at("name").get<std::string>(), .bytes = count(json.at("bytes"))};
  if (file.name.empty() || file.name.find('/') != std::string::npos || file.name == "." || file.name == "..")
    throw CorruptData(fmt::format("\"{}\" is no name of a file in its folder", shortened(file.name)));
  return file;
}

ManifestFile parse_file(const Json& json) {
  ManifestFile file = parse_name_and_size(json);
  file.header_bytes = count(json.at("header_bytes"));
  file.header_crc32c = small(json.at("header_crc32c"));
  return file;
}

Json parity_json(const ManifestParity& parity) {
  Json files = Json::array();
  for (const ManifestFile& one : parity.files) files.push_back({{"name", one.name}, {"bytes", one.bytes}});
  return {{"stripe_bytes", parity.stripe_bytes}, {"files", std::move(files)}, {"crc32c", parity.crc32c}};
}

// With nothing that readers would have to check again: sizes of buffers and of tables follow from it.
ManifestParity parse_parity(const Json& json, const std::vector<ManifestFile>& shards) {
  ManifestParity parity{.stripe_bytes = count(json.at("stripe_bytes")), .files = {}, .crc32c = {}};
  std::vector<ManifestFile> all = shards;
  Bytes longest = 0;
  for (const ManifestFile& one : shards) longest = std::max(longest, one.bytes);
  for (const Json& one : json.at("files")) {
    all.push_back(parity.files.emplace_back(parse_name_and_size(one)));
    if (all.back().bytes != longest) throw CorruptData("a file of parity has another size than it must have");
  }
  if (parity.files.empty() || all.size() > most_parity_files || parity.stripe_bytes == 0 ||
      parity.stripe_bytes % parity_alignment != 0 ||
      parity.stripe_bytes > checkpoint_rebuild_bytes / all.size())
    throw CorruptData("its parity is of no form that is known");
  const Json& sums = json.at("crc32c");
  if (!sums.is_array() || sums.size() != all.size()) throw CorruptData("parity lacks checksums");
  for (std::size_t f = 0; f < all.size(); ++f) {
    std::vector<std::uint32_t>& own = parity.crc32c.emplace_back();
    for (const Json& sum : sums[f]) own.push_back(small(sum));
    if (own.size() != divide_up(all[f].bytes, parity.stripe_bytes))
      throw CorruptData(fmt::format("parity has {} checksums of {}", own.size(), shortened(all[f].name)));
  }
  return parity;
}

Json stores_json(const std::vector<ManifestStore>& stores) {
  Json all = Json::array();
  for (const ManifestStore& one : stores)
    all.push_back({{"id", fmt::format("{:016x}", one.id)}, {"directories", one.directories}});
  return all;
}

ManifestStore parse_store(const Json& json) {
  ManifestStore store{.id = 0, .directories = json.at("directories").get<std::vector<std::string>>()};
  const auto id = json.at("id").get<std::string>();
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), store.id, 16);
  if (error != std::errc{} || end != id.data() + id.size())
    throw CorruptData(fmt::format("\"{}\" is no id of a swap store", shortened(id)));
  if (store.directories.empty()) throw CorruptData("a swap store of it has no folder");
  for (const std::string& directory : store.directories)
    if (!directory.starts_with('/'))
      throw CorruptData(fmt::format("\"{}\" is no path of a folder", shortened(directory)));
  return store;
}

// What version 2 has beside the others: there are no files.
void parse_pinned(const Json& json, Manifest& manifest) {
  manifest.pin = json.at("pin").get<std::string>();
  if (manifest.pin.empty()) throw CorruptData("it does not name its version in the swap stores");
  for (const Json& one : json.at("stores")) manifest.stores.push_back(parse_store(one));
  if (manifest.stores.empty() || manifest.stores.size() != manifest.world_size)
    throw CorruptData("it does not name the swap store of each rank");
  if (manifest.file_count() > 0 || !manifest.slices.empty())
    throw CorruptData("it names files, and swap stores too");
}

void check_place(const ManifestSlice& slice, const Manifest& manifest,
                 const std::vector<StoredArray>& arrays) {
  const bool known = slice.parameter < manifest.parameters.size() && slice.array < arrays.size() &&
                     slice.file < manifest.files.size();
  if (!known) throw CorruptData("a slice names a parameter, array or file that is not there");
  const ManifestParameter& parameter = manifest.parameters[slice.parameter];
  const ManifestFile& file = manifest.files[slice.file];
  const std::uint64_t numel = parameter.numel();
  if (slice.numel == 0 || slice.numel > std::min(numel, most_piece_numel) ||
      slice.first > numel - slice.numel || slice.first % quantised_block_numel != 0)
    throw CorruptData(fmt::format("a slice of {} lies outside it", shortened(parameter.name)));
  const Bytes bytes = arrays[slice.array].bytes_of(slice.numel);
  if (slice.begin < file.header_bytes || bytes > file.bytes || slice.begin > file.bytes - bytes)
    throw CorruptData(fmt::format("a slice of {} lies outside {}", shortened(parameter.name), file.name));
}

Manifest parse(const Json& json) {
  if (json.at("format") != format_name) throw CorruptData("it is not a checkpoint's");
  const std::uint64_t version = count(json.at("version"));
  if (version != manifest_version && version != pinned_manifest_version)
    throw CorruptData(fmt::format("it has version {} of the format, this program reads {} and {}", version,
                                  manifest_version, pinned_manifest_version));
  Manifest manifest;
  manifest.sequence = count(json.at("sequence"));
  manifest.written_by = json.at("written_by").get<std::string>();
  manifest.step = count(json.at("step"));
  manifest.world_size = small(json.at("world_size"));
  manifest.stage = static_cast<int>(small(json.at("stage")));
  manifest.dtype = json.at("dtype").get<std::string>();
  manifest.states = parse_states(json.at("states"));
  manifest.training = json.at("training").dump();
  manifest.model = json.at("model").dump();
  for (const Json& one : json.at("parameters")) manifest.parameters.push_back(parse_parameter(one));
  for (const Json& one : json.at("files")) manifest.files.push_back(parse_file(one));
  if (json.contains("parity")) manifest.parity = parse_parity(json.at("parity"), manifest.files);
  const std::vector<StoredArray> arrays = stored_arrays(manifest.states);
  for (const Json& one : json.at("slices")) {
    if (!one.is_array() || one.size() != 7) throw CorruptData("a slice has other than 7 numbers");
    const ManifestSlice slice{.parameter = small(one[0]),
                              .array = small(one[1]),
                              .file = small(one[4]),
                              .crc32c = small(one[6]),
                              .first = count(one[2]),
                              .numel = count(one[3]),
                              .begin = count(one[5])};
    check_place(slice, manifest, arrays);
    manifest.slices.push_back(slice);
  }
  if (version == pinned_manifest_version) parse_pinned(json, manifest);
  return manifest;
}

}  // namespace

std::uint64_t ManifestParameter::numel() const {
  std::uint64_t numel = 1;
  for (const std::int64_t dimension : shape) numel *= static_cast<std::uint64_t>(dimension);
  return numel;
}

std::uint32_t Manifest::parity_rows() const {
  return parity ? static_cast<std::uint32_t>(parity->files.size()) : 0;
}

std::uint32_t Manifest::file_count() const {
  return static_cast<std::uint32_t>(files.size()) + parity_rows();
}

const ManifestFile& Manifest::file(std::uint32_t index) const {
  return index < files.size() ? files[index] : parity->files.at(index - files.size());
}

std::string to_text(const Manifest& manifest) {
  Json parameters = Json::array(), files = Json::array(), arrays = Json::array();
  for (const ManifestParameter& one : manifest.parameters)
    parameters.push_back({{"name", one.name}, {"shape", one.shape}});
  for (const ManifestFile& one : manifest.files)
    files.push_back({{"name", one.name},
                     {"bytes", one.bytes},
                     {"header_bytes", one.header_bytes},
                     {"header_crc32c", one.header_crc32c}});
  for (const StoredArray& one : stored_arrays(manifest.states)) arrays.push_back(one.name);
  Json json = {{"crc32c", no_crc},
               {"format", format_name},
               {"version", manifest.is_pinned() ? pinned_manifest_version : manifest_version},
               {"sequence", manifest.sequence},
               {"written_by", manifest.written_by},
               {"step", manifest.step},
               {"world_size", manifest.world_size},
               {"stage", manifest.stage},
               {"dtype", manifest.dtype},
               {"states", states_json(manifest.states)},
               {"training", Json::parse(manifest.training)},
               {"model", Json::parse(manifest.model.empty() ? "null" : manifest.model)},
               {"arrays", std::move(arrays)},
               {"parameters", std::move(parameters)},
               {"files", std::move(files)},
               {"slice", "parameter, array, first, numel, file, begin, crc32c"},
               {"slices", slices_json(manifest.slices)}};
  if (manifest.parity) json["parity"] = parity_json(*manifest.parity);
  if (manifest.is_pinned()) {
    json["pin"] = manifest.pin;
    json["stores"] = stores_json(manifest.stores);
  }
  std::string text = json.dump() + '\n';
  text.replace(text.find(no_crc), no_crc.size(), fmt::format("{:08x}", crc_of(text)));
  return text;
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    throw CorruptData(
        fmt::format("{} is damaged: {}. Load another checkpoint; `headrace inspect` on the folder above says "
                    "which are good.",
                    path, why));
  };
  constexpr std::string_view start = R"({"crc32c":")";
  if (!text.starts_with(start) || text.size() < start.size() + no_crc.size())
    refuse("it does not begin as a manifest does");
  std::string checked = text;
  const std::string stored = text.substr(start.size(), no_crc.size());
  checked.replace(start.size(), no_crc.size(), no_crc);
  if (stored != fmt::format("{:08x}", crc_of(checked))) refuse("its checksum does not match its contents");
  try {
    return parse(Json::parse(text));
  } catch (const Json::exception& error) {
    refuse(error.what());
  } catch (const CorruptData& error) {
    refuse(error.what());
  }
  return {};
}

}  // namespace headrace
