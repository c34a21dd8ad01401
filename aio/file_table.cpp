#include "aio/file_table.h"

#include "aio/file_links.h"
#include "aio/fork_count.h"

namespace headrace::aio {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

class FileTable::Link final : public IoFile::Links::Link {
 public:
  Link(std::weak_ptr<FileTable> table, std::uint32_t place) : table_(std::move(table)), place_(place) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() override {
    if (fork_count() != owner_) return;  // the ring is the parent's
    if (const auto table = table_.lock()) table->release(place_);
  }
  bool stale() const override { return table_.expired(); }
  int place() const { return static_cast<int>(place_); }

 private:
  const std::weak_ptr<FileTable> table_;
  const std::uint32_t place_;
  const std::uint32_t owner_ = fork_count();
};

FileTable::FileTable(Uring& ring) : id_(next_id()), ring_(ring) {
  if (!ring.has_file_table()) return;
  for (std::uint32_t place = Uring::file_places; place > 0; --place) free_.push_back(place - 1);
}

int FileTable::place_of(const IoFile& file, const std::shared_ptr<FileTable>& self) {
  if (file.links() == nullptr || refused_) return -1;
  const auto link = file.links()->find_or_make(id_, [&]() -> std::shared_ptr<IoFile::Links::Link> {
    const auto place = take();
    if (!place) return nullptr;
    auto made = std::make_shared<Link>(self, *place);  // gives the place back
    refused_ = ring_.set_file(*place, file.fd()) != 0;
    return refused_ ? nullptr : made;
  });
  return link ? static_cast<const Link&>(*link).place() : -1;
}

std::optional<std::uint32_t> FileTable::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::nullopt;
  const std::uint32_t place = free_.back();
  free_.pop_back();
  return place;
}

void FileTable::release(std::uint32_t place) {
  (void)ring_.set_file(place, -1);
  const std::lock_guard lock(mutex_);
  free_.push_back(place);
}

}  // namespace headrace::aio
