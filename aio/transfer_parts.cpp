#include "aio/transfer_parts.h"

#include <algorithm>
#include <cerrno>
#include <new>

namespace headrace::aio {

TransferParts::TransferParts(std::shared_ptr<Job> job, const IoFile& file, std::uint64_t offset,
                             std::byte* address, Bytes request_bytes, IoPath& path, EdgeHost& host)
    : job_(std::move(job)),
      fd_(file.fd()),
      fixed_file_(path.fix_file(file)),
      offset_(offset),
      address_(address),
      alignment_{.memory = file.memory_alignment(), .offset = file.offset_alignment()},
      cut_(cut_at_blocks(offset, job_->bytes(), reinterpret_cast<std::uintptr_t>(address), alignment_)),
      request_bytes_(request_bytes),
      path_(path),
      host_(host) {
  if (cut_.middle_bounced) path.prepare_to_bounce();
  if (cut_.head > 0) head_ = edge(0, cut_.head);
  if (cut_.middle > 0) middle_ = std::make_shared<Operation>(operation(cut_.head, cut_.middle));
  if (cut_.tail > 0) tail_ = edge(cut_.head + cut_.middle, cut_.tail);
}

void TransferParts::start(bool may_keep_back) {
  if (head_) start_part(head_->part(), [&] { head_->begin(); });
  if (middle_) start_part(middle_->part, [&] { path_.add(middle_, may_keep_back); });
  if (tail_) start_part(tail_->part(), [&] { tail_->begin(); });
}

template <class Start>
void TransferParts::start_part(std::size_t part, Start start) {
  try {
    start();
  } catch (const std::bad_alloc&) {
    job_->end_part(part, {.code = ENOMEM});
  }
}

void TransferParts::fail(int code) {
  if (head_) job_->end_part(head_->part(), {.code = code});
  if (middle_) job_->end_part(middle_->part, {.code = code});
  if (tail_) job_->end_part(tail_->part(), {.code = code});
}

Bytes TransferParts::bounced_bytes() const {
  return cut_.head + cut_.tail + (cut_.middle_bounced ? cut_.middle : 0);
}

Operation TransferParts::operation(Bytes begin, Bytes bytes) const {
  const bool bounced = cut_.middle_bounced;
  const Bytes piece = bounced ? std::min(IoPath::bounce_bytes, request_bytes_) : request_bytes_;
  return {.direction = job_->direction(),
          .fd = fd_,
          .fixed_file = fixed_file_,
          .offset = offset_ + begin,
          .address = address_ + begin,
          .bounced = bounced,
          .transfer = Transfer(bytes, piece, std::max(alignment_.memory, alignment_.offset)),
          .job = job_,
          .part = job_->add_part(bytes)};
}

std::shared_ptr<EdgeBlock> TransferParts::edge(Bytes begin, Bytes bytes) const {
  const Bytes block_bytes = alignment_.offset;
  const Bytes skip = (offset_ + begin) % block_bytes;
  Operation whole = operation(begin, bytes);
  whole.offset -= skip;
  whole.bounced = false;  // it has a copy of its own
  return std::make_shared<EdgeBlock>(std::move(whole), block_bytes, alignment_.memory, skip, bytes, path_,
                                     host_);
}

}  // namespace headrace::aio
