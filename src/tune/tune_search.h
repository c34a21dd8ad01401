// Which point to measure next. A policy: it knows no disk and no clock, a point is a place on a grid, and its
// rate is whatever it is told. Rates are noisy and drift, so that points are compared through samples taken
// beside each other:
//   coarse   the start points once each, the first of them again and again as the measure of the others
//   again    the four best in rounds, then the two best
//   fine     neighbours of the best along each dimension, those first that the start points do not vary, each
//            beside the best unless it was far behind already; the best moves while one is better
//   confirm  the best, the runner-up and the usual point in turns, until the time is over
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace::tune {

using GridPoint = std::vector<std::uint32_t>;  // an index for each dimension

struct Grid {
  std::vector<std::uint32_t> sizes;                // of each dimension
  std::function<bool(const GridPoint&)> allowed;   // inside the limits
  std::function<double(const GridPoint&)> memory;  // what it costs: decides between equal rates
};

class TuneSearch {
 public:
  enum class Stage : std::uint8_t { coarse, again, fine, confirm };
  struct Trial {
    GridPoint point;
    Stage stage = Stage::coarse;
  };

  // Of `start` those that are allowed, in order of the trials. The first one is the usual point, which the
  // decision is compared with wherever it is allowed.
  TuneSearch(Grid grid, const std::vector<GridPoint>& start);

  // `spent`: the share of the search's time that is gone. Empty when there is nothing more to learn. The next
  // call comes after this trial was reported.
  std::optional<Trial> next(double spent);
  void succeeded(const GridPoint& point, double rate);
  void failed(const GridPoint& point);  // it is not tried again

  // Samples of the best beside samples of another point.
  struct Comparison {
    GridPoint with;
    int pairs = 0;
    double ratio = 0;      // of the best's rate to the other's: median over the pairs
    double deviation = 0;  // median absolute deviation of that
    double least = 0, most = 0;
  };
  struct Decision {
    GridPoint best;
    std::optional<Comparison> runner_up;
    std::optional<Comparison> usual;  // empty when the best is the usual point, or the latter never ran
    bool for_memory = false;          // as fast as the runner-up within the noise, and smaller
  };
  // Among the points that ran; empty when none did.
  std::optional<Decision> decision() const;

 private:
  struct Sample {
    GridPoint point;
    double rate = 0;
  };
  struct Rival {
    GridPoint point;
    double ratio = 0;  // of its rate to the best's
  };
  // Each puts the next trials into the queue, or moves on to the next stage; false at the end.
  bool refill();
  void start_again();
  bool refill_again();
  bool refill_fine();
  bool refill_confirm();
  void judge_candidates();
  void move_to(const GridPoint& point, double ratio);
  void consider_rival(const GridPoint& point, double ratio);
  void start_stage(Stage stage);

  bool usable(const GridPoint& point) const { return !failed_.contains(point); }
  bool has_run(const GridPoint& point) const;
  // The usual point, where it is allowed and did not fail.
  std::optional<GridPoint> usual() const;
  std::optional<Comparison> compare(const GridPoint& point, const GridPoint& with) const;
  // Puts `point` in the best's place where it is better than it, or equal and smaller: equal within the
  // deviation of the pairs, or within what nobody would notice. (The deviation of few pairs may be large by
  // chance; the runner-up has been near the best before, the usual point has not.)
  void challenge(Decision& decision, const GridPoint& point, bool by_deviation) const;
  std::vector<GridPoint> neighbours(const GridPoint& point, std::uint32_t dimension) const;
  std::uint32_t first_unvaried_dimension() const;
  void next_dimension();
  // Its rate to the usual point's, from all samples beside each other; 0: there are none.
  double standing(const GridPoint& point) const;
  bool far_behind(const GridPoint& point, const GridPoint& best) const;
  // Of each sample of `point` since mark_, to the mean of the nearest ones of `reference` before and behind
  // it.
  std::vector<double> ratios(const GridPoint& point, const GridPoint& reference) const;
  std::vector<double> ratios_since(std::size_t mark, const GridPoint& point,
                                   const GridPoint& reference) const;
  // Usable points that ran, best first: by those ratios, by their own rates where there is no reference.
  std::vector<GridPoint> ranked(std::vector<GridPoint> points, const GridPoint& reference) const;
  std::vector<GridPoint> points_that_ran() const;
  // The best so far, put right when it has failed since.
  std::optional<GridPoint> leader();

  Grid grid_;
  std::vector<GridPoint> start_;
  bool has_usual_ = false;  // it is start_.front()
  Stage stage_ = Stage::coarse;
  std::deque<GridPoint> queue_;
  std::vector<Sample> samples_;  // in order of time
  std::size_t mark_ = 0;         // the first sample of the comparison in progress
  std::set<GridPoint> failed_;
  std::vector<GridPoint> survivors_;  // best first
  std::uint32_t again_rounds_ = 0;
  std::set<GridPoint> compared_;  // with the best, in the fine stage
  std::vector<GridPoint> candidates_;
  bool verifying_ = false;                       // the candidate, a second time
  std::uint32_t dimension_ = 0, unchanged_ = 0;  // dimension looked along; since how many nothing has moved
  std::optional<Rival> rival_;
};
std::string_view name_of(TuneSearch::Stage stage);

}  // namespace headrace::tune
