// Loading: each rank reads the slices that its own pieces need, whatever cut wrote them, and converts what is
// kept in another type.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "headrace/checkpoint.h"
#include "headrace/errors.h"
#include "headrace/log.h"
#include "src/checkpoint/agreement.h"
#include "src/checkpoint/checkpoint_files.h"
#include "src/checkpoint/needed_files.h"
#include "src/checkpoint/open_manifest.h"
#include "src/checkpoint/state_reader.h"

namespace headrace {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Numbers of the engine's parameters in the manifest. By name, whatever the order.
std::map<const ParameterSpec*, std::uint32_t> match(const Engine& engine, const Manifest& manifest,
                                                    const std::string& path) {
  std::map<std::string_view, std::uint32_t> stored;
  for (std::uint32_t p = 0; p < manifest.parameters.size(); ++p) stored[manifest.parameters[p].name] = p;
  std::map<const ParameterSpec*, std::uint32_t> numbers;
  std::vector<std::string> differences;
  for (const ParameterSpec* parameter : engine.parameters()) {
    const auto found = stored.find(parameter->name);
    if (found == stored.end()) {
      differences.push_back(fmt::format("{} is not in it", parameter->name));
      continue;
    }
    const std::vector<std::int64_t>& shape = manifest.parameters[found->second].shape;
    if (shape != parameter->shape)
      differences.push_back(fmt::format("{} is {} there and {} here", parameter->name, shape_text(shape),
                                        shape_text(parameter->shape)));
    numbers[parameter] = found->second;
    stored.erase(found);
  }
  for (const auto& [name, number] : stored)
    differences.push_back(fmt::format("{} is not in the model", name));
  if (differences.empty()) return numbers;
  throw UsageError(
      fmt::format("the checkpoint {} is of another model, nothing was loaded. Give the --model that it was "
                  "made with; {} parameter{} differ{}:\n  {}",
                  path, differences.size(), differences.size() == 1 ? "" : "s",
                  differences.size() == 1 ? "s" : "", fmt::join(differences, "\n  ")));
}

void refuse_other_optimizer(const StateFormat& stored, const StateFormat& wanted, const std::string& path) {
  StateFormat alike = stored;
  alike.master = wanted.master;
  alike.moments = wanted.moments;
  if (alike == wanted) return;
  throw UsageError(
      fmt::format("the checkpoint {} has states of {}, this run's optimizer is {}. Give that "
                  "optimizer, or begin with its weights alone: --load-weights.",
                  path, optimizer_text(stored), optimizer_text(wanted)));
}

// Elements of one kind of state from one format into another.
class Conversion {
 public:
  Conversion(const StateFormat& from, const StateFormat& to, bool weights_only)
      : from_(from), to_(to), moments_(weights_only ? 0 : moment_count(to)) {}

  void run(const StateArrays& source, std::uint64_t at, const StateArrays& target, std::uint64_t to,
           std::uint64_t numel) {
    values_.resize(numel);
    if (from_.master == to_.master) {
      copy_master(source, at, target, to, numel);
    } else {
      read_master(from_.master, source.master, at, numel, values_.data());
      write_master(to_.master, target.master, to, numel, values_.data());
    }
    for (int m = 0; m < moments_; ++m) run_moment(m, source, at, target, to, numel);
  }

 private:
  void copy_master(const StateArrays& source, std::uint64_t at, const StateArrays& target, std::uint64_t to,
                   std::uint64_t numel) const {
    const Bytes bytes = from_.master == MasterDType::f32 ? sizeof(float) : sizeof(bf16);
    std::copy_n(source.master + at * bytes, numel * bytes, target.master + to * bytes);
  }

  void run_moment(int index, const StateArrays& source, std::uint64_t at, const StateArrays& target,
                  std::uint64_t to, std::uint64_t numel) {
    const auto m = static_cast<std::size_t>(index);
    const MomentArray &before = source.moments[m], &after = target.moments[m];
    if (from_.moments != to_.moments) {
      read_moment(from_, index, before, at, numel, values_.data());
      return write_moment(to_, index, after, to, numel, values_.data());
    }
    const Bytes bytes = size_of(from_.moments);
    std::copy_n(before.values + at * bytes, numel * bytes, after.values + to * bytes);
    if (from_.moments == MomentDType::int8)
      std::copy_n(before.scales + at / quantised_block_numel, divide_up(numel, quantised_block_numel),
                  after.scales + to / quantised_block_numel);
  }

  StateFormat from_, to_;
  int moments_;
  std::vector<float> values_;
};

}  // namespace

void warn_of_damage(const std::string& path, const std::vector<std::string>& problems,
                    Communicator& communicator, Device& device) {
  std::vector<std::string> different;  // ranks meet the same damage, and different places of one file's
  std::set<std::string> files;
  for (const std::string& line : gather_lines(problems, communicator, device, "damage of a checkpoint"))
    if (files.insert(line.substr(0, line.find(' '))).second) different.push_back(line);
  if (!different.empty() && communicator.rank() == 0)
    log_warning(damage_warning(path, fmt::format("{}", fmt::join(different, "; "))));
}

std::vector<std::string> conversions(const StateFormat& stored, const StateFormat& wanted) {
  std::vector<std::string> texts;
  const auto precision = [](auto dtype) { return static_cast<int>(dtype); };  // fewer bits come later
  if (stored.master != wanted.master)
    texts.push_back(fmt::format("the master is {} from {} to {}",
                                precision(wanted.master) > precision(stored.master) ? "rounded" : "widened",
                                name_of(stored.master), name_of(wanted.master)));
  if (stored.moments != wanted.moments && moment_count(wanted) > 0)
    texts.push_back(fmt::format("moments are {} from {} to {}",
                                precision(wanted.moments) > precision(stored.moments) ? "rounded" : "widened",
                                name_of(stored.moments), name_of(wanted.moments)));
  return texts;
}

TrainingState load_checkpoint(const std::string& path, Engine& engine, IoEngine& io,
                              const LoadOptions& options) {
  Manifest manifest = open_manifest(path);
  const StateFormat wanted = engine.state_format();
  const CheckpointFacts facts = facts_of(manifest, path);
  const auto numbers = match(engine, manifest, path);
  if (!options.weights_only) refuse_other_optimizer(manifest.states, wanted, path);
  if (options.accept) options.accept(facts);
  Conversion conversion(manifest.states, wanted, options.weights_only);
  const std::vector<bool> needed = needed_files(manifest, engine, numbers);
  const auto warn = [&](const std::string& problem) { log_warning(damage_warning(path, problem)); };
  const auto reader = open_states(path, std::move(manifest), io, engine.host_budget(),
                                  {.needed = needed,
                                   .budget = &engine.host_budget(),
                                   .on_damage = options.on_damage ? options.on_damage : warn});
  const PieceVisitor fill = [&](const StatePiece& piece, const StateArrays& target, std::uint64_t to) {
    reader->read(numbers.at(piece.parameter), piece.first, piece.numel,
                 [&](std::uint64_t at, std::uint64_t numel, const StateArrays& source) {
                   conversion.run(source, at, target, to, numel);
                   to += numel;
                 });
  };
  std::vector<ParameterRange> ranges;
  for (const StatePiece& piece : engine.pieces_to_fill())
    ranges.push_back({numbers.at(piece.parameter), piece.first, piece.numel});
  if (options.check_first) {
    reader->expect(ranges);
    for (const auto& [parameter, first, numel] : ranges)
      reader->read(parameter, first, numel, [](std::uint64_t, std::uint64_t, const StateArrays&) {});
  }
  reader->expect(std::move(ranges));
  return engine.restore(fill, options.weights_only ? options.start : facts.state,
                        options.weights_only ? 0 : facts.steps_applied, options.before_replacing);
}

}  // namespace headrace
