#include "swap/description.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "swap/format.h"

namespace headrace::swap {
using namespace files;
namespace {

using nlohmann::json;

constexpr std::size_t differences_shown = 3;

std::string_view name_of(Durability durability) {
  return durability == Durability::step ? "step" : "none";
}

std::uint32_t own_copies(Durability durability) {
  return StripeShape{.durability = durability}.copies();
}

// The text begins with its checksum, computed with zeros in the place of its digits.
constexpr std::string_view checksum_prefix = "{\"crc32c\":\"";
constexpr std::size_t checksum_digits = 8;

std::string checksum_of(std::string text) {
  text.replace(checksum_prefix.size(), checksum_digits, checksum_digits, '0');
  return fmt::format("{:08x}", crc32c(std::as_bytes(std::span(text))));
}

std::string with_checksum(const json& object) {
  std::string text =
      fmt::format("{}{}\",{}\n", checksum_prefix, std::string(checksum_digits, '0'), object.dump().substr(1));
  return text.replace(checksum_prefix.size(), checksum_digits, checksum_of(text));
}

bool checksum_holds(const std::string& text) {
  return text.size() > checksum_prefix.size() + checksum_digits && text.starts_with(checksum_prefix) &&
         text.substr(checksum_prefix.size(), checksum_digits) == checksum_of(text);
}

[[noreturn]] void refuse_damaged(const std::string& path, std::string_view why) {
  throw CorruptData(fmt::format("{} is damaged: {}.", path, why));
}

Description parse(const json& object) {
  Description description;
  const auto id = object.at("store_id").get<std::string>();
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), description.store_id, 16);
  if (error != std::errc{} || end != id.data() + id.size())
    throw std::invalid_argument("store_id is no number");
  StripeShape& shape = description.shape;
  const auto durability = object.at("durability").get<std::string>();
  if (durability != "step" && durability != "none") throw std::invalid_argument("unknown durability");
  shape.durability = durability == "step" ? Durability::step : Durability::none;
  const std::uint32_t own = own_copies(shape.durability);
  const auto copies = object.value("copies", own);
  if (copies < own || copies > own + (shape.durability == Durability::step ? most_pins : 0))
    throw std::invalid_argument("its copies cannot be so many");
  shape.pins = copies - own;
  shape.alignment = object.at("extent_alignment").get<Bytes>();
  if (shape.alignment == 0) throw std::invalid_argument("extent_alignment is 0");
  description.owns_directory = object.at("owns_directory").get<bool>();
  description.directories = object.at("paths").get<std::vector<std::string>>();
  if (description.directories.empty() || description.directories.size() > most_paths)
    throw std::invalid_argument("its paths cannot be so many");
  description.directories_revision = object.value("paths_revision", std::uint64_t{0});
  shape.paths = static_cast<std::uint32_t>(description.directories.size());
  shape.parity = object.at("parity").get<std::uint32_t>();
  if (shape.parity >= shape.paths) throw std::invalid_argument("it has more parity than paths");
  const auto check_path = [&](std::uint32_t path) {
    if (path >= shape.paths) throw std::invalid_argument("it names a path that there is not");
    return path;
  };
  description.path = check_path(object.at("path").get<std::uint32_t>());
  description.layout = object.at("layout").get<std::string>();
  for (const json& block : object.at("blocks")) {
    description.blocks.push_back({block.at("name").get<std::string>(), block.at("bytes").get<Bytes>()});
    description.first_paths.push_back(check_path(block.at("path").get<std::uint32_t>()));
  }
  return description;
}

std::string short_text(const json& value) {
  const std::string text = value.dump();
  return text.size() <= 40 ? text : text.substr(0, 37) + "...";
}

// Collects the first leaves where two JSON values differ: of an object its plain members first, for those say
// why ("world_size") where the nested ones say what follows from it.
void collect_differences(const json& stored, const json& wanted, const std::string& where,
                         std::vector<std::string>& out) {
  if (out.size() >= differences_shown || stored == wanted) return;
  const auto child = [&](const std::string& key) { return where.empty() ? key : where + "." + key; };
  if (stored.is_object() && wanted.is_object()) {
    for (const bool nested : {false, true}) {
      for (const auto& [key, value] : stored.items())
        if (value.is_structured() == nested)
          collect_differences(value, wanted.value(key, json()), child(key), out);
      for (const auto& [key, value] : wanted.items())
        if (value.is_structured() == nested && !stored.contains(key))
          collect_differences(json(), value, child(key), out);
    }
  } else if (stored.is_array() && wanted.is_array() && stored.size() == wanted.size()) {
    for (std::size_t i = 0; i < stored.size(); ++i)
      collect_differences(stored[i], wanted[i], fmt::format("{}[{}]", where, i), out);
  } else if (stored.is_array() && wanted.is_array()) {
    out.push_back(
        fmt::format("{} has {} entries in the store, {} here", where, stored.size(), wanted.size()));
  } else {
    out.push_back(
        fmt::format("{} is {} in the store, {} here", where, short_text(stored), short_text(wanted)));
  }
}

}  // namespace

void write_description(const std::string& directory, const Description& description) {
  json blocks = json::array();
  for (std::size_t i = 0; i < description.blocks.size(); ++i)
    blocks.push_back({{"name", description.blocks[i].name},
                      {"bytes", description.blocks[i].bytes},
                      {"path", description.first_paths[i]}});
  json object = {{"format", format_version},
                 {"store_id", fmt::format("{:016x}", description.store_id)},
                 {"durability", name_of(description.shape.durability)},
                 {"extent_alignment", description.shape.alignment},
                 {"owns_directory", description.owns_directory},
                 {"paths", description.directories},
                 {"paths_revision", description.directories_revision},
                 {"path", description.path},
                 {"parity", description.shape.parity},
                 {"layout", description.layout},
                 {"blocks", std::move(blocks)}};
  if (description.shape.pins > 0) {
    object["format"] = format_version_with_pins;
    object["copies"] = description.shape.copies();
  }
  const std::string text = with_checksum(object);
  prepare_replacement(directory, description_name, std::as_bytes(std::span(text)));
  publish_replacement(directory, description_name);
}

Description read_description(const std::string& directory) {
  const std::string path = join(directory, description_name);
  if (!file_exists(path))
    throw UsageError(
        fmt::format("there is no swap store in {}: {} is missing. Check --swap-path, or start the run "
                    "without --resume swap.",
                    directory, path));
  const std::vector<std::byte> bytes = read_file(path);
  try {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const json object = json::parse(text);
    if (const auto format = object.at("format").get<std::uint64_t>();
        format != format_version && format != format_version_with_pins)
      throw UsageError(
          fmt::format("{} has format version {}; this program reads versions {} and {}. Continue the run "
                      "with the program "
                      "that wrote it, or start anew without --resume swap.",
                      path, format, format_version, format_version_with_pins));
    if (!checksum_holds(text)) refuse_damaged(path, "its checksum does not hold");
    return parse(object);
  } catch (const json::exception&) {
    refuse_damaged(path, "it is not the JSON that was written");
  } catch (const std::invalid_argument& error) {
    refuse_damaged(path, error.what());
  }
}

bool holds_description(const std::string& directory) {
  return file_exists(join(directory, description_name));
}

// A run that takes over the folder of an earlier one also takes over the duty to remove it.
bool made_by_stale_store(const std::string& directory) {
  try {
    return holds_description(directory) && read_description(directory).owns_directory;
  } catch (const Error&) {
    return false;  // damaged or of another version: it is only reclaimed
  }
}

std::string layout_identity(const std::string& layout) {
  return fmt::format("{:08x} ({} bytes)", crc32c(std::as_bytes(std::span(layout))), layout.size());
}

std::string layout_difference(const std::string& stored, const std::string& wanted) {
  const json old_layout = json::parse(stored, nullptr, false),
             new_layout = json::parse(wanted, nullptr, false);
  if (!old_layout.is_object() || !new_layout.is_object())
    return fmt::format("the store has layout {}, this run {}", layout_identity(stored),
                       layout_identity(wanted));
  std::vector<std::string> differences;
  collect_differences(old_layout, new_layout, "", differences);
  return fmt::format("{}", fmt::join(differences, "; "));
}

}  // namespace headrace::swap
