#include "src/doctor/path_facts.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <set>
#include <string_view>

namespace headrace::doctor {
namespace {

struct KnownType {
  std::string_view name;
  FileSystemKind kind;
};
constexpr KnownType known_types[] = {
    {"ext2", FileSystemKind::local},
    {"ext3", FileSystemKind::local},
    {"ext4", FileSystemKind::local},
    {"xfs", FileSystemKind::local},
    {"f2fs", FileSystemKind::local},
    {"jfs", FileSystemKind::local},
    {"btrfs", FileSystemKind::copies_on_write},
    {"zfs", FileSystemKind::copies_on_write},
    {"bcachefs", FileSystemKind::copies_on_write},
    {"tmpfs", FileSystemKind::memory},
    {"ramfs", FileSystemKind::memory},
    {"devtmpfs", FileSystemKind::memory},
    {"overlay", FileSystemKind::overlay},
    {"aufs", FileSystemKind::overlay},
    {"nfs", FileSystemKind::network},
    {"nfs4", FileSystemKind::network},
    {"cifs", FileSystemKind::network},
    {"smb3", FileSystemKind::network},
    {"ceph", FileSystemKind::network},
    {"lustre", FileSystemKind::network},
    {"gpfs", FileSystemKind::network},
    {"beegfs", FileSystemKind::network},
    {"afs", FileSystemKind::network},
    {"fuse.sshfs", FileSystemKind::network},
    {"fuse.glusterfs", FileSystemKind::network},
    {"fuse.s3fs", FileSystemKind::network},
    {"fuse.gcsfuse", FileSystemKind::network},
    {"9p", FileSystemKind::passed_through},
    {"virtiofs", FileSystemKind::passed_through},
    {"vboxsf", FileSystemKind::passed_through},
};

}  // namespace

FileSystemKind kind_of(const std::string& type) {
  for (const KnownType& known : known_types)
    if (known.name == type) return known.kind;
  return type.starts_with("fuse") ? FileSystemKind::passed_through : FileSystemKind::other;
}

PathProbe probe_path(const std::string& path) {
  struct Free {
    void operator()(char* text) const { std::free(text); }
  };
  PathProbe probe{.path = path};
  const std::unique_ptr<char, Free> canonical(::realpath(path.c_str(), nullptr));
  struct stat status {};
  if (canonical == nullptr || ::stat(path.c_str(), &status) != 0) {
    probe.code = errno;
    probe.is_dangling_link = probe.code == ENOENT && ::lstat(path.c_str(), &status) == 0;
    return probe;
  }
  probe.canonical = canonical.get();
  probe.is_folder = S_ISDIR(status.st_mode);
  if (!probe.is_folder) return probe;
  if (struct statvfs space{}; ::statvfs(path.c_str(), &space) == 0) {
    probe.total_bytes = Bytes{space.f_blocks} * space.f_frsize;
    probe.free_bytes = Bytes{space.f_bfree} * space.f_frsize;
    probe.available_bytes = Bytes{space.f_bavail} * space.f_frsize;
  }
  probe.file = probe_direct_io(probe.canonical);
  return probe;
}

bool PathFacts::usable() const {
  return probe.code == 0 && probe.is_folder && probe.file.create_code == 0 && probe.file.write_code == 0;
}

PathFacts read_path(const MachineFiles& files, const std::vector<Mount>& mounts, PathProbe probe) {
  PathFacts facts{.probe = std::move(probe)};
  if (const Mount* mount = mount_of(facts.probe.canonical, mounts)) {
    facts.mount = *mount;
    facts.storage = read_storage(files, *mount);
  }
  return facts;
}

std::size_t devices_behind(const std::vector<PathFacts>& paths) {
  std::set<std::string> devices;
  for (const PathFacts& path : paths)
    if (path.probe.is_folder && path.mount) devices.insert(path.mount->device);
  return std::max<std::size_t>(devices.size(), 1);
}

void find_shared_space(std::vector<PathFacts>& paths) {
  for (PathFacts& path : paths)
    for (const PathFacts& other : paths)
      if (&other != &path && path.usable() && other.usable() && path.mount && other.mount &&
          path.mount->device == other.mount->device)
        path.sharing.push_back(other.probe.path);
}

nlohmann::ordered_json to_json(const PathFacts& facts) {
  using nlohmann::ordered_json;
  ordered_json drives = ordered_json::array();
  for (const Drive& drive : facts.storage.drives) drives.push_back(to_json(drive));
  const DirectIoProbe& file = facts.probe.file;
  return {{"path", facts.probe.path},
          {"usable", facts.usable()},
          {"file_system", facts.mount ? ordered_json(facts.mount->type) : ordered_json()},
          {"mount_point", facts.mount ? ordered_json(facts.mount->point) : ordered_json()},
          {"available_bytes", facts.probe.available_bytes},
          {"direct_io", file.direct},
          {"memory_alignment", file.memory_alignment},
          {"offset_alignment", file.offset_alignment},
          {"drives", drives}};
}

}  // namespace headrace::doctor
