// A snapshot of an engine's states that a thread reads while the engine goes on, beside what it must hold.
#pragma once

#include <chrono>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/engine.h"

namespace headrace::testing {

// Every byte of the states, by parameter and element.
using SnapshotContents = std::map<std::pair<std::string, std::uint64_t>, std::vector<float>>;

inline PieceVisitor collect(SnapshotContents& contents, const StateFormat& format) {
  return [&contents, format](const StatePiece& piece, const StateArrays& states, std::uint64_t at) {
    std::vector<float>& values = contents[{piece.parameter->name, piece.first}];
    std::vector<float> part(piece.numel);
    read_master(format.master, states.master, at, piece.numel, part.data());
    values = part;
    for (int m = 0; m < moment_count(format); ++m) {
      read_moment(format, m, states.moments[static_cast<std::size_t>(m)], at, piece.numel, part.data());
      values.insert(values.end(), part.begin(), part.end());
    }
  };
}

// What one rank does: takes a snapshot after one step and lets a thread read it while more steps are made.
struct SnapshotReading {
  SnapshotContents expected, found;
  std::unique_ptr<StateSnapshot> snapshot;
  std::future<void> reader;

  void begin(Engine& engine, std::chrono::microseconds pause) {
    const StateFormat format = engine.state_format();
    engine.visit_pieces(collect(expected, format));
    snapshot = engine.snapshot();
    reader = std::async(std::launch::async, [this, format, pause] {
      const PieceVisitor take = collect(found, format);
      snapshot->visit([&](const StatePiece& piece, const StateArrays& states, std::uint64_t at) {
        std::this_thread::sleep_for(pause);
        take(piece, states, at);
      });
    });
  }
  void end(Engine& engine) {
    while (reader.wait_for(std::chrono::microseconds(100)) != std::future_status::ready)
      engine.serve_snapshot();
    reader.get();
  }
};

}  // namespace headrace::testing
