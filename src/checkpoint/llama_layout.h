#pragma once

#include "src/checkpoint/family_layout.h"

namespace headrace {

FamilyLayout llama_layout();

}  // namespace headrace
