// A checkpoint's weights as a model folder.
#include <algorithm>

#include "headrace/checkpoint.h"
#include "headrace/memory.h"
#include "src/checkpoint/checkpoint_source.h"
#include "src/checkpoint/open_manifest.h"

namespace headrace {

ExportedModel export_checkpoint(const std::string& checkpoint, const std::string& folder, IoEngine& io,
                                const ExportOptions& options) {
  Manifest manifest = open_manifest(checkpoint);
  const ModelConfig config = parse_model_config(manifest.model, checkpoint);
  MemoryBudget budget("host",
                      std::max(checkpoint_memory_bytes, memory_to_read(manifest)) + checkpoint_rebuild_bytes);
  CheckpointSource source(checkpoint, std::move(manifest), io, budget);
  return export_model(folder, config, source, options);
}

}  // namespace headrace
