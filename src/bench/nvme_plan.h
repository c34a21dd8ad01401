// What a benchmark of storage does with its time and its disk: values and pure functions, tested without
// either.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/errors.h"
#include "headrace/io_shape.h"
#include "src/bench/block_order.h"

namespace headrace {

// Every combination of the options, reads first, sequential before random, small before large.
std::vector<BlockWork> nvme_works(const NvmeBenchOptions& options);
std::string text_of(const BlockWork& work);  // "random read 1MiB depth 8"

// A file must hold what is in flight, and the blocks prepared to follow.
Bytes least_file_bytes(Bytes largest_block, std::uint32_t largest_depth);
struct FileSpace {
  Bytes free_bytes = 0;
  std::optional<Bytes> memory_bytes{};  // available, where the pages of the file would take it
};
// Bytes of a path's file, whole blocks: as asked, or (asked 0) `usual`, at most a tenth of the free space and
// a quarter of the memory, but not less than `least`. None where that is not there.
std::optional<Bytes> choose_file_bytes(Bytes asked, Bytes usual, Bytes least, Bytes block,
                                       const FileSpace& space);

// Of `work` on each of `sharing` paths of one device: the blocks of a path that the device has at a time,
// `depth` or fewer; a part of one where a block is more requests than the engine has in flight.
double blocks_in_flight(const BlockWork& work, const IoShape& shape, std::size_t sharing);

// What is in flight takes so long to end, at the rate of what has moved in the seconds spent.
double drain_seconds(Bytes in_flight_bytes, Bytes moved_bytes, double spent);
// Whole seconds to ask for where so many are needed: some more.
double seconds_to_give(double needed);
// `written_bytes` of a file were written in the `share` of the time that `flag` gave, too few for
// `least_bytes`.
DoesNotFit too_little_written(std::string_view flag, Bytes written_bytes, double spent, Bytes least_bytes,
                              double share);

// [Note: time budget] Preparation writes until its file is full or a fifth of the time is over. A sample
// takes the time it is given and a fixed time beside: emptying the queue, checks. What is left is given out
// evenly, again before each sample, so that what one took too long the others make up for. Rounds are planned
// so that samples have their usual length, or a shorter one where that gives enough of them for a median.
inline constexpr double preparation_share = 0.2;
inline constexpr int most_nvme_rounds = 9, enough_nvme_rounds = 3;
inline constexpr double usual_sample_seconds = 0.1, least_sample_seconds = 0.02;

// Whose turn it is and for how long, for cases that alternate. Knows no clock: it is told what is left.
class SampleSchedule {
 public:
  struct Sample {
    std::size_t index = 0;  // of the case
    double seconds = 0;     // to give it
  };
  // fixed_seconds: by case, a guess until the first sample is taken.
  explicit SampleSchedule(std::vector<double> fixed_seconds);
  // None where nothing more fits, or every case has its rounds.
  std::optional<Sample> next(double seconds_left);
  void took(const Sample& sample, double seconds);  // seconds: in all
  void leave_out(std::size_t index);                // from now on

 private:
  bool begin_round(double seconds_left);
  int rounds_that_fit(double seconds_left) const;
  double fixed_of_round() const;

  std::size_t cases() const;  // but those left out

  std::vector<double> fixed_;
  std::vector<bool> left_out_;
  std::vector<std::vector<double>> seen_;  // by case
  std::size_t turn_, samples_left_ = 0;    // samples left: of all rounds planned
  double fixed_left_ = 0;
  int rounds_begun_ = 0;
  bool took_any_ = true;  // in this round
};

// What to do where the time was enough for one sample of a case.
std::string one_round_note(double seconds);

// Of the rates of equal intervals of continuous work; at least one.
struct SustainedSummary {
  double first = 0;      // the highest median of three neighbours in the first third: the fast cache
  double steady = 0;     // median of the last third
  bool settled = false;  // the halves of the last third differ by less than a tenth
};
SustainedSummary sustained_summary(const std::vector<double>& rates);

// What is known of where a case's bytes came from.
struct SourceEvidence {
  bool direct = true;
  bool in_memory = false;                // pages stay in memory when asked to leave it
  std::optional<double> from_storage{};  // share of the bytes read that the kernel fetched from storage
  double rate = 0;                       // GB/s
  std::optional<double> highest_rate{};  // GB/s that the drive's link, or else memory, can carry
};
NvmeSource source_of(const SourceEvidence& evidence);

}  // namespace headrace
