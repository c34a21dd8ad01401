#include "src/tune/search_loop.h"

#include <algorithm>

namespace headrace::tune {

void search_until(TuneSearch& search, double deadline, const SearchLoop& loop) {
  const double start = loop.now();
  double longest = 0, now = start;
  for (bool first = true; !loop.stop_requested() && (first || now + longest <= deadline); first = false) {
    const auto next = search.next((now - start) / std::max(deadline - longest - start, 1e-9));
    if (!next) return;
    loop.trial_began(*next);
    TuneTrial trial = loop.run(next->point, deadline);
    trial.stage = name_of(next->stage);
    if (trial.failure.empty())
      search.succeeded(next->point, trial.parameters_per_second);
    else
      search.failed(next->point);
    loop.trial_ended(trial);
    longest = std::max(longest, loop.now() - now);
    now = loop.now();
  }
}

}  // namespace headrace::tune
