// What a store does while the power may go at any moment.
#pragma once

#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "tests/unit/swap/recorded_run.h"

namespace headrace::testing {

struct Scenario {
  const char* name;
  void (*run)(RecordedRun&);
  std::size_t disks;  // different ones to try at least
  Shape shape{};
};
inline std::string name_of(const Scenario& scenario) {
  const Shape& shape = scenario.shape;
  const std::string on =
      fmt::format("{}_on_{}_path{}", scenario.name, shape.paths, shape.paths == 1 ? "" : "s");
  return shape.parity > 0 ? fmt::format("{}_parity_{}", on, shape.parity) : on;
}

inline void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << name_of(scenario);
}

namespace power_loss {

constexpr Bytes large_metadata_bytes = 5000;  // the journal is compacted at the 17th such record

inline void first_steps(RecordedRun& run) {
  run.create();
  run.commit(1);  // nothing is written: blocks stay without a version
  run.write({0});
  run.rollback();
  run.step(2);
  run.write();
  run.rollback();
  run.step(3);
  run.write({2});
  run.commit(4);
  run.release();
  run.step(5);
}

inline void compaction(RecordedRun& run) {
  run.create();
  for (std::uint64_t step = 1; step <= 15; ++step) run.step(step, large_metadata_bytes);
  run.record_from_here();
  run.step(16, large_metadata_bytes);
  run.write();
  run.commit(17, large_metadata_bytes, false, "commit that compacts");
  run.release();
  run.step(18, large_metadata_bytes);
}

inline void compaction_of_two_steps(RecordedRun& run) {
  run.create();
  for (std::uint64_t step = 1; step <= 15; ++step) run.step(step, large_metadata_bytes);
  run.write();
  run.record_from_here();
  run.commit(16, large_metadata_bytes);
  run.commit(17, large_metadata_bytes, false, "commit that compacts");
  run.go_back();
  run.step(17, large_metadata_bytes);
}

inline void going_back(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.commit(2);
  run.go_back();
  run.write();
  run.commit(2);
  run.release();
  run.write();
  run.commit(3);
  run.close();
  run.open();
  run.go_back();
  run.step(3);
}

// The journal ends in bytes of a record that never became whole.
inline void torn_tail(RecordedRun& run) {
  run.create();
  run.step(1);
  run.write();
  run.commit(2);
  run.close();
  for (const std::string& directory : run.options().directories)
    std::ofstream(directory + "/journal.bin", std::ios::app | std::ios::binary) << std::string(700, 'x');
  run.record_from_here();
  run.open("open with a torn tail");
  run.step(3);
  run.close();
  run.open();
  run.step(4);
}

inline void failed_flushes(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.fail(FileCall::sync, "journal.bin");
  run.commit(2, 0, true, "commit that fails");
  run.rollback();
  run.step(2);
  run.write();
  run.fail(FileCall::sync, "extents.bin");
  run.commit(3, 0, true, "commit that fails");
  run.rollback();
  run.step(3, 600);
}

inline void another_store_in_its_place(RecordedRun& run) {
  run.create();
  run.step(1);
  run.step(2);
  run.close();
  run.record_from_here();
  run.give_up();
  run.create("create in the place of another");
  run.step(7);
}

inline void removed(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.remove_and_close();
}

inline void killed_before_the_last_flush(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.commit(2);
  run.killed_before_the_last(FileCall::sync, "journal.bin");
  run.open();
  run.release();
  run.step(3);
}

// The step is in the journal of the first path alone: open() appends it to the others.
inline void killed_between_two_journals(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.commit(2);
  run.killed_before_the_last(FileCall::write, "path-1/rank-00000/journal.bin");
  run.open("open of journals that differ");
  run.release();
  run.step(3);
}

// A path that fails once. With parity it is given up, and the run goes on; its files come back as they are.
inline void a_path_fails(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.call_lost(0);
  run.fail(FileCall::sync, "journal.bin");
  run.commit(2, 0, false, "commit in which a path is lost");
  run.release();
  run.step(3);
  run.write();
  run.commit(4);
  run.go_back();
  run.step(4);
}

inline void a_path_dies(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.lose_path(0);
  run.step(2);
  run.step(3);
}

inline void a_path_dies_before_its_data_is_flushed(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.call_lost(0);
  run.fail(FileCall::sync, "path-0/rank-00000/extents.bin");
  run.commit(2, 0, false, "commit in which a path is lost");
  run.release();
  run.step(3);
}

// What the dead path holds is taken back on the others: it has more steps than they have.
inline void a_path_dies_and_the_others_go_back(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.commit(2);
  run.lose_path(0);
  run.go_back();
  run.write();
  run.commit(2);
  run.go_back();
  run.step(2);
  run.step(3);
  run.path_answers_again();
  run.close();
  run.open();
  run.step(4);
}

inline void opened_without_a_path_that_returns(RecordedRun& run) {
  run.create();
  run.step(1);
  run.close();
  run.record_from_here();
  run.open_without(0);
  run.step(2);
  run.write();
  run.commit(3);
  run.go_back();
  run.close();
  run.open();
  run.step(3);
}

inline void each_path_is_away_in_turn(RecordedRun& run) {
  run.create();
  run.step(1);
  run.close();
  run.record_from_here();
  std::uint64_t step = 1;
  for (const std::size_t path : {0, 2, 1}) {
    run.open_without(path);
    run.step(++step);
    run.close();
    run.repair();
  }
}

// A store of two steps, to be repaired.
inline void make_for_repair(RecordedRun& run) {
  run.create();
  run.step(1);
  run.step(2);
  run.close();
}

inline void repair_of_a_path_that_is_gone(RecordedRun& run) {
  make_for_repair(run);
  std::filesystem::remove_all(run.folder_of(0));
  run.call_lost(0);
  run.record_from_here();
  run.repair();
  run.open();
  run.step(3);
}

inline void repair_of_a_path_that_was_away(RecordedRun& run) {
  make_for_repair(run);
  run.open_without(0);
  run.step(3);
  run.step(4);
  run.close();
  run.record_from_here();
  run.repair();
  run.open();
  run.step(5);
}

// Its journal says that it is whole.
inline void repair_of_a_path_without_its_pieces(RecordedRun& run) {
  make_for_repair(run);
  std::filesystem::remove(run.folder_of(1) + "/extents.bin");
  run.call_lost(1);
  run.record_from_here();
  run.repair();
}

inline void repair_in_another_folder(RecordedRun& run) {
  make_for_repair(run);
  run.replace_folder(1);
  run.call_lost(1);
  run.record_from_here();
  run.repair();
  run.open();
  run.step(3);
}

inline void repair_of_damaged_pieces(RecordedRun& run) {
  make_for_repair(run);
  const auto flip_both_copies = [&](std::size_t path, std::uint64_t offset) {
    const std::string file = run.folder_of(path) + "/extents.bin";
    flip_bit(file, offset);
    flip_bit(file, std::filesystem::file_size(file) / 2 + offset);
  };
  flip_both_copies(0, 0);     // of the first block
  flip_both_copies(2, 4096);  // of the last one
  run.call_damaged();
  run.record_from_here();
  run.repair();
  run.open();
  run.step(3);
}

inline void repair_of_journals_that_differ(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.commit(2);
  run.killed_before_the_last(FileCall::write, "path-1/rank-00000/journal.bin");
  run.repair();
  run.open();
  run.release();
  run.step(3);
}

inline void repair_of_two_paths(RecordedRun& run) {
  make_for_repair(run);
  run.open_without(3);
  run.step(3);
  run.close();
  std::filesystem::remove(run.folder_of(0) + "/extents.bin");
  run.call_lost(0);
  run.record_from_here();
  run.repair();
}

// Between two notes that the path is part of the store again.
inline void repair_that_is_killed(RecordedRun& run) {
  make_for_repair(run);
  std::filesystem::remove_all(run.folder_of(0));
  run.call_lost(0);
  run.record_from_here();
  run.repair();
  run.killed_before_the_last(FileCall::write, "journal.bin");
  run.open("open after a repair that was killed");
  run.step(3);
}

inline void pins(RecordedRun& run) {
  run.create();
  run.step(1);
  run.pin("a");
  run.step(2);
  run.step(3);
  run.pin("b");
  run.step(4);
  run.unpin("a");
  run.step(5);
  run.write({0});
  run.commit(6);
  run.release();
  run.pin("c");
  run.close();
  run.open();
  run.step(7);
  run.unpin("b");
  run.unpin("c");
  run.step(8);
  run.step(9);
}

// The pinned commit is no longer one of the store's.
inline void a_pinned_commit_is_gone_back_from(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.commit(2);
  run.pin("a");
  run.go_back();
  run.write();
  run.commit(2);
  run.release();
  run.step(3);
  run.step(4);
}

inline void going_back_to_a_pin(RecordedRun& run) {
  run.create();
  run.step(1);
  run.pin("a");
  run.step(2);
  run.step(3);
  run.record_from_here();
  run.go_back_to_pin("a");
  run.release();
  run.step(4);
  run.step(5);
}

inline void killed_before_a_pin_is_flushed(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.pin("a");
  run.killed_before_the_last(FileCall::sync, "rank-00000");
  run.open("open after a kill");
  run.step(2);
  run.step(3);
  run.step(4);
}

inline void killed_before_an_unpin_is_flushed(RecordedRun& run) {
  run.create();
  run.step(1);
  run.pin("a");
  run.record_from_here();
  run.step(2);
  run.unpin("a");
  run.killed_before_the_last(FileCall::sync, "rank-00000");
  run.open("open after a kill");
  run.step(3);
  run.step(4);
  run.step(5);
}

// The pin is in the folder of the first path alone: open() writes it to the others.
inline void killed_between_two_folders(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.pin("a");
  run.killed_before_the_last(FileCall::rename, "path-1/rank-00000/pin-a.bin.new");
  run.open("open of pins that differ");
  run.step(2);
  run.step(3);
  run.unpin("a");
  run.killed_before_the_last(FileCall::remove, "path-1/rank-00000/pin-a.bin");
  run.open("open of pins that differ");
  run.step(4);
  run.step(5);
}

inline void failed_pins(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.fail(FileCall::sync, "pin-a.bin.new");
  run.pin("a", true, "pin that fails");
  run.step(2);
  run.fail(FileCall::sync, "rank-00000");
  run.pin("a", true, "pin that fails");
  run.close();
  run.open("open after a pin that failed");
  run.unpin("a");
  run.step(3);
  run.step(4);
  run.pin("a");
  run.step(5);
}

inline void a_path_fails_while_pins_change(RecordedRun& run) {
  run.create();
  run.step(1);
  run.pin("a");
  run.record_from_here();
  run.call_lost(0);
  run.fail(FileCall::sync, "path-0/rank-00000/pin-b.bin.new");
  run.pin("b", false, "pin in which a path is lost");
  run.step(2);
  run.unpin("a");
  run.step(3);
  run.close();
  run.open();
  run.step(4);
}

inline void repair_of_a_path_that_missed_pins(RecordedRun& run) {
  run.create();
  run.step(1);
  run.pin("a");
  run.step(2);
  run.pin("b");
  run.close();
  run.open_without(0);
  run.unpin("a");
  run.step(3);
  run.pin("c");
  run.step(4);
  run.close();
  run.record_from_here();
  run.repair();
  run.open();
  run.step(5);
}

inline void repair_of_a_path_with_pins_that_is_gone(RecordedRun& run) {
  run.create();
  run.step(1);
  run.pin("a");
  run.step(2);
  run.step(3);
  run.close();
  std::filesystem::remove_all(run.folder_of(0));
  run.call_lost(0);
  run.record_from_here();
  run.repair();
  run.open();
  run.step(4);
}

}  // namespace power_loss

inline const std::vector<Scenario> power_loss_scenarios = [] {
  using namespace power_loss;
  constexpr Shape two_paths{.paths = 2}, with_parity{.paths = 3, .parity = 1}, five_paths{5, 2};
  constexpr Shape pinned{.pins = 2}, pinned_on_two{.paths = 2, .pins = 2}, pinned_with_parity{3, 1, 2};
  return std::vector<Scenario>{
      {"first_steps", first_steps, 2500},
      {"compaction", compaction, 2000},
      {"compaction_of_two_steps", compaction_of_two_steps, 1200},
      {"going_back", going_back, 1800},
      {"torn_tail", torn_tail, 1000},
      {"failed_flushes", failed_flushes, 2000},
      {"another_store_in_its_place", another_store_in_its_place, 500},
      {"removed", removed, 10},
      {"killed_before_the_last_flush", killed_before_the_last_flush, 300},
      {"first_steps", first_steps, 300, two_paths},
      {"compaction", compaction, 300, two_paths},
      {"compaction_of_two_steps", compaction_of_two_steps, 300, two_paths},
      {"going_back", going_back, 300, two_paths},
      {"torn_tail", torn_tail, 300, two_paths},
      {"failed_flushes", failed_flushes, 300, two_paths},
      {"another_store_in_its_place", another_store_in_its_place, 300, two_paths},
      {"removed", removed, 10, two_paths},
      {"killed_between_two_journals", killed_between_two_journals, 300, two_paths},
      {"first_steps", first_steps, 300, with_parity},
      {"compaction", compaction, 300, with_parity},
      {"compaction_of_two_steps", compaction_of_two_steps, 300, with_parity},
      {"going_back", going_back, 300, with_parity},
      {"torn_tail", torn_tail, 300, with_parity},
      {"another_store_in_its_place", another_store_in_its_place, 300, with_parity},
      {"removed", removed, 10, with_parity},
      {"killed_between_two_journals", killed_between_two_journals, 300, with_parity},
      {"a_path_fails", a_path_fails, 300, with_parity},
      {"a_path_dies", a_path_dies, 300, with_parity},
      {"a_path_dies_before_its_data_is_flushed", a_path_dies_before_its_data_is_flushed, 300, with_parity},
      {"a_path_dies_and_the_others_go_back", a_path_dies_and_the_others_go_back, 300, with_parity},
      {"opened_without_a_path_that_returns", opened_without_a_path_that_returns, 300, with_parity},
      {"each_path_is_away_in_turn", each_path_is_away_in_turn, 300, with_parity},
      {"repair_of_a_path_that_is_gone", repair_of_a_path_that_is_gone, 300, with_parity},
      {"repair_of_a_path_that_was_away", repair_of_a_path_that_was_away, 300, with_parity},
      {"repair_of_a_path_without_its_pieces", repair_of_a_path_without_its_pieces, 200, with_parity},
      {"repair_in_another_folder", repair_in_another_folder, 300, with_parity},
      {"repair_of_damaged_pieces", repair_of_damaged_pieces, 100, with_parity},
      {"repair_of_journals_that_differ", repair_of_journals_that_differ, 100, with_parity},
      {"repair_that_is_killed", repair_that_is_killed, 300, with_parity},
      {"repair_of_two_paths", repair_of_two_paths, 300, five_paths},
      {"pins", pins, 1500, pinned},
      {"pins", pins, 300, pinned_on_two},
      {"pins", pins, 300, pinned_with_parity},
      {"a_pinned_commit_is_gone_back_from", a_pinned_commit_is_gone_back_from, 300, pinned},
      {"a_pinned_commit_is_gone_back_from", a_pinned_commit_is_gone_back_from, 300, pinned_with_parity},
      {"going_back_to_a_pin", going_back_to_a_pin, 300, pinned},
      {"going_back_to_a_pin", going_back_to_a_pin, 300, pinned_with_parity},
      {"killed_before_a_pin_is_flushed", killed_before_a_pin_is_flushed, 300, pinned},
      {"killed_before_an_unpin_is_flushed", killed_before_an_unpin_is_flushed, 300, pinned},
      {"killed_between_two_folders", killed_between_two_folders, 300, pinned_on_two},
      {"killed_between_two_folders", killed_between_two_folders, 300, pinned_with_parity},
      {"failed_pins", failed_pins, 300, pinned},
      {"failed_pins", failed_pins, 300, pinned_on_two},
      {"a_path_fails_while_pins_change", a_path_fails_while_pins_change, 300, pinned_with_parity},
      {"repair_of_a_path_that_missed_pins", repair_of_a_path_that_missed_pins, 300, pinned_with_parity},
      {"repair_of_a_path_with_pins_that_is_gone", repair_of_a_path_with_pins_that_is_gone, 300,
       pinned_with_parity},
  };
}();

}  // namespace headrace::testing
