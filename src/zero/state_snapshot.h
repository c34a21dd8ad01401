// The optimizer states of one moment for a reader in another thread, while the engine goes on.
//
// [Note: copy before update] The reader takes the blocks in the order of the next update. A block that it has
// not come to lies where it always does: in memory, or in the swap store, whose extents of the committed step
// stay until they are written again. So nothing is copied, as long as the reader is ahead of the update. An
// update that comes to a block first copies it into one of a few buffers, or waits for one: the snapshot
// needs no more memory than these, whatever the model. Blocks of the device are all copied by the owner, in
// that order and as buffers become free, since lanes are the owner's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "headrace/engine_states.h"
#include "src/zero/parameter_store.h"
#include "src/zero/state_store.h"

namespace headrace {

// Host memory of the buffers of options.snapshot_buffers blocks.
Bytes snapshot_memory_bytes(std::span<const OptimizerBlock> blocks, const EngineOptions& options);

class StateSnapshots {
 public:
  StateSnapshots(EngineContext& context, StateStore& states, const ParameterStore& parameters);
  ~StateSnapshots();

  // Of the states as they are, with all lanes idle. One at a time: the one before has been read or given up.
  class Reader;
  std::unique_ptr<Reader> begin(bool reversed);

  // The owner's. Before the update of a block whose states are there (StateStore::state). May wait for the
  // reader.
  void before_update(std::uint32_t block);
  // Starts copies of device blocks into buffers that are free.
  void serve();
  void end() noexcept;  // gives up what was not read

 private:
  // Where a block's states of the snapshot are.
  enum class Place : std::uint8_t { at_home, being_read, being_copied, copied, done };
  struct Board;
  Bytes states_bytes(std::uint32_t block) const {
    return state_bytes(format_, states_.blocks()[block].range.numel);
  }
  // The arrays of a block whose states lie at `states`, and the master, where it is the parameters, there.
  StateArrays arrays(std::uint32_t block, std::byte* states, std::byte* master) const;
  std::byte* home_of_master(std::uint32_t block) const;
  void copy(std::uint32_t block, std::unique_lock<std::mutex>& lock);
  void copy(std::uint32_t block, std::byte* buffer);
  void settle_copies();

  EngineContext& context_;
  StateStore& states_;
  const ParameterStore& parameters_;
  const StateFormat format_, kept_format_;
  const bool on_device_, parameters_are_master_;
  Bytes master_offset_ = 0, buffer_bytes_ = 0;
  HostBuffer memory_;
  Pin pin_;
  std::shared_ptr<Board> board_;  // of the snapshot being read
  struct Copying {                // on the download lane
    std::shared_ptr<Board> board;
    std::uint32_t block;
    std::byte* buffer;
    Event event;
  };
  std::deque<Copying> copying_;
};

// The reader's side: one thread, any.
class StateSnapshots::Reader {
 public:
  using Visit = std::function<void(const OptimizerBlock&, const StateArrays&)>;
  Reader(const StateSnapshots& of, std::shared_ptr<Board> board, std::unique_ptr<SwapReader> store);
  ~Reader();  // gives up what was not read
  std::span<const std::uint32_t> order() const;
  // Brings every block, as kept_format. Throws what reading or `visit` throws, and gives up then.
  void visit(const Visit& visit);
  void give_up() noexcept;
  double owner_waited_seconds() const;

 private:
  struct Coming {
    std::byte* memory = nullptr;  // null: not asked for
    SwapTicket ticket;
  };
  bool on_nvme(std::uint32_t block) const;
  bool wanted(std::uint32_t block) const;
  void read_ahead(std::size_t position);
  StateArrays take(std::size_t position);
  void done(std::uint32_t block);

  const StateSnapshots& of_;
  std::shared_ptr<Board> board_;
  std::unique_ptr<SwapReader> store_;
  std::array<Coming, 2> coming_;  // by position, in turn
};

}  // namespace headrace
