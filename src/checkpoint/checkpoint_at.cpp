// Which checkpoint a path means, and what it is where it means none.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "src/checkpoint/folder.h"
#include "src/checkpoint/weight_files.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

std::string name_of_folder(const std::string& path) {
  const fs::path given(path);
  return (given.has_filename() ? given : given.parent_path()).filename().string();
}

bool is_swap_path(const std::string& path) {
  constexpr const char* description = "store.json";
  return files::file_exists(files::join(path, description)) ||
         files::file_exists(files::join(files::join(path, "rank-00000"), description));
}

// Of a folder without a manifest.
std::string what_it_is(const std::string& path) {
  std::error_code error;
  fs::directory_iterator(path, error);
  if (error)
    return fmt::format(
        "it cannot be read: {}. Do this as the user who saved it, or have that user allow it "
        "(chmod).",
        error.message());
  const CheckpointFolder inside = look_into(path);
  if (!inside.found.empty())
    return fmt::format("it holds {} checkpoint{}; give one of them, such as {}.", inside.found.size(),
                       inside.found.size() == 1 ? "" : "s", inside.found.back().path);
  if (!inside.damaged.empty())
    return fmt::format("what it holds has no manifest.json, or a damaged one: {}.",
                       fmt::join(inside.damaged, ", "));
  if (is_name_of_partial(name_of_folder(path)))
    return "it is what a save leaves that was ended half-way, or that is going on, and holds nothing that "
           "can be loaded. Whole ones have names like step-00001200.";
  if (!inside.partial.empty())
    return "no save into it was finished. Give the --checkpoint-dir of a run that saved one.";
  if (files::file_exists(files::join(path, config_file_name)))
    return "it is a model's folder. Give it as --model, or to `headrace generate`.";
  if (is_swap_path(path)) return "it is a swap path. `--resume swap` goes on from it.";
  if (is_named_as_checkpoint(path))
    return "its manifest.json is missing. Bring it back from a copy, or give another checkpoint.";
  return "it has no manifest.json. A checkpoint is a folder like step-00001200.";
}

}  // namespace

bool is_named_as_checkpoint(const std::string& path) {
  const std::string name = name_of_folder(path);
  return is_name_of_partial(name) || step_of_name(name).has_value();
}

std::string not_a_checkpoint(const std::string& path) {
  std::error_code unseen;
  if (files::folder_exists(path)) return fmt::format("{} is no checkpoint: {}", path, what_it_is(path));
  return fmt::format("{} is no checkpoint: {}. A checkpoint is a folder like step-00001200.", path,
                     fs::exists(path, unseen) ? "it is a file" : "there is no such folder");
}

std::string checkpoint_at(const std::string& path) {
  if (is_checkpoint(path)) return path;
  const CheckpointFolder inside = seen_of(path);
  if (inside.found.empty()) throw UsageError(not_a_checkpoint(path));
  if (!inside.damaged.empty())
    throw UsageError(
        fmt::format("the manifest of {} is missing or damaged, so which one is the newest in {} cannot be "
                    "told. Give one of them: {} is the newest of the others.",
                    fmt::join(inside.damaged, ", "), path, inside.found.back().path));
  return inside.found.back().path;
}

}  // namespace headrace
