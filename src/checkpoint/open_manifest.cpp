#include "src/checkpoint/open_manifest.h"

#include "headrace/errors.h"
#include "headrace/files.h"

namespace headrace {

Manifest open_manifest(const std::string& path) {
  const std::string file = files::join(path, manifest_name);
  if (!files::folder_exists(path)) throw UsageError(fmt::format("{} is no folder of a checkpoint.", path));
  if (!files::file_exists(file))
    throw UsageError(
        fmt::format("{} is no checkpoint: it has no {}. A save that was ended half-way leaves a "
                    "folder ending in .partial, which holds nothing that can be loaded.",
                    path, manifest_name));
  const std::vector<std::byte> bytes = files::read_file(file);
  return parse_manifest({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file);
}

CheckpointFacts facts_of(const Manifest& manifest, const std::string& path) {
  CheckpointFacts facts{.path = path,
                        .written_by = manifest.written_by,
                        .dtype = manifest.dtype,
                        .step = manifest.step,
                        .world_size = manifest.world_size,
                        .stage = manifest.stage,
                        .states = manifest.states,
                        .state = {}};
  facts.state = decode_training_state(manifest.training, facts.steps_applied, path);
  return facts;
}

CheckpointFacts read_checkpoint_facts(const std::string& path) {
  return facts_of(open_manifest(path), path);
}

}  // namespace headrace
