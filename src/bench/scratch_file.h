// A file that a benchmark fills: without a name, so that no end of the program leaves it behind.
#pragma once

#include <string>

#include "headrace/io_engine.h"

namespace headrace {

// Names that a kill left, between the creation of a file and the loss of its name. Removing one that another
// process is just making does it no harm: it loses its name next anyway.
void remove_leftover_files(const std::string& folder);

class ScratchFile {
 public:
  // In a folder that exists. Throws UsageError where no file can be made there.
  explicit ScratchFile(const std::string& folder);

  IoFile& file() { return file_; }
  const IoFile& file() const { return file_; }
  const std::string& folder() const { return folder_; }  // what messages name: the file has no name
  // Takes the space; false where the disk has not enough of it. True where the file system cannot reserve:
  // writing will tell.
  bool reserve(Bytes bytes);
  void shrink(Bytes bytes);
  // Writes what is dirty and asks the page cache to forget the file.
  void evict();
  // Asks the page cache of a buffered file to forget a part, so that its next read is one.
  void forget(std::uint64_t offset, Bytes bytes);
  // Share of the first `bytes` that are in memory.
  double resident_share(Bytes bytes) const;

 private:
  std::string folder_;
  IoFile file_;
};

}  // namespace headrace
