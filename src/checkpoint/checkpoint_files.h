// The files of a checkpoint as they lie there, without reading them: which are missing or of another size,
// and what is said of damage.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/manifest.h"

namespace headrace {

struct FileProblem {
  std::uint32_t file = 0;  // Manifest::file
  bool missing = false;
  Bytes bytes = 0;   // that it has
  std::string what;  // "is missing (...)", "has 3 bytes of 4096"
};
std::vector<FileProblem> look_at_files(const std::string& folder, const Manifest& manifest);
// Whether parity makes up for what is not there. That what is there is good is another question.
bool parity_makes_up_for(std::span<const FileProblem> problems, const Manifest& manifest);

// "`headrace inspect --repair DIR`"
std::string repair_text(const std::string& folder);
// Of damage that does not keep it from being read.
std::string damage_warning(const std::string& folder, std::string_view problems);

}  // namespace headrace
