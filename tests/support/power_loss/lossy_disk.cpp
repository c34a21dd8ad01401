#include "tests/support/power_loss/lossy_disk.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "headrace/errors.h"

namespace headrace::testing {
namespace {

constexpr std::size_t sector_bytes = 512;

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

LossyDisk::LossyDisk(std::string root) : root_(std::move(root)) {
  load(root_);
}

std::size_t LossyDisk::load(const std::string& path) {
  const std::size_t index = nodes_.size();
  nodes_.emplace_back();
  if (!std::filesystem::is_directory(path)) {
    nodes_[index].durable = contents_of(path);
    return index;
  }
  nodes_[index].is_folder = true;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::size_t child = load(entry.path().string());
    nodes_[index].names[entry.path().filename().string()] = child;
  }
  nodes_[index].current = nodes_[index].names;
  return index;
}

std::string LossyDisk::relative(const std::string& path) const {
  HEADRACE_CHECK(path.starts_with(root_), "{} is not below {}", path, root_);
  return path.size() > root_.size() ? path.substr(root_.size() + 1) : "";
}

std::size_t LossyDisk::folder_of(const std::string& path, std::string& name) const {
  std::string rest = relative(path);
  std::size_t folder = 0;
  for (std::size_t slash = rest.find('/'); slash != std::string::npos; slash = rest.find('/')) {
    folder = nodes_[folder].current.at(rest.substr(0, slash));
    rest.erase(0, slash + 1);
  }
  name = rest;
  return folder;
}

std::size_t LossyDisk::find(const std::string& path) const {
  std::string name;
  const std::size_t folder = folder_of(path, name);
  return name.empty() ? folder : nodes_[folder].current.at(name);
}

void LossyDisk::add(const std::string& path, bool is_folder) {
  std::string name;
  const std::size_t folder = folder_of(path, name);
  const std::size_t node = nodes_.size();
  nodes_.emplace_back();
  nodes_[node].is_folder = is_folder;
  nodes_[folder].current[name] = node;
  nodes_[folder].changes.push_back({.kind = Change::Kind::add, .name = name, .node = node});
}

void LossyDisk::apply(const FileEvent& event) {
  using Kind = Change::Kind;
  std::string name;
  switch (event.call) {
    case FileCall::write: {
      std::string data(reinterpret_cast<const char*>(event.data.data()), event.data.size());
      nodes_[find(event.path)].changes.push_back(
          {.kind = Kind::write, .offset = event.offset, .data = std::move(data)});
      break;
    }
    case FileCall::truncate:
    case FileCall::reserve:
      nodes_[find(event.path)].changes.push_back(
          {.kind = event.call == FileCall::truncate ? Kind::resize : Kind::grow, .offset = event.offset});
      break;
    case FileCall::create:
    case FileCall::make_folder:
      add(event.path, event.call == FileCall::make_folder);
      break;
    case FileCall::rename: {
      Node& folder = nodes_[folder_of(event.path, name)];
      std::string target;
      HEADRACE_CHECK(folder_of(event.target, target) == folder_of(event.path, name),
                     "{} is renamed into another folder", event.path);
      const std::size_t node = folder.current.at(name);
      folder.current.erase(name);
      folder.current[target] = node;
      folder.changes.push_back({.kind = Kind::move, .name = name, .target = target, .node = node});
      break;
    }
    case FileCall::exchange: {
      Node& folder = nodes_[folder_of(event.path, name)];
      std::string target;
      HEADRACE_CHECK(folder_of(event.target, target) == folder_of(event.path, name),
                     "{} is exchanged with a name in another folder", event.path);
      std::swap(folder.current.at(name), folder.current.at(target));
      folder.changes.push_back({.kind = Kind::exchange,
                                .name = name,
                                .target = target,
                                .node = folder.current.at(target),
                                .other_node = folder.current.at(name)});
      break;
    }
    case FileCall::remove:
    case FileCall::remove_folder: {
      Node& folder = nodes_[folder_of(event.path, name)];
      if (folder.current.erase(name) > 0) folder.changes.push_back({.kind = Kind::remove, .name = name});
      break;
    }
    case FileCall::sync:
      flush(nodes_[find(event.path)]);
      break;
  }
}

void LossyDisk::apply_failed(const FileEvent& event) {
  if (event.call != FileCall::sync) return;
  for (Change& change : nodes_[find(event.path)].changes)
    if (change.state == Change::State::unflushed) change.state = Change::State::unknown_for_ever;
}

void LossyDisk::leave_out(const FileEvent& flush) {
  for (Change& change : nodes_[find(flush.path)].changes)
    change.left_out = change.left_out || change.state == Change::State::unflushed;
}

std::vector<bool> LossyDisk::left_out() const {
  std::vector<bool> left_out;
  for (const Change* change : open_changes()) left_out.push_back(change->left_out);
  return left_out;
}

// Changes up to the first that stays unknown become part of what is durable.
void LossyDisk::flush(Node& node) {
  for (Change& change : node.changes)
    if (change.state == Change::State::unflushed) change.state = Change::State::flushed;
  std::mt19937 unused;
  std::size_t done = 0;
  for (; done < node.changes.size() && node.changes[done].state == Change::State::flushed; ++done)
    if (node.is_folder)
      change(node.names, node.changes[done]);
    else
      change(node.durable, node.changes[done], Fate::keep, unused);
  node.changes.erase(node.changes.begin(), node.changes.begin() + static_cast<std::ptrdiff_t>(done));
}

void LossyDisk::change(std::string& contents, const Change& change, Fate fate, std::mt19937& random) {
  if (change.kind == Change::Kind::resize) contents.resize(change.offset);
  if (change.kind == Change::Kind::grow)
    contents.resize(std::max<std::size_t>(contents.size(), change.offset));
  if (change.kind != Change::Kind::write) return;
  const std::size_t end = change.offset + change.data.size();
  if (fate == Fate::keep || random() % 2 == 0) contents.resize(std::max(contents.size(), end));
  for (std::size_t begin = change.offset; begin < end;) {
    const std::size_t sector_end = std::min(end, (begin / sector_bytes + 1) * sector_bytes);
    if (fate == Fate::keep || random() % 2 == 0) {
      contents.resize(std::max(contents.size(), sector_end));
      contents.replace(begin, sector_end - begin, change.data, begin - change.offset, sector_end - begin);
    }
    begin = sector_end;
  }
}

void LossyDisk::change(std::map<std::string, std::size_t>& names, const Change& change) {
  if (change.kind == Change::Kind::add) names[change.name] = change.node;
  if (change.kind == Change::Kind::move) {
    names.erase(change.name);
    names[change.target] = change.node;
  }
  if (change.kind == Change::Kind::exchange) {
    names[change.target] = change.node;
    names[change.name] = change.other_node;
  }
  if (change.kind == Change::Kind::remove) names.erase(change.name);
}

std::vector<const LossyDisk::Change*> LossyDisk::open_changes() const {
  std::vector<const Change*> open;
  for (const Node& node : nodes_)
    for (const Change& change : node.changes)
      if (change.state != Change::State::flushed) open.push_back(&change);
  return open;
}

void LossyDisk::collect(std::size_t index, const std::string& path, const Fates& fates, std::mt19937& random,
                        Names order, Image& out) const {
  const Node& node = nodes_[index];
  const auto fate_of = [&](const Change& change) {
    const auto found = fates.find(&change);
    return found == fates.end() ? Fate::keep : found->second;
  };
  if (!node.is_folder) {
    std::string contents = node.durable;
    for (const Change& change : node.changes)
      if (const Fate fate = fate_of(change); fate != Fate::lose)
        LossyDisk::change(contents, change, fate, random);
    out[path] = std::move(contents);
    return;
  }
  std::map<std::string, std::size_t> names = node.names;
  std::size_t certain = 0;  // in order, what a later flush made durable comes with all before it
  for (std::size_t c = 0; order == Names::in_order && c < node.changes.size(); ++c)
    if (node.changes[c].state == Change::State::flushed) certain = c + 1;
  for (std::size_t c = 0; c < node.changes.size(); ++c) {
    const bool lost = c >= certain && fate_of(node.changes[c]) == Fate::lose;
    if (lost && order == Names::in_order) break;
    if (!lost) LossyDisk::change(names, node.changes[c]);
  }
  if (!path.empty()) out[path + "/"];
  for (const auto& [name, child] : names)
    collect(child, path.empty() ? name : path + "/" + name, fates, random, order, out);
}

LossyDisk::Image LossyDisk::image(const std::vector<Fate>& fates, std::mt19937& random, Names names) const {
  const std::vector<const Change*> open = open_changes();
  HEADRACE_CHECK(fates.size() == open.size(), "{} fates for {} changes", fates.size(), open.size());
  Fates fate_of;
  for (std::size_t i = 0; i < open.size(); ++i) fate_of[open[i]] = fates[i];
  Image image;
  collect(0, "", fate_of, random, names, image);
  return image;
}

LossyDisk::Image LossyDisk::current() const {
  std::mt19937 unused;
  return image(std::vector<Fate>(unflushed(), Fate::keep), unused, Names::in_order);
}

void write_image(const LossyDisk::Image& image, const std::string& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  for (const auto& [path, contents] : image) {
    if (path.ends_with('/')) {
      std::filesystem::create_directory(folder + "/" + path);
      continue;
    }
    std::ofstream out(folder + "/" + path, std::ios::binary);
    out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  }
}

}  // namespace headrace::testing
