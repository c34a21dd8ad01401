// A search against the clock: trials one after the other until it has nothing more to learn, the time is
// over, or a stop is asked for.
#pragma once

#include <functional>
#include <optional>

#include "headrace/tune.h"
#include "src/tune/tune_search.h"

namespace headrace::tune {

struct SearchLoop {
  std::function<double()> now;  // seconds since the start of it all
  // One trial, which ends at about `deadline` whatever it has by then; a failure is in the trial.
  std::function<TuneTrial(const GridPoint& point, double deadline)> run;
  std::function<bool()> stop_requested;
  std::function<void(const TuneSearch::Trial&)> trial_began;
  std::function<void(const TuneTrial&)> trial_ended;
};

// No trial is begun that, if it takes as long as the longest one so far, would end after `deadline`; but one
// is, however late it is.
void search_until(TuneSearch& search, double deadline, const SearchLoop& loop);

}  // namespace headrace::tune
