#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "aio/direct_io.h"
#include "tests/unit/aio/in_child.h"
#include "tests/unit/aio/io_fixture.h"

namespace headrace::testing {
namespace {

using namespace headrace::literals;

class IoFileTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name = "data") const { return folder_.file(name); }
  IoFolder folder_;
};

Bytes reserved_bytes(const IoFile& file) {
  struct stat status {};
  EXPECT_EQ(::fstat(file.fd(), &status), 0);
  return static_cast<Bytes>(status.st_blocks) * 512;
}

std::string contents_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

template <class Action>
int code_of(Action action) {
  try {
    action();
  } catch (const IoError& error) {
    return error.code();
  }
  return 0;
}

TEST_F(IoFileTest, a_missing_file_is_an_error_with_its_path) {
  try {
    IoFile::open(path("missing"), IoFile::Mode::read_write);
    FAIL() << "no error";
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ENOENT);
    EXPECT_EQ(error.path(), path("missing"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr(path("missing")));
  }
}

TEST_F(IoFileTest, a_folder_or_a_device_that_is_no_disk_is_refused) {
  EXPECT_THROW(IoFile::open(path("."), IoFile::Mode::read_only), Error);
  EXPECT_THROW(IoFile::open(path("."), IoFile::Mode::read_write), Error);
  EXPECT_THROW(IoFile::open("/dev/null", IoFile::Mode::read_write), Error);
}

TEST_F(IoFileTest, create_empties_a_file_that_exists_and_read_write_does_not) {
  std::ofstream(path()) << "contents";
  EXPECT_EQ(IoFile::open(path(), IoFile::Mode::read_write).size_bytes(), 8u);
  EXPECT_EQ(IoFile::open(path(), IoFile::Mode::read_only).size_bytes(), 8u);
  EXPECT_EQ(IoFile::open(path(), IoFile::Mode::create).size_bytes(), 0u);
}

TEST_F(IoFileTest, alignment_is_what_the_file_states) {
  const IoFile file = IoFile::open(path(), IoFile::Mode::create);
  const auto stated = aio::stated_alignment(file.fd());
  if (!stated || stated->offset == 0)
    GTEST_SKIP() << "no STATX_DIOALIGN on " << aio::file_system_name(file.fd());
  EXPECT_TRUE(file.direct());
  EXPECT_EQ(file.memory_alignment(), stated->memory);
  EXPECT_EQ(file.offset_alignment(), stated->offset);
  EXPECT_NE(::fcntl(file.fd(), F_GETFL) & O_DIRECT, 0);
}

TEST_F(IoFileTest, a_buffered_file_asks_for_no_alignment) {
  const IoFile file = IoFile::open(path(), IoFile::Mode::create, false);
  EXPECT_FALSE(file.direct());
  EXPECT_EQ(file.memory_alignment(), 1u);
  EXPECT_EQ(file.offset_alignment(), 1u);
  EXPECT_EQ(::fcntl(file.fd(), F_GETFL) & O_DIRECT, 0);
}

TEST_F(IoFileTest, descriptors_are_closed_on_exec) {
  const IoFile file = IoFile::open(path(), IoFile::Mode::create);
  EXPECT_EQ(::fcntl(file.fd(), F_GETFD), FD_CLOEXEC);
}

TEST_F(IoFileTest, preallocation_reserves_the_space_and_keeps_the_contents) {
  std::ofstream(path()) << "contents";
  IoFile file = IoFile::open(path(), IoFile::Mode::read_write);
  file.preallocate(1_MiB);
  EXPECT_EQ(file.size_bytes(), 1_MiB);
  EXPECT_GE(reserved_bytes(file), 1_MiB);
  file.preallocate(4096);
  file.preallocate(0);
  EXPECT_EQ(file.size_bytes(), 1_MiB);
  file.sync_data();
  std::string start(8, ' ');
  std::ifstream(path()).read(start.data(), 8);
  EXPECT_EQ(start, "contents");
}

// A2
TEST_F(IoFileTest, a_refused_o_direct_falls_back_to_buffered_with_one_warning) {
  expect_in_child(
      [this] {
        refuse_system_call(SYS_openat, EINVAL, O_DIRECT);
        CapturedStandardError captured;
        const IoFile first = IoFile::open(path(), IoFile::Mode::create);
        const IoFile second = IoFile::open(path(), IoFile::Mode::read_only);
        const std::string message = captured.text();
        EXPECT_EQ(message.find("warning"), message.rfind("warning"));
        EXPECT_THAT(message, ::testing::HasSubstr(path()));
        EXPECT_FALSE(first.direct());
        EXPECT_EQ(second.offset_alignment(), 1u);
      },
      "is on .*, which refuses direct I/O");
}

TEST_F(IoFileTest, a_refused_o_direct_is_told_once_for_all_files_of_a_file_system) {
  expect_in_child(
      [this] {
        refuse_system_call(SYS_openat, EINVAL, O_DIRECT);
        CapturedStandardError captured;
        for (const char* other : {"", ".other", ".third"})
          EXPECT_FALSE(IoFile::open(path() + other, IoFile::Mode::create).direct());
        const std::string message = captured.text();
        EXPECT_EQ(message.find("warning"), message.rfind("warning"));
      },
      "which refuses direct I/O: files there");
}

TEST_F(IoFileTest, a_direct_file_whose_first_read_is_refused_falls_back_to_buffered) {
  expect_in_child(
      [this] {
        refuse_system_call(SYS_statx, ENOSYS);
        refuse_system_call(SYS_pread64, EINVAL);
        EXPECT_FALSE(IoFile::open(path(), IoFile::Mode::create).direct());
      },
      "refuses direct I/O");
}

TEST_F(IoFileTest, a_file_that_does_not_state_its_alignment_is_assumed_to_need_4096) {
  expect_in_child(
      [this] {
        refuse_system_call(SYS_statx, ENOSYS);
        const IoFile file = IoFile::open(path(), IoFile::Mode::create);
        EXPECT_TRUE(file.direct());
        EXPECT_EQ(file.offset_alignment(), 4096u);
        EXPECT_EQ(file.memory_alignment(), 4096u);
      },
      "");
}

TEST_F(IoFileTest, without_fallocate_zeros_reserve_the_space) {
  expect_in_child(
      [this] {
        refuse_system_call(SYS_fallocate, EOPNOTSUPP);
        for (const bool direct : {true, false}) {
          IoFile file = IoFile::open(path(), IoFile::Mode::create, direct);
          file.preallocate(2_MiB + 100);
          EXPECT_EQ(file.size_bytes(), 2_MiB + 100);
          EXPECT_EQ(::fsync(file.fd()), 0);
          EXPECT_GE(reserved_bytes(file), 2_MiB);
        }
      },
      "");
}

TEST_F(IoFileTest, without_fallocate_what_a_file_holds_already_needs_nothing_and_is_kept) {
  expect_in_child(
      [this] {
        refuse_system_call(SYS_fallocate, EOPNOTSUPP);
        for (const bool direct : {true, false}) {
          const std::string contents(1_MiB, 'x');
          std::ofstream(path()) << contents;
          IoFile file = IoFile::open(path(), IoFile::Mode::read_write, direct);
          for (const Bytes bytes : {1_MiB, Bytes{4096}, Bytes{100}}) {
            file.preallocate(bytes);
            EXPECT_EQ(file.size_bytes(), 1_MiB);
          }
          EXPECT_EQ(contents_of(path()), contents);
        }
      },
      "");
}

// Data begins and ends inside blocks of the file system, and lies at both sides of the second hole.
TEST_F(IoFileTest, without_fallocate_zeros_fill_holes_between_data_that_stays) {
  expect_in_child(
      [this] {
        refuse_system_call(SYS_fallocate, EOPNOTSUPP);
        for (const bool direct : {true, false}) {
          std::string contents(4_MiB, '\0');
          {
            IoFile file = IoFile::open(path(), IoFile::Mode::create, false);
            ASSERT_EQ(::ftruncate(file.fd(), static_cast<off_t>(contents.size())), 0);
            for (const Bytes at : {1_MiB + 100, 3_MiB - 7}) {
              contents.replace(at, 10'000, 10'000, 'x');
              ASSERT_EQ(::pwrite(file.fd(), &contents[at], 10'000, static_cast<off_t>(at)), 10'000);
            }
            file.sync_data();
            EXPECT_LT(reserved_bytes(file), 1_MiB);
          }
          IoFile file = IoFile::open(path(), IoFile::Mode::read_write, direct);
          file.preallocate(4_MiB);
          EXPECT_EQ(::fsync(file.fd()), 0);
          EXPECT_GE(reserved_bytes(file), 4_MiB);
          EXPECT_EQ(contents_of(path()), contents);
          file.preallocate(4_MiB + 4096);
          EXPECT_EQ(contents_of(path()), contents + std::string(4096, '\0'));
        }
      },
      "");
}

TEST_F(IoFileTest, without_fallocate_a_reservation_that_may_not_write_takes_nothing) {
  expect_in_child(
      [this] {
        refuse_system_call(SYS_fallocate, EOPNOTSUPP);
        IoFile file = IoFile::open(path(), IoFile::Mode::create);
        file.preallocate(1_MiB, false);
        EXPECT_EQ(file.size_bytes(), 0u);
      },
      "");
}

TEST_F(IoFileTest, failing_flushes_and_reservations_are_errors_with_path_and_errno) {
  expect_in_child(
      [this] {
        IoFile file = IoFile::open(path(), IoFile::Mode::create);
        refuse_system_call(SYS_fdatasync, EIO);
        EXPECT_EQ(code_of([&] { file.sync_data(); }), EIO);
        refuse_system_call(SYS_fallocate, EIO);
        EXPECT_EQ(code_of([&] { file.preallocate(4096); }), EIO);
      },
      "");
}

TEST_F(IoFileTest, a_full_disk_is_found_by_preallocation_and_nothing_is_kept) {
  if (::geteuid() != 0) GTEST_SKIP() << "mounting a small file system needs root";
  expect_in_child(
      [this] {
        const std::string mount_point = path("small");
        ASSERT_EQ(::mkdir(mount_point.c_str(), 0700), 0);
        ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
        ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
        ASSERT_EQ(::mount("small", mount_point.c_str(), "tmpfs", 0, "size=1m"), 0);
        IoFile file = IoFile::open(mount_point + "/data", IoFile::Mode::create);
        EXPECT_EQ(code_of([&] { file.preallocate(16_MiB); }), ENOSPC);
        EXPECT_EQ(file.size_bytes(), 0u);
        EXPECT_EQ(reserved_bytes(file), 0u);
        file.preallocate(512_KiB);

        const AlignedMemory memory(2_MiB);
        for (const auto& make : {make_uring_engine, make_thread_engine}) {
          const IoResult result = transfer(*make({}), IoDirection::write, file, 0, memory);
          EXPECT_EQ(result.code, ENOSPC);
          EXPECT_LE(result.bytes, 1_MiB);
        }
      },
      "");
}

}  // namespace
}  // namespace headrace::testing
