#include "swap/pins.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "headrace/errors.h"
#include "headrace/files.h"

namespace headrace::swap {
using namespace files;
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "pin-", suffix = ".bin";
constexpr std::size_t longest_name = 200;
constexpr Bytes usual_metadata_bytes = 1024;

std::string file_of(const std::string& name) {
  return fmt::format("{}{}{}", prefix, name, suffix);
}

std::string name_in(const std::string& file) {
  return file.substr(prefix.size(), file.size() - prefix.size() - suffix.size());
}

bool is_replacement(const std::string& file) {
  return file.ends_with(replacement_suffix);
}

// A journal that holds this one commit.
Pin decode_pin(const std::string& directory, const std::string& file, const JournalIdentity& identity) {
  const std::string path = join(directory, file);
  JournalContents contents = decode_journal(read_file(path), path, identity);
  if (!contents.history.newest || contents.history.superseded || contents.torn_bytes > 0)
    throw CorruptData(fmt::format("{} does not hold one commit.", path));
  return {name_in(file), std::move(*contents.history.newest)};
}

}  // namespace

void check_pin_name(const std::string& name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (name.empty() || name.size() > longest_name || !std::ranges::all_of(name, is_allowed))
    throw UsageError(fmt::format(
        "a pinned version cannot be called \"{}\": give 1 to {} letters, digits, '.', '_' and '-'.", name,
        longest_name));
}

Bytes pin_file_bytes(std::size_t entries) {
  return round_up(journal_header_bytes() + commit_record_bytes(entries, usual_metadata_bytes),
                  default_extent_alignment);
}

std::vector<std::string> pin_files(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    const std::string whole = is_replacement(file)
                                  ? file.substr(0, file.size() - std::string_view(replacement_suffix).size())
                                  : file;
    if (whole.size() > prefix.size() + suffix.size() && whole.starts_with(prefix) && whole.ends_with(suffix))
      files.push_back(file);
  }
  if (error && error.value() != ENOENT) throw IoError("list", directory, 0, 0, error.value());
  std::ranges::sort(files);
  return files;
}

FolderPins read_pins(const std::string& directory, const JournalIdentity& identity) {
  FolderPins pins;
  for (const std::string& file : pin_files(directory)) {
    if (is_replacement(file)) continue;
    try {
      pins.whole.push_back(decode_pin(directory, file, identity));
    } catch (const IoError& error) {
      if (error.code() != ENOENT) throw;
    } catch (const Error& error) {
      pins.broken.push_back({name_in(file), error.what()});
    }
  }
  return pins;
}

void prepare_pin(const std::string& directory, const JournalIdentity& identity, const Pin& pin) {
  std::vector<std::byte> contents = encode_journal_header(identity, {});
  const std::vector<std::byte> record = encode_commit(pin.record);
  contents.insert(contents.end(), record.begin(), record.end());
  prepare_replacement(directory, file_of(pin.name), contents);
}

void publish_pin(const std::string& directory, const std::string& name) {
  publish_replacement(directory, file_of(name));
}

void remove_pin(const std::string& directory, const std::string& name) {
  remove_file(join(directory, file_of(name)));
}

// The folder is flushed in any case: what a process did that was killed before it could is not yet durable.
void settle_pins(const std::string& directory, const JournalIdentity& identity, const Pins& pins) {
  const Pins found = read_pins(directory, identity).whole;
  for (const std::string& file : pin_files(directory))
    if (is_replacement(file) || std::ranges::find(pins, name_in(file), &Pin::name) == pins.end())
      remove_file(join(directory, file));
  for (const Pin& pin : pins) {
    if (std::ranges::find(found, pin) != found.end()) continue;
    prepare_pin(directory, identity, pin);
    publish_pin(directory, pin.name);
  }
  sync_folder(directory);
}

}  // namespace headrace::swap
