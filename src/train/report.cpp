#include "src/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "src/train/checkpoint_space.h"
#include "src/train/swap_path.h"

namespace headrace {
namespace {

std::string plural(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string placement_line(std::string_view what, const Placement& placement, int ranks,
                           const std::string& swap_paths) {
  const std::string sharing = ranks == 1          ? ""
                              : placement.sharded ? fmt::format(", 1/{} on each rank", ranks)
                                                  : ", all on each rank";
  const std::string where = placement.tier == Tier::nvme   ? fmt::format("NVMe ({})", swap_paths)
                            : placement.tier == Tier::host ? "host memory"
                                                           : "device memory";
  return fmt::format("  {:<18}{}{}\n", what, where, sharing);
}

// When a run saves, and what it keeps.
std::string saving_text(const ResolvedOptions& options, Bytes bytes) {
  const CheckpointSettings& settings = options.checkpoint;
  std::string text = settings.every == 0   ? ", one at the end"
                     : settings.every == 1 ? ", every step"
                                           : fmt::format(", every {} steps", settings.every);
  if (settings.parity > 0) text += fmt::format(", parity {}", settings.parity);
  if (settings.keep_last > 0) text += fmt::format(", the last {} kept", settings.keep_last);
  text += settings.pin ? ", pinned in the swap store" : fmt::format(", {} each", format_bytes(bytes));
  return settings.asynchronous ? text + ", beside the steps" : text;
}

std::string corpus_line(std::string_view what, const Tokens& tokens) {
  const ByteCorpus& source = tokens.source();
  const std::string ids = tokens.is_text() ? "" : fmt::format("{} token ids, ", format_count(tokens.count()));
  return fmt::format("  {:<18}{} ({}{}, {})\n", what, source.path(), ids, format_bytes(source.size_bytes()),
                     plural(source.file_count(), "file"));
}

std::string memory_line(std::string_view what, const TagBytes& peak_tags, Bytes planned, Bytes limit) {
  std::string line = fmt::format("  {:<18}peak {}, planned {}", what, format_bytes(peak_tags.total()),
                                 format_bytes(planned));
  line += limit == 0 ? ", no limit given" : fmt::format(", limit {}", format_bytes(limit));
  return line + '\n';
}

std::string loss_lines(const Session& session, const RunOutcome& outcome) {
  std::string text;
  const std::string_view noun = session.inputs.training.tokens.noun();
  if (outcome.last_loss)
    text += fmt::format("  {:<18}{} nats a {} (first step of this run {})\n", "training loss",
                        format_loss(*outcome.last_loss), noun, format_loss(*outcome.first_loss));
  if (!session.inputs.held_out) return text;
  if (outcome.eval_loss)
    text += fmt::format("  {:<18}{} nats a {}\n", "held-out loss", format_loss(*outcome.eval_loss), noun);
  const double entropy = unigram_entropy_nats(session.inputs.held_out->tokens);
  return text + fmt::format("  {:<18}{:.4f} nats a {} ({:.4f} bits): what {} frequencies alone would reach\n",
                            "unigram entropy", entropy, noun, entropy / std::numbers::ln2, noun);
}

std::string outcome_line(const Session& session, const RunOutcome& outcome, const RunSummary& summary) {
  const std::uint64_t reached = session.state.iteration, wanted = session.options.steps;
  const std::string size = format_count(summary.parameters);
  if (outcome.steps == 0 && !outcome.stopped)
    return fmt::format("nothing to do: the run is already at step {}, and --steps is {}; {} parameters\n",
                       reached, wanted, size);
  return fmt::format("{} after step {} of {}, {} parameters\n", outcome.stopped ? "stopped" : "finished",
                     reached, wanted, size);
}

// The swap path that holds a rank's folder.
std::string path_of(const ResolvedOptions& options, const std::string& directory) {
  const std::vector<std::string>& directories = options.engine.swap_directories;
  const auto found = std::find(directories.begin(), directories.end(), directory);
  return found == directories.end()
             ? directory
             : options.swap_paths[static_cast<std::size_t>(found - directories.begin())];
}

// Paths that the run went on without, and how they become part of the store again.
std::string lost_path_lines(const ResolvedOptions& options) {
  if (options.engine.swap_parity == 0 || options.engine.optimizer_tier != Tier::nvme) return "";
  std::vector<SwapPath> lost;
  std::string text;
  try {
    for (SwapPath& path : SwapStore::describe(options.engine.swap_directories).paths) {
      if (path.state == SwapPath::State::good) continue;
      path.directory = path_of(options, path.directory);
      text += fmt::format("  {:<18}{}: {}\n", "lost swap path", path.directory, path.problem);
      lost.push_back(std::move(path));
    }
  } catch (const Error&) {  // a run that ended well has said all that could be said
    return "";
  }
  if (lost.empty()) return "";
  return text + fmt::format("  {:<18}{}\n", "to bring it back", how_to_bring_back(lost, options.swap_paths));
}

std::string swap_lines(const Session& session, const RunOutcome& outcome) {
  const ResolvedOptions& options = session.options;
  if (!resolve_placement(options.engine).uses_nvme()) return "";
  std::string text;
  if (outcome.steps > 0)
    text += fmt::format("  {:<18}{} read, {} written, in {}\n", "NVMe traffic",
                        format_bytes(outcome.nvme_read_bytes), format_bytes(outcome.nvme_written_bytes),
                        plural(outcome.steps, "step"));
  text += fmt::format("  {:<18}{}, {} on disk", "swap store", path_list(options.swap_paths),
                      format_bytes(disk_bytes_of_run(options)));
  if (options.engine.optimizer_tier != Tier::nvme)
    return text + "; removed at the end: optimizer states are elsewhere\n";
  text += options.engine.durability == Durability::step
              ? fmt::format("; holds step {}: --resume swap continues, `headrace inspect` looks inside",
                            session.state.iteration)
              : "; cannot be resumed (--durability none)";
  return text + '\n' + lost_path_lines(options);
}

// Where the run's first weights come from.
std::string source_of_weights(const Session& session) {
  const ResolvedOptions& options = session.options;
  const std::string size = format_count(session.inputs.plan.parameters);
  if (options.resume_swap)
    return fmt::format("reading the states from {} ...", path_list(options.swap_paths));
  if (!session.inputs.checkpoint.empty())
    return fmt::format("reading the {} from {} ...",
                       options.checkpoint.weights.empty() ? "states" : "weights", session.inputs.checkpoint);
  if (session.inputs.weights)
    return fmt::format("reading {} parameters from {} ({}) ...", size, options.model_folder,
                       session.inputs.weights->summary());
  return options.model_folder.empty()
             ? fmt::format("initialising {} parameters ...", size)
             : fmt::format(
                   "initialising {} parameters at random: {} holds a configuration and no weights ...", size,
                   options.model_folder);
}

}  // namespace

std::string format_count(std::uint64_t count) {
  const auto value = static_cast<double>(count);
  if (value >= 1e9) return fmt::format("{:.2f}B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.1f}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{}", count);
}

std::string start_report(const Session& session) {
  const ResolvedOptions& options = session.options;
  const BatchSizes& batch = options.batch;
  const ResolvedPlacement placement = resolve_placement(options.engine);
  const int ranks = options.launch.size;
  const DeviceInfo& device = session.backends.device->info();
  std::string text =
      fmt::format("{}: {} parameters, {}{}, stage {} on {}, device {} ({})\n", options.model.name,
                  format_count(session.inputs.plan.parameters), name_of(options.engine.dtype),
                  options.model_options.recompute ? " with recompute" : "", options.engine.stage,
                  plural(batch.world, "rank"), device.name,
                  plural(static_cast<std::uint64_t>(device.compute_threads), "thread"));
  text += fmt::format("  {:<18}{} of {} tokens a step: micro-batch {} x accumulation {} x {}\n", "batch",
                      plural(batch.global, "sequence"), options.model_options.sequence, batch.micro,
                      batch.accumulation, plural(batch.world, "rank"));
  text += corpus_line("training data", session.inputs.training.tokens);
  if (session.inputs.held_out) text += corpus_line("held-out data", session.inputs.held_out->tokens);
  text += placement_line("parameters", placement.parameters, ranks, path_list(options.swap_paths));
  text += placement_line("gradients", placement.gradients, ranks, path_list(options.swap_paths));
  text += placement_line("optimizer states", placement.optimizer, ranks, path_list(options.swap_paths));
  text += fmt::format("  {:<18}{}\n", "optimizer", optimizer_line(options.engine));
  for (const std::string& line : group_lines(session.inputs.plan.request.units, options))
    text += fmt::format("  {}\n", line);
  if (!options.checkpoint.directory.empty())
    text += fmt::format("  {:<18}{}{}\n", "checkpoints", options.checkpoint.directory,
                        saving_text(options, bytes_of_checkpoint(options, session.inputs.plan)));
  text += "memory planned\n" + ledger_table(session.inputs.plan.memory);
  return text + source_of_weights(session);
}

std::string end_report(const Session& session, const RunOutcome& outcome, const RunSummary& summary) {
  const ResolvedOptions& options = session.options;
  const MemoryPlan& planned = summary.planned;
  std::string text = outcome_line(session, outcome, summary) + loss_lines(session, outcome);
  if (outcome.skipped_steps > 0)
    text += fmt::format("  {:<18}{} of {}: their gradients were not finite, no weight was changed\n",
                        "skipped steps", outcome.skipped_steps, outcome.steps);
  if (options.engine.dtype == DType::f16)
    text += fmt::format("  {:<18}{:g} at the end\n", "loss scale", session.state.loss_scale.scale);
  text += memory_line("device memory", summary.device_peak, planned.device.total(), planned.device_limit);
  text += memory_line("host memory", summary.host_peak, planned.host.total(), planned.host_limit);
  text += fmt::format("  {:<18}{} resident at most\n", "process", format_bytes(summary.peak_rss_bytes));
  text += swap_lines(session, outcome);
  text += fmt::format("  {:<18}{}\n", "state_hash", format_hash(summary.state_hash));
  if (outcome.checkpoint) {
    text += fmt::format("  {:<18}{}\n", "checkpoint", *outcome.checkpoint);
  } else if (outcome.stopped &&
             (options.engine.optimizer_tier != Tier::nvme || options.engine.durability == Durability::none)) {
    text += "  nothing was kept: give --checkpoint-dir, or --offload-optimizer nvme with --durability step\n";
  }
  return text;
}

}  // namespace headrace
