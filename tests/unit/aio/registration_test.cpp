// Memory and files that an engine knows in advance.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/support/bounded_wait.h"
#include "tests/unit/aio/in_child.h"
#include "tests/unit/aio/io_fixture.h"

namespace headrace::testing {
namespace {

using namespace headrace::literals;
using ::testing::HasSubstr;

class Registration : public ::testing::TestWithParam<std::unique_ptr<IoEngine> (*)(const IoEngineOptions&)> {
 protected:
  void SetUp() override { engine_ = GetParam()({.queue_depth = 4, .request_bytes = 64_KiB}); }
  bool is_uring() const { return engine_->name() == "io_uring"; }
  void expect_round_trip(const AlignedMemory& written, AlignedMemory& read) {
    const Bytes bytes = written.span().size();
    expect_whole(transfer(*engine_, IoDirection::write, file_, 0, written), bytes);
    expect_whole(transfer(*engine_, IoDirection::read, file_, 0, read), bytes);
    EXPECT_TRUE(written == read);
  }
  // Out of the memory, byte by byte as it was, and back into it.
  void expect_round_trip_in(std::span<std::byte> memory, const IoFile& file) {
    const Bytes bytes = memory.size();
    AlignedMemory pattern(bytes), read(bytes);
    pattern.fill(bytes);
    std::ranges::copy(pattern.span(), memory.begin());
    expect_whole(engine_->submit(IoDirection::write, file, 0, HostLease::borrowed(memory), bytes).wait(),
                 bytes);
    expect_whole(transfer(*engine_, IoDirection::read, file, 0, read), bytes);
    EXPECT_TRUE(read == pattern) << "written from";
    std::ranges::fill(memory, std::byte{0});
    expect_whole(engine_->submit(IoDirection::read, file, 0, HostLease::borrowed(memory), bytes).wait(),
                 bytes);
    EXPECT_TRUE(std::ranges::equal(memory, pattern.span())) << "read to";
  }
  // What went through registered memory, of the whole transfer's bytes.
  void expect_registered(Bytes bytes) const {
    EXPECT_EQ(engine_->counters().registered_bytes, is_uring() ? bytes : 0);
  }

  IoFolder folder_;
  IoFile file_ = IoFile::open(folder_.file("data"), IoFile::Mode::create);
  std::unique_ptr<IoEngine> engine_;
};

TEST_P(Registration, transfers_inside_use_it_and_those_outside_work_the_same) {
  AlignedMemory inside(1_MiB), outside(1_MiB);
  inside.fill(1);
  {
    const IoRegistration registration = engine_->register_memory(inside.span());
    expect_round_trip(inside, outside);
    expect_registered(1_MiB);
  }
  inside.fill(2);
  expect_round_trip(inside, outside);
  expect_registered(1_MiB);  // no more
}

TEST_P(Registration, of_memory_on_an_engine_with_open_paths_serves_them_too) {
  AlignedMemory memory(64_KiB), read(64_KiB);
  expect_whole(transfer(*engine_, IoDirection::write, file_, 0, memory), 64_KiB);
  const IoRegistration registration = engine_->register_memory(memory.span());
  memory.fill(3);
  expect_round_trip(memory, read);
  expect_registered(64_KiB);
}

TEST_P(Registration, of_nothing_and_of_a_part_of_a_page_is_possible) {
  const IoRegistration nothing = engine_->register_memory({});
  AlignedMemory memory(64_KiB), read(64_KiB);
  const IoRegistration part = engine_->register_memory(memory.span().subspan(4096 + 100, 1000));
  expect_round_trip(memory.fill(1), read);
  expect_registered(0);
}

TEST_P(Registration, of_the_same_memory_again_and_again_leaves_nothing_behind) {
  AlignedMemory memory(64_KiB), read(64_KiB);
  for (int i = 0; i < 3000; ++i) const IoRegistration registration = engine_->register_memory(memory.span());
  const IoRegistration registration = engine_->register_memory(memory.span());
  expect_round_trip(memory.fill(1), read);
  expect_registered(64_KiB);
}

TEST_P(Registration, of_two_halves_serves_transfers_across_their_border) {
  AlignedMemory memory(1_MiB);
  const auto all = memory.span();
  const IoRegistration first = engine_->register_memory(all.first(512_KiB));
  const IoRegistration second = engine_->register_memory(all.last(512_KiB));
  for (const Bytes before : {Bytes{4096}, 32_KiB, 60_KiB})
    expect_round_trip_in(all.subspan(512_KiB - before, 64_KiB), file_);
  // On a buffered file at any byte.
  const IoFile buffered = IoFile::open(folder_.file("buffered"), IoFile::Mode::create, false);
  for (const Bytes before : {Bytes{1}, Bytes{513}, Bytes{4097}})
    expect_round_trip_in(all.subspan(512_KiB - before, 5000), buffered);
}

TEST_P(Registration, comes_and_goes_while_transfers_are_in_flight) {
  std::atomic<bool> stop{false};
  AlignedMemory memory(1_MiB), read(1_MiB), other(16_MiB);
  std::jthread registrar([&] {
    while (!stop) {
      const IoRegistration first = engine_->register_memory(memory.span());
      const IoRegistration second = engine_->register_memory(other.span());
    }
  });
  for (int i = 0; i < 30; ++i) expect_round_trip(memory.fill(static_cast<std::uint64_t>(i)), read);
  stop = true;
}

// 1.06 GiB of addresses, 64 MiB of memory: more than the kernel takes in one piece.
TEST_P(Registration, of_more_than_1_gib_serves_its_last_byte) {
  constexpr Bytes part = 64_MiB, bytes = 17 * part;
  const Fd shared(::memfd_create("part", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(shared.get(), static_cast<off_t>(part)), 0);
  auto* base = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(base, MAP_FAILED);
  for (Bytes at = 0; at < bytes; at += part)
    ASSERT_NE(::mmap(base + at, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, shared.get(), 0),
              MAP_FAILED);
  {
    const IoRegistration registration = engine_->register_memory({base, bytes});
    for (const Bytes at : {Bytes{0}, bytes - 64_KiB})
      expect_whole(
          engine_->submit(IoDirection::write, file_, 0, HostLease::borrowed({base + at, 64_KiB}), 64_KiB)
              .wait(),
          64_KiB);
    expect_registered(128_KiB);
    // Across the border of two pieces, too.
    expect_round_trip_in({base + 1_GiB - 32_KiB, 64_KiB}, file_);
  }
  ::munmap(base, bytes);
}

INSTANTIATE_TEST_SUITE_P(Engines, Registration, ::testing::Values(make_uring_engine, make_thread_engine),
                         [](const auto& tested) { return tested.index == 0 ? "uring" : "threads"; });

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A4. Root is exempt from the limit, so the test becomes nobody where it can.
TEST(RegistrationLimit, of_locked_memory_costs_one_warning_that_names_limit_and_need) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        const rlimit limit{64 << 10, 64 << 10};
        ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
        constexpr uid_t nobody = 65534;
        if (::geteuid() == 0) {
          ASSERT_EQ(::setresgid(nobody, nobody, nobody), 0);
          ASSERT_EQ(::setresuid(nobody, nobody, nobody), 0);
        }
        AlignedMemory memory(4_MiB), read(4_MiB);
        CapturedStandardError captured;
        for (std::uint64_t i = 0; i < 100; ++i) {
          const auto engine = make_uring_engine({});
          const IoRegistration first = engine->register_memory(memory.span());
          const IoRegistration second = engine->register_memory(read.span());
          expect_whole(transfer(*engine, IoDirection::write, file, 0, memory.fill(i)), 4_MiB);
          expect_whole(transfer(*engine, IoDirection::read, file, 0, read), 4_MiB);
          EXPECT_TRUE(memory == read);
          EXPECT_EQ(engine->counters().registered_bytes, 0u);
        }
        const std::string message = captured.text();
        EXPECT_EQ(count_of(message, "\n"), 1u) << message;
        EXPECT_THAT(message, HasSubstr("4.00 MiB"));
        EXPECT_THAT(message, HasSubstr("64.0 KiB"));
      },
      "locked memory");
}

// A12: what an engine keeps for a file ends with the file.
class OpenFiles : public Registration {
 protected:
  Bytes free_bytes() const {
    struct statvfs status {};
    EXPECT_EQ(::statvfs(folder_.file("").c_str(), &status), 0);
    return Bytes{status.f_bfree} * status.f_bsize;
  }
  static std::size_t deleted_files() {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code ignored;
      if (std::filesystem::read_symlink(entry.path(), ignored).string().ends_with("(deleted)")) ++count;
    }
    return count;
  }
};

TEST_P(OpenFiles, thousands_of_opened_and_unlinked_files_leave_no_descriptor_behind) {
  const AlignedMemory memory(4096);
  const std::size_t descriptors = open_descriptors();
  const auto cycle = [&](const std::string& name) {
    const IoFile file = IoFile::open(folder_.file(name), IoFile::Mode::create);
    EXPECT_EQ(transfer(*engine_, IoDirection::read, file, 0, memory).code, EIO);  // it is empty
    ::unlink(folder_.file(name).c_str());
  };
  for (int i = 0; i < 3000; ++i) cycle(std::to_string(i % 7));
  EXPECT_EQ(open_descriptors(), descriptors + (is_uring() ? 1 : 0));  // the ring of the path
  EXPECT_EQ(deleted_files(), 0u);
}

// Each round takes 64 MiB; a table that kept one of the files would keep its space.
TEST_P(OpenFiles, an_unlinked_file_gives_its_space_back_when_it_is_closed) {
  constexpr Bytes bytes = 64_MiB;
  const AlignedMemory memory(64_KiB);
  const std::string path = folder_.file("large");
  for (int i = 0; i < 5; ++i) {
    auto file = std::make_unique<IoFile>(IoFile::open(path, IoFile::Mode::create));
    file->preallocate(bytes);
    EXPECT_TRUE(transfer(*engine_, IoDirection::write, *file, 0, memory).ok());
    ::unlink(path.c_str());
    const ino_t inode = static_cast<ino_t>(file->id().inode);
    const Bytes held = free_bytes();
    file.reset();
    // Other programs use the disk too: most of it must be back, soon.
    EXPECT_TRUE(test::eventually([&] { return free_bytes() > held + bytes / 2; })) << "inode " << inode;
  }
}

TEST_P(OpenFiles, more_files_than_the_table_has_places_all_work) {
  constexpr std::size_t count = 300;
  std::vector<AlignedMemory> written;
  std::vector<IoFile> files;
  for (std::size_t i = 0; i < count; ++i) {
    written.emplace_back(4096).fill(i);
    files.push_back(IoFile::open(folder_.file(std::to_string(i)), IoFile::Mode::create));
  }
  std::vector<IoTicket> tickets;
  for (std::size_t i = 0; i < count; ++i)
    tickets.push_back(engine_->submit(IoDirection::write, files[i], 0, written[i].lease(), 4096));
  for (IoTicket& ticket : tickets) ASSERT_TRUE(ticket.wait().ok());
  const auto expect_own_contents = [&] {
    AlignedMemory read(4096);
    for (std::size_t i = 0; i < count; ++i) {
      expect_whole(transfer(*engine_, IoDirection::read, files[i], 0, read), 4096);
      ASSERT_TRUE(read == written[i]) << i;
    }
  };
  expect_own_contents();
  // Places change hands: closed in one order, opened in another.
  for (std::size_t i = 0; i < count; i += 3) {
    const std::size_t other = count - 3 - i;
    files[i] = IoFile::open(folder_.file(std::to_string(other)), IoFile::Mode::read_write);
    written[i].fill(other);
  }
  expect_own_contents();
}

TEST_P(OpenFiles, outlive_the_engines_that_used_them) {
  const AlignedMemory memory(4096);
  for (int i = 0; i < 200; ++i) {
    const auto engine = GetParam()({.queue_depth = 2});
    ASSERT_TRUE(transfer(*engine, IoDirection::write, file_, 0, memory).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, OpenFiles, ::testing::Values(make_uring_engine, make_thread_engine),
                         [](const auto& tested) { return tested.index == 0 ? "uring" : "threads"; });

}  // namespace
}  // namespace headrace::testing
