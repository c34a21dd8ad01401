#include "src/checkpoint/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "headrace/files.h"
#include "headrace/shell_words.h"

namespace headrace {

std::vector<FileProblem> look_at_files(const std::string& folder, const Manifest& manifest) {
  std::vector<FileProblem> problems;
  for (std::uint32_t f = 0; f < manifest.file_count(); ++f) {
    const ManifestFile& one = manifest.file(f);
    std::error_code error;
    const Bytes bytes = std::filesystem::file_size(files::join(folder, one.name), error);
    if (error)
      problems.push_back({f, true, 0, fmt::format("is missing ({})", error.message())});
    else if (bytes != one.bytes)
      problems.push_back({f, false, bytes, fmt::format("has {} bytes of {}", bytes, one.bytes)});
  }
  return problems;
}

bool parity_makes_up_for(std::span<const FileProblem> problems, const Manifest& manifest) {
  if (!manifest.parity) return problems.empty();
  // From the stripe on where one ends too early, it is lost.
  const auto is_lost_in = [&](const FileProblem& problem, std::uint64_t stripe) {
    const Bytes begin = stripe * manifest.parity->stripe_bytes, bytes = manifest.file(problem.file).bytes;
    return begin < bytes && problem.bytes < std::min(bytes, begin + manifest.parity->stripe_bytes);
  };
  return std::ranges::all_of(problems, [&](const FileProblem& first) {
    const std::uint64_t stripe = first.bytes / manifest.parity->stripe_bytes;
    const auto lost = std::ranges::count_if(
        problems, [&](const FileProblem& problem) { return is_lost_in(problem, stripe); });
    return static_cast<std::uint64_t>(lost) <= manifest.parity_rows();
  });
}

std::string repair_text(const std::string& folder) {
  return fmt::format("`headrace inspect --repair {}`", shell_word(folder));
}

std::string damage_warning(const std::string& folder, std::string_view problems) {
  return fmt::format(
      "the checkpoint {} is damaged: {}. It is read all the same, by its parity; {} rebuilds the files.",
      folder, problems, repair_text(folder));
}

}  // namespace headrace
