// Pinned commits of a store: for each a file in every folder, pin-NAME.bin (format.h). See [Note: pins in
// several folders] there for what is true when folders differ.
#pragma once

#include <string>
#include <vector>

#include "swap/format.h"

namespace headrace::swap {

struct Pin {
  std::string name;
  CommitRecord record;
  bool operator==(const Pin&) const = default;
};
using Pins = std::vector<Pin>;

// UsageError where a file cannot be called so.
void check_pin_name(const std::string& name);
// Of the file of one pin, in one folder.
Bytes pin_file_bytes(std::size_t entries);

struct BrokenPin {
  std::string name, problem;  // in words, of its file
};
struct FolderPins {
  Pins whole;
  std::vector<BrokenPin> broken;  // whose files do not check
};
// What the folder holds of this store. IoError when a file cannot be read; what vanishes meanwhile is none.
FolderPins read_pins(const std::string& directory, const JournalIdentity& identity);
// A pin in two parts: when the first throws there is none, when the second throws it may be there or not, for
// good. Durable when that returns.
void prepare_pin(const std::string& directory, const JournalIdentity& identity, const Pin& pin);
void publish_pin(const std::string& directory, const std::string& name);
// Still to be flushed with the folder.
void remove_pin(const std::string& directory, const std::string& name);
// Makes the folder hold these pins and no others, durably.
void settle_pins(const std::string& directory, const JournalIdentity& identity, const Pins& pins);

// The names of all files of pins, part-written ones too.
std::vector<std::string> pin_files(const std::string& directory);

}  // namespace headrace::swap
