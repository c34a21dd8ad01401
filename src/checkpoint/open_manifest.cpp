#include "src/checkpoint/open_manifest.h"

#include <filesystem>

#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/files.h"

namespace headrace {

bool is_checkpoint(const std::string& path) {
  std::error_code unseen;  // what may not be looked at is none, as far as can be told
  return std::filesystem::exists(files::join(path, manifest_name), unseen) ||
         std::filesystem::exists(files::join(path, manifest_copy_name), unseen);
}

ManifestText read_manifest(const std::string& path, std::string_view name) {
  const std::string file = files::join(path, name);
  ManifestText read;
  if (!files::file_exists(file)) {
    read.problem = "is missing";
    return read;
  }
  try {
    const std::vector<std::byte> bytes = files::read_file(file);
    read.text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    read.manifest = parse_manifest(read.text, file);
  } catch (const Error& error) {
    read.problem = "is damaged";
    read.error = error.what();
  }
  return read;
}

Manifest open_manifest(const std::string& path) {
  if (!is_checkpoint(path)) throw UsageError(not_a_checkpoint(path));
  ManifestText first = read_manifest(path, manifest_name);
  if (first.manifest) return std::move(*first.manifest);
  ManifestText copy = read_manifest(path, manifest_copy_name);
  if (!copy.manifest) throw CorruptData(first.error.empty() ? copy.error : first.error);
  copy.manifest->problem = fmt::format("{} {}", manifest_name, first.problem);
  return std::move(*copy.manifest);
}

CheckpointFacts facts_of(const Manifest& manifest, const std::string& path) {
  CheckpointFacts facts{.path = path,
                        .written_by = manifest.written_by,
                        .dtype = manifest.dtype,
                        .step = manifest.step,
                        .world_size = manifest.world_size,
                        .parity = manifest.parity_rows(),
                        .stage = manifest.stage,
                        .states = manifest.states,
                        .state = {},
                        .pin = manifest.pin,
                        .pinned_in = {}};
  for (const ManifestStore& store : manifest.stores) facts.pinned_in.push_back(store.id);
  facts.state = decode_training_state(manifest.training, facts.steps_applied, path);
  return facts;
}

CheckpointFacts read_checkpoint_facts(const std::string& path) {
  return facts_of(open_manifest(path), path);
}

}  // namespace headrace
