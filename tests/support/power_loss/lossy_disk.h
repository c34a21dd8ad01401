// A disk as the loss of power may leave it. Calls that change files are applied to it in order (SyscallHook
// shows them); then image() is what may be found afterwards when of the changes that no flush covers some
// are lost, some kept, and writes torn in sectors of 512 bytes.
//
// What is durable: data and sizes of a file by fdatasync or fsync of that file; names in a folder (made,
// renamed, removed) by fsync of that folder, and by nothing else. After a failed flush of a file, what it
// should have written may or may not be on the disk, and no later flush changes that: the kernel calls those
// pages clean.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/power_loss/syscall_hook.h"

namespace headrace::testing {

// What becomes of a change that is not flushed. `tear` keeps a random part of a write's sectors, and of the
// growth of its file; for other changes it is `keep`.
enum class Fate : std::uint8_t { lose, keep, tear };

class LossyDisk {
 public:
  // Unflushed changes of names in one folder survive each by itself, or like a journal keeps them: when one
  // is lost, so are all later ones. Then a flush that succeeds has those before it too, also those of a flush
  // that failed.
  enum class Names : std::uint8_t { independent, in_order };
  using Image = std::map<std::string, std::string>;  // path below the root -> contents; a folder ends with /

  explicit LossyDisk(std::string root);  // what is in the folder `root` now is durable
  void apply(const FileEvent& event);
  void apply_failed(const FileEvent& event);  // the call was refused
  void leave_out(const FileEvent& flush);     // the call was not made

  std::size_t unflushed() const { return open_changes().size(); }
  // Of each unflushed change whether a flush that was left out would have covered it.
  std::vector<bool> left_out() const;
  // fates[i] is that of the i-th unflushed change.
  Image image(const std::vector<Fate>& fates, std::mt19937& random, Names names) const;
  Image current() const;  // as running programs see it: nothing is lost

 private:
  struct Change {
    enum class Kind : std::uint8_t { write, resize, grow, add, move, exchange, remove } kind = Kind::write;
    enum class State : std::uint8_t { unflushed, flushed, unknown_for_ever } state = State::unflushed;
    std::uint64_t offset = 0;  // write; the new size
    std::string data{};
    std::string name{}, target{};
    std::size_t node = 0, other_node = 0;  // which `target` and, of an exchange, `name` lead to
    bool left_out = false;                 // by a flush
  };
  struct Node {  // a file or a folder
    bool is_folder = false;
    std::string durable;                       // contents
    std::map<std::string, std::size_t> names;  // what is durably in the folder
    std::vector<Change> changes;
    std::map<std::string, std::size_t> current;  // of a folder: its names now
  };
  using Fates = std::map<const Change*, Fate>;

  std::vector<const Change*> open_changes() const;
  std::string relative(const std::string& path) const;
  std::size_t load(const std::string& path);
  std::size_t folder_of(const std::string& path, std::string& name) const;
  std::size_t find(const std::string& path) const;
  void add(const std::string& path, bool is_folder);
  void flush(Node& node);
  static void change(std::string& contents, const Change& change, Fate fate, std::mt19937& random);
  static void change(std::map<std::string, std::size_t>& names, const Change& change);
  void collect(std::size_t node, const std::string& path, const Fates& fates, std::mt19937& random,
               Names names, Image& out) const;

  std::string root_;
  std::vector<Node> nodes_;
};

// Makes `folder` hold the image and nothing else.
void write_image(const LossyDisk::Image& image, const std::string& folder);

}  // namespace headrace::testing
