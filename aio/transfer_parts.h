// A transfer, cut at the blocks of a direct file into what carries each part out: an operation for whole
// blocks, an EdgeBlock for each end.
#pragma once

#include <cstdint>
#include <memory>

#include "aio/alignment.h"
#include "aio/edge_block.h"
#include "aio/io_path.h"
#include "headrace/io_engine.h"

namespace headrace::aio {

class TransferParts {
 public:
  // Requests have at most `request_bytes`. Starts nothing.
  TransferParts(std::shared_ptr<Job> job, const IoFile& file, std::uint64_t offset, std::byte* address,
                Bytes request_bytes, IoPath& path, EdgeHost& host);
  // A part that cannot start ends with ENOMEM. Whole blocks may be kept back [IoPath::add].
  void start(bool may_keep_back);
  void fail(int code);  // in place of start()
  Bytes bounced_bytes() const;

 private:
  template <class Start>
  void start_part(std::size_t part, Start start);
  Operation operation(Bytes begin, Bytes bytes) const;
  std::shared_ptr<EdgeBlock> edge(Bytes begin, Bytes bytes) const;

  const std::shared_ptr<Job> job_;
  const int fd_, fixed_file_;
  const std::uint64_t offset_;
  std::byte* const address_;
  const FileAlignment alignment_;
  const AlignedParts cut_;
  const Bytes request_bytes_;
  IoPath& path_;
  EdgeHost& host_;
  std::shared_ptr<EdgeBlock> head_, tail_;
  std::shared_ptr<Operation> middle_;
};

}  // namespace headrace::aio
