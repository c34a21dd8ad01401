// A request seen from one rank: its units with their shards, and where each kind of state lives.
#pragma once

#include <vector>

#include "headrace/planner.h"
#include "src/zero/context.h"

namespace headrace {

struct RankPlan {
  int world_size = 1;
  ResolvedPlacement placement;
  std::vector<UnitPlan> units;
};
RankPlan plan_rank(const PlanRequest& request, int rank);

}  // namespace headrace
