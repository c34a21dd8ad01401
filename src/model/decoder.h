// The loop that all families share.
#pragma once

#include <memory>

#include "headrace/model.h"
#include "src/model/decoder_family.h"

namespace headrace {

std::unique_ptr<Model> make_decoder(std::unique_ptr<DecoderFamily> family, const ModelConfig& config,
                                    const ModelOptions& options);

}  // namespace headrace
