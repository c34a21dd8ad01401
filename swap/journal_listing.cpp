#include <sys/stat.h>

#include <vector>

#include "headrace/files.h"
#include "headrace/swap_journal.h"
#include "swap/format.h"

namespace headrace {

bool SwapJournal::released() const {
  return torn_bytes > 0 || (!records.empty() && records.back().kind == SwapJournalRecord::Kind::release);
}

SwapJournal read_swap_journal(const std::string& directory) {
  SwapJournal journal{.path = files::join(directory, swap::journal_name)};
  const std::vector<std::byte> file = files::read_file(journal.path);
  journal.file_bytes = file.size();
  if (struct stat status{}; ::stat(journal.path.c_str(), &status) == 0)
    journal.disk_bytes = static_cast<Bytes>(status.st_blocks) * 512;
  journal.records = swap::list_records(file);
  const Bytes end = journal.records.empty() ? swap::journal_header_bytes()
                                            : journal.records.back().offset + journal.records.back().bytes;
  journal.torn_bytes = file.size() > end ? file.size() - end : 0;
  return journal;
}

}  // namespace headrace
