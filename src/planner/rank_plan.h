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
// The ranks that stand for all: every one of a small job; of a large one three, whose shards differ from the
// others' by a norm chunk a unit at most.
std::vector<int> planned_ranks(int world_size);
RankPlan plan_rank(const PlanRequest& request, int rank);

}  // namespace headrace
