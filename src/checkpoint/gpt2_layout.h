#pragma once

#include "src/checkpoint/family_layout.h"

namespace headrace {

FamilyLayout gpt2_layout();

}  // namespace headrace
