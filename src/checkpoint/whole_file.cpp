#include "src/checkpoint/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "headrace/errors.h"
#include "headrace/files.h"

namespace headrace {

WholeFile::WholeFile(const std::string& folder, std::string_view name, Bytes bytes)
    : folder_(folder),
      path_(fmt::format("{}/{}", folder, name)),
      partial_(path_ + std::string(partial_suffix)) {
  fd_ = Fd{::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (!fd_) throw IoError("open", partial_, 0, 0, errno);
  if (bytes == 0 || ::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) == 0) return;
  if (const int code = errno; code != EOPNOTSUPP && code != ENOSYS) {
    ::unlink(partial_.c_str());
    throw IoError("reserve", partial_, 0, bytes, code);
  }
}

WholeFile::~WholeFile() {
  if (!published_) ::unlink(partial_.c_str());
}

void WholeFile::append(std::span<const std::byte> data) {
  files::write_at(fd_.get(), partial_, next_, data);
  next_ += data.size();
}

void WholeFile::publish() {
  HEADRACE_CHECK(!published_, "{} is published twice", path_);
  if (::fsync(fd_.get()) != 0) throw IoError("fsync", partial_, 0, 0, errno);
  if (::close(fd_.release()) != 0) throw IoError("close", partial_, 0, 0, errno);
  if (::rename(partial_.c_str(), path_.c_str()) != 0) throw IoError("rename", partial_, 0, 0, errno);
  published_ = true;
  files::sync_folder(folder_);
}

void write_whole_file(const std::string& folder, std::string_view name, std::string_view contents) {
  WholeFile file(folder, name, contents.size());
  file.append(std::as_bytes(std::span(contents)));
  file.publish();
}

}  // namespace headrace
