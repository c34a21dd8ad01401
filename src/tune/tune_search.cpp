#include "src/tune/tune_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "headrace/statistics.h"

namespace headrace::tune {
namespace {

constexpr std::size_t reference_every = 4;  // trials of the coarse stage: the reference and three others
constexpr std::size_t most_survivors = 4, finalists = 2;
constexpr std::uint32_t rounds_of_finalists = 2;
constexpr double worth_moving = 1.01;  // less is noise
constexpr double equal_within = 0.02;  // rates that nobody would tell apart
constexpr double hopeless = 0.8;       // of the best's rate: no noise of a few samples makes up for that

// The share of the time at which a stage ends, done or not.
double end_of(TuneSearch::Stage stage) {
  constexpr double ends[] = {0.40, 0.60, 0.80, 1.0};
  return ends[static_cast<std::size_t>(stage)];
}

}  // namespace

std::string_view name_of(TuneSearch::Stage stage) {
  constexpr std::string_view names[] = {"coarse", "again", "fine", "confirm"};
  return names[static_cast<std::size_t>(stage)];
}

TuneSearch::TuneSearch(Grid grid, const std::vector<GridPoint>& start) : grid_(std::move(grid)) {
  has_usual_ = !start.empty() && grid_.allowed(start.front());
  for (const GridPoint& point : start)
    if (grid_.allowed(point)) start_.push_back(point);
  for (std::size_t i = 0; i < start_.size(); ++i) {
    if (i > 0 && (i - 1) % (reference_every - 1) == 0) queue_.push_back(start_.front());
    if (i > 0) queue_.push_back(start_[i]);
  }
  if (!start_.empty()) queue_.push_back(start_.front());
  dimension_ = first_unvaried_dimension();
}

std::uint32_t TuneSearch::first_unvaried_dimension() const {
  for (std::uint32_t dimension = 0; dimension < grid_.sizes.size(); ++dimension) {
    const bool varied = std::any_of(start_.begin(), start_.end(), [&](const GridPoint& point) {
      return point[dimension] != start_.front()[dimension];
    });
    if (!varied) return dimension;
  }
  return 0;
}

std::optional<TuneSearch::Trial> TuneSearch::next(double spent) {
  while (spent < 1) {
    if (spent >= end_of(stage_)) queue_.clear();
    while (!queue_.empty() && !usable(queue_.front())) queue_.pop_front();
    if (!queue_.empty()) {
      Trial trial{queue_.front(), stage_};
      queue_.pop_front();
      return trial;
    }
    const bool late = spent >= end_of(stage_);
    if (late && stage_ == Stage::again) start_stage(Stage::fine);
    if (late && stage_ == Stage::fine && spent >= end_of(Stage::fine)) {
      judge_candidates();
      if (verifying_) rival_ = Rival{candidates_.front(), 0};  // no time for a second look but in the turns
      start_stage(Stage::confirm);
    }
    if (!refill()) return std::nullopt;
  }
  return std::nullopt;
}

void TuneSearch::succeeded(const GridPoint& point, double rate) {
  samples_.push_back({point, rate});
}

void TuneSearch::failed(const GridPoint& point) {
  failed_.insert(point);
}

bool TuneSearch::has_run(const GridPoint& point) const {
  return std::any_of(samples_.begin(), samples_.end(), [&](const Sample& s) { return s.point == point; });
}

std::optional<GridPoint> TuneSearch::usual() const {
  return has_usual_ && usable(start_.front()) ? std::optional(start_.front()) : std::nullopt;
}

std::vector<GridPoint> TuneSearch::points_that_ran() const {
  std::vector<GridPoint> points;
  for (const Sample& sample : samples_)
    if (usable(sample.point) && std::find(points.begin(), points.end(), sample.point) == points.end())
      points.push_back(sample.point);
  return points;
}

std::vector<GridPoint> TuneSearch::neighbours(const GridPoint& point, std::uint32_t dimension) const {
  std::vector<GridPoint> found;
  for (const int step : {-1, 1}) {
    GridPoint neighbour = point;
    if (step < 0 ? point[dimension] == 0 : point[dimension] + 1 >= grid_.sizes[dimension]) continue;
    neighbour[dimension] += static_cast<std::uint32_t>(step);
    if (usable(neighbour) && grid_.allowed(neighbour)) found.push_back(neighbour);
  }
  return found;
}

std::vector<double> TuneSearch::ratios(const GridPoint& point, const GridPoint& reference) const {
  return ratios_since(mark_, point, reference);
}

std::vector<double> TuneSearch::ratios_since(std::size_t mark, const GridPoint& point,
                                             const GridPoint& reference) const {
  std::vector<double> found;
  for (std::size_t i = mark; i < samples_.size(); ++i) {
    if (samples_[i].point != point) continue;
    double sum = 0;
    int count = 0;
    const auto add = [&](const Sample& sample) { sum += sample.rate, ++count; };
    for (std::size_t before = i; before > mark; --before)
      if (samples_[before - 1].point == reference) {
        add(samples_[before - 1]);
        break;
      }
    for (std::size_t behind = i + 1; behind < samples_.size(); ++behind)
      if (samples_[behind].point == reference) {
        add(samples_[behind]);
        break;
      }
    if (count > 0) found.push_back(samples_[i].rate / (sum / count));
  }
  return found;
}

std::vector<GridPoint> TuneSearch::ranked(std::vector<GridPoint> points, const GridPoint& reference) const {
  std::map<GridPoint, double> score;
  const bool referenced = has_run(reference);
  for (const GridPoint& point : points) {
    std::vector<double> values;
    if (referenced && point != reference) values = ratios(point, reference);
    if (referenced && point == reference) values = {1.0};
    if (!referenced)
      for (const Sample& sample : samples_)
        if (sample.point == point) values.push_back(sample.rate);
    score[point] = values.empty() ? -1 : median(std::move(values));
  }
  std::erase_if(points, [&](const GridPoint& point) { return !usable(point) || score[point] < 0; });
  std::stable_sort(points.begin(), points.end(),
                   [&](const GridPoint& a, const GridPoint& b) { return score[a] > score[b]; });
  return points;
}

double TuneSearch::standing(const GridPoint& point) const {
  const auto usual = this->usual();
  if (!usual) return 0;
  return point == *usual ? 1 : median(ratios_since(0, point, *usual));
}

bool TuneSearch::far_behind(const GridPoint& point, const GridPoint& best) const {
  const double standing_of_best = standing(best), standing_of_point = standing(point);
  return standing_of_point > 0 && standing_of_point < hopeless * standing_of_best;
}

void TuneSearch::next_dimension() {
  ++unchanged_;
  dimension_ = (dimension_ + 1) % static_cast<std::uint32_t>(grid_.sizes.size());
}

void TuneSearch::start_stage(Stage stage) {
  stage_ = stage;
  mark_ = samples_.size();
  queue_.clear();
}

bool TuneSearch::refill() {
  if (stage_ == Stage::coarse) start_again();
  if (stage_ == Stage::again && refill_again()) return true;
  if (stage_ == Stage::fine && refill_fine()) return true;
  return stage_ == Stage::confirm && refill_confirm();
}

void TuneSearch::start_again() {
  if (start_.empty()) return start_stage(Stage::confirm);
  survivors_ = ranked(points_that_ran(), start_.front());
  if (survivors_.size() > most_survivors) survivors_.resize(most_survivors);
  again_rounds_ = 0;
  start_stage(survivors_.size() > 1 ? Stage::again : Stage::fine);
}

// The first one before and behind the others, so that each stands beside it.
bool TuneSearch::refill_again() {
  if (again_rounds_ > 0) {
    std::vector<GridPoint> order = ranked(survivors_, survivors_.front());
    if (!order.empty()) survivors_ = std::move(order);
    if (survivors_.size() > finalists) {
      survivors_.resize(finalists);
      again_rounds_ = 0;
    }
  }
  if (again_rounds_ >= rounds_of_finalists || survivors_.size() < finalists) {
    start_stage(Stage::fine);
    return false;
  }
  if (again_rounds_ == 0) mark_ = samples_.size();
  const std::uint32_t rounds = survivors_.size() > finalists ? 1 : rounds_of_finalists;
  for (std::uint32_t r = 0; r < rounds; ++r)
    for (const GridPoint& point : survivors_) queue_.push_back(point);
  queue_.push_back(survivors_.front());
  again_rounds_ += rounds;
  return true;
}

std::optional<GridPoint> TuneSearch::leader() {
  std::erase_if(survivors_, [&](const GridPoint& point) { return !usable(point); });
  if (survivors_.empty()) {
    mark_ = 0;
    survivors_ = points_that_ran();
    if (!survivors_.empty()) survivors_ = ranked(survivors_, survivors_.front());
  }
  return survivors_.empty() ? std::nullopt : std::optional(survivors_.front());
}

void TuneSearch::consider_rival(const GridPoint& point, double ratio) {
  if (!rival_ || !usable(rival_->point) || ratio > rival_->ratio) rival_ = {point, ratio};
}

void TuneSearch::move_to(const GridPoint& point, double ratio) {
  const GridPoint before = survivors_.front();
  if (rival_) rival_->ratio /= ratio;
  consider_rival(before, 1 / ratio);
  survivors_ = {point};
  compared_.insert(before);
  unchanged_ = 0;
}

// A candidate that is better than the best is tried beside it once more before it takes its place.
void TuneSearch::judge_candidates() {
  if (candidates_.empty()) return;
  const GridPoint best = survivors_.front();
  std::optional<GridPoint> winner;
  double winner_ratio = 0;
  for (const GridPoint& candidate : candidates_) {
    const double ratio = median(ratios(candidate, best));
    if (ratio <= 0 || !usable(candidate)) continue;
    if (ratio > worth_moving && ratio > winner_ratio)
      winner = candidate, winner_ratio = ratio;
    else
      consider_rival(candidate, ratio);
  }
  candidates_.clear();
  if (winner && verifying_) {
    move_to(*winner, winner_ratio);
  } else if (winner && stage_ == Stage::fine) {
    candidates_ = {*winner};
    queue_ = {*winner, best};
    verifying_ = true;
    return;
  } else {
    next_dimension();
  }
  verifying_ = false;
}

bool TuneSearch::refill_fine() {
  if (!leader()) {
    start_stage(Stage::confirm);
    return false;
  }
  judge_candidates();
  while (queue_.empty() && unchanged_ < grid_.sizes.size()) {
    const GridPoint best = survivors_.front();
    for (GridPoint& neighbour : neighbours(best, dimension_))
      if (!far_behind(neighbour, best) && compared_.insert(neighbour).second)
        candidates_.push_back(std::move(neighbour));
    if (candidates_.empty()) {
      next_dimension();
      continue;
    }
    mark_ = samples_.size();
    queue_.push_back(best);
    queue_.insert(queue_.end(), candidates_.begin(), candidates_.end());
    queue_.push_back(best);
  }
  if (!queue_.empty()) return true;
  start_stage(Stage::confirm);
  return false;
}

bool TuneSearch::refill_confirm() {
  const std::optional<GridPoint> best = leader();
  if (!best) return false;
  if (rival_ && (!usable(rival_->point) || rival_->point == *best)) rival_.reset();
  if (!rival_) {
    for (const GridPoint& point : points_that_ran())
      if (point != *best) {
        rival_ = {point, 0};
        mark_ = samples_.size();
        break;
      }
  }
  if (!rival_) return false;
  queue_ = {*best, rival_->point, rival_->point, *best};
  if (const auto usual = this->usual(); usual && *usual != *best && *usual != rival_->point)
    queue_ = {*best, rival_->point, *usual};
  return true;
}

std::optional<TuneSearch::Comparison> TuneSearch::compare(const GridPoint& point,
                                                          const GridPoint& with) const {
  if (point == with) return std::nullopt;
  const std::vector<double> pairs = ratios(point, with);
  if (pairs.empty()) return std::nullopt;
  return Comparison{.with = with,
                    .pairs = static_cast<int>(pairs.size()),
                    .ratio = median(pairs),
                    .deviation = median_deviation(pairs),
                    .least = *std::min_element(pairs.begin(), pairs.end()),
                    .most = *std::max_element(pairs.begin(), pairs.end())};
}

void TuneSearch::challenge(Decision& decision, const GridPoint& point, bool by_deviation) const {
  auto comparison = compare(decision.best, point);
  if (!comparison) return;
  const double memory = grid_.memory(point), memory_of_best = grid_.memory(decision.best);
  const double noise = by_deviation ? std::max(comparison->deviation, equal_within) : equal_within;
  const bool alike = std::abs(comparison->ratio - 1) <= noise;
  const bool wins = alike ? memory < memory_of_best : comparison->ratio < 1;
  if (!wins && decision.runner_up) return;
  if (wins) {
    comparison->with = std::exchange(decision.best, point);
    comparison->ratio = 1 / comparison->ratio;
    comparison->least = 1 / std::exchange(comparison->most, 1 / comparison->least);
  }
  decision.runner_up = comparison;
  decision.for_memory = alike && memory != memory_of_best;
}

std::optional<TuneSearch::Decision> TuneSearch::decision() const {
  TuneSearch copy = *this;  // the best is put right without a trace
  const std::optional<GridPoint> best = copy.leader();
  if (!best) return std::nullopt;
  Decision decision;
  decision.best = *best;
  const auto usual = this->usual();
  if (stage_ == Stage::confirm) {
    if (rival_ && usable(rival_->point)) challenge(decision, rival_->point, true);
    if (usual) challenge(decision, *usual, false);
  }
  if (usual) decision.usual = compare(decision.best, *usual);
  if (usual && !decision.usual) {  // not in turns yet: from all that was sampled
    copy.mark_ = 0;
    decision.usual = copy.compare(decision.best, *usual);
  }
  return decision;
}

}  // namespace headrace::tune
