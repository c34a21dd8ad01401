#include "swap/table_reader.h"

#include "headrace/errors.h"
#include "swap/transfer.h"

namespace headrace::swap {
namespace {

class TableReader final : public SwapReader {
 public:
  TableReader(std::shared_ptr<Stripes> stripes, ExtentTable table)
      : stripes_(std::move(stripes)), table_(std::move(table)) {}

  // Without a parity buffer of its own: rebuilding shares one.
  SwapTicket read(std::uint32_t block, HostLease buffer) override {
    const std::span<const ExtentEntry> entries =
        std::span(table_).subspan(stripes_->map.entry(block), stripes_->map.shape().pieces());
    HEADRACE_CHECK(entries.front().generation > 0, "swap block \"{}\" is read but was never written",
                   stripes_->blocks[block].name);
    if (stripes_->group.too_many_lost()) stripes_->group.throw_too_many_lost();
    return make_ticket(std::make_shared<Transfer>(stripes_, IoDirection::read, block, entries,
                                                  std::move(buffer), ParityBuffers::Slot{}, false));
  }

 private:
  const std::shared_ptr<Stripes> stripes_;
  const ExtentTable table_;
};

}  // namespace

std::unique_ptr<SwapReader> make_table_reader(std::shared_ptr<Stripes> stripes, ExtentTable table) {
  return std::make_unique<TableReader>(std::move(stripes), std::move(table));
}

}  // namespace headrace::swap
