#include "src/zero/gradient_store.h"

#include <algorithm>
#include <cmath>

#include "headrace/errors.h"
#include "headrace/finite.h"

namespace headrace {

Bytes BucketLayout::total_bytes() const {
  // Each buffer starts on a 64-byte border.
  return 2 * (round_up(receive_bytes, 64) + round_up(sum_bytes, 64) + round_up(rounded_bytes, 64));
}

BucketLayout make_bucket_layout(const std::vector<UnitPlan>& units, const EngineOptions& options,
                                const ResolvedPlacement& placement, int world_size) {
  const Bytes element = size_of(options.dtype);
  const auto others = static_cast<Bytes>(world_size - 1);
  std::uint64_t largest_shard = 0;
  for (const UnitPlan& unit : units)
    for (const Range& shard : unit.shards) largest_shard = std::max(largest_shard, shard.numel);
  if (largest_shard == 0) return {};
  const std::uint64_t affordable = options.bucket_bytes / (2 * (others * element + 4 + element));
  BucketLayout layout;
  layout.numel = std::max<std::uint64_t>(affordable / norm_chunk_numel, 1) * norm_chunk_numel;
  layout.numel = std::min(layout.numel, round_up(largest_shard, norm_chunk_numel));
  layout.receive_bytes = others * layout.numel * element;
  const bool accumulate_on_device = placement.gradients.tier == Tier::device && options.accumulation > 1;
  if (!accumulate_on_device) layout.sum_bytes = layout.numel * 4;
  const bool download_rounded = placement.gradients.tier != Tier::device && options.accumulation == 1;
  if (download_rounded && options.dtype != DType::f32) layout.rounded_bytes = layout.numel * element;
  return layout;
}

Bytes norm_partials_bytes(const std::vector<UnitPlan>& units) {
  std::uint64_t chunks = 0;
  for (const UnitPlan& unit : units) chunks += divide_up(unit.own.numel, norm_chunk_numel);
  return chunks * sizeof(double);
}

bool norm_is_taken_on_device(const EngineOptions& options, const ResolvedPlacement& placement) {
  return placement.gradients.tier == Tier::device || options.accumulation == 1;
}

bool gradient_is_resident(const ResolvedPlacement& placement, int world_size) {
  return placement.gradients.tier == Tier::device && (!placement.gradients.sharded || world_size == 1);
}

GatherSchedule make_gradient_slots(const std::vector<UnitPlan>& units, const EngineOptions& options,
                                   const ResolvedPlacement& placement, int world_size) {
  std::vector<Bytes> unit_bytes;
  for (const UnitPlan& unit : units)
    unit_bytes.push_back(
        gradient_is_resident(placement, world_size) ? 0 : unit.layout.numel * size_of(options.dtype));
  // Two slots a class: one is reduced while the next unit's backward fills the other.
  return GatherSchedule(std::move(unit_bytes), {.prefetch_units = 1, .retain = false, .record_order = false});
}

GradientStore::GradientStore(EngineContext& context, ScratchStore& scratch)
    : context_(context),
      trace_(context),
      resident_(gradient_is_resident(context.placement, context.communicator.size())),
      slots_(make_gradient_slots(context.units, context.options, context.placement,
                                 context.communicator.size())),
      unit_drained_(context.units.size()),
      contributions_(context.units.size(), 0) {
  allocate_homes();
  allocate_buckets();
  if (context.placement.gradients.tier == Tier::nvme && scratch.buffer_bytes(ScratchKind::gradients) > 0)
    nvme_ = std::make_unique<GradientBlocks>(context, scratch);
}

void GradientStore::begin_micro_batch() {
  ++micro_batches_;
  last_order_ = std::exchange(order_, {});
  expect_sums();
}

// If units become ready as in the micro-batch before, these sums are needed next.
void GradientStore::expect_sums() {
  if (nvme_ == nullptr) return;
  std::vector<UnitId> units;
  if (order_.size() <= last_order_.size() && std::equal(order_.begin(), order_.end(), last_order_.begin()))
    for (std::size_t i = order_.size(); i < last_order_.size(); ++i)
      if (const int count = contributions_[last_order_[i]];
          count > 0 && count < context_.options.accumulation)
        units.push_back(last_order_[i]);
  nvme_->expect_sums(units);
}

void GradientStore::allocate_homes() {
  const Bytes element = context_.element_bytes();
  const Tier tier = context_.placement.gradients.tier;
  const bool accumulate = context_.options.accumulation > 1;
  std::uint64_t partials = 0;
  for (const UnitPlan& unit : context_.units) {
    Home home;
    if (resident_) {
      home.device = context_.device_memory.persistent(MemoryTag::gradients, unit.layout.numel * element);
    } else {
      home.first = unit.own.first;
      if (tier == Tier::device)
        home.device = context_.device_memory.persistent(MemoryTag::gradients, unit.own.numel * element);
      else if (tier == Tier::host)
        home.host = HostBuffer(context_.host_budget, MemoryTag::gradients, unit.own.numel * element);
    }
    if (accumulate && tier == Tier::device)
      home.device_accumulator = reinterpret_cast<float*>(
          context_.device_memory.persistent(MemoryTag::gradient_accumulators, unit.own.numel * 4));
    else if (accumulate && tier == Tier::host)
      home.host_accumulator =
          HostBuffer(context_.host_budget, MemoryTag::gradient_accumulators, unit.own.numel * 4);
    home.host_pin = context_.pin(home.host.memory());
    home.accumulator_pin = context_.pin(home.host_accumulator.memory());
    home.first_partial = std::exchange(partials, partials + divide_up(unit.own.numel, norm_chunk_numel));
    homes_.push_back(std::move(home));
  }
  const Bytes partials_bytes = norm_partials_bytes(context_.units);
  host_partials_ = HostBuffer(context_.host_budget, MemoryTag::staging, partials_bytes);
  host_partials_pin_ = context_.pin(host_partials_.memory());
  if (norm_is_taken_on_device(context_.options, context_.placement))
    device_partials_ =
        reinterpret_cast<double*>(context_.device_memory.persistent(MemoryTag::workspace, partials_bytes));
}

void GradientStore::allocate_buckets() {
  DeviceMemory& memory = context_.device_memory;
  for (const Bytes bytes : slots_.slot_bytes())
    slot_memory_.push_back(memory.persistent(MemoryTag::communication_buckets, bytes));
  slot_drained_.resize(slot_memory_.size());
  bucket_layout_ =
      make_bucket_layout(context_.units, context_.options, context_.placement, context_.communicator.size());
  for (Bucket& bucket : buckets_) {
    const auto take = [&](Bytes bytes) {
      return bytes == 0 ? nullptr : memory.persistent(MemoryTag::communication_buckets, bytes);
    };
    bucket.receive = take(bucket_layout_.receive_bytes);
    bucket.sum = reinterpret_cast<float*>(take(bucket_layout_.sum_bytes));
    bucket.rounded = bucket_layout_.rounded_bytes > 0 ? take(bucket_layout_.rounded_bytes)
                                                      : reinterpret_cast<std::byte*>(bucket.sum);
  }
  if (!on_device() && context_.options.accumulation > 1) {
    download_staging_ = HostBuffer(context_.host_budget, MemoryTag::staging, bucket_layout_.numel * 4);
    download_staging_pin_ = context_.pin(download_staging_.memory());
  }
}

const std::byte* GradientStore::address(UnitId unit, std::uint64_t first) const {
  const Home& home = homes_[unit];
  const std::byte* base = on_device() ? home.device : home.host.data();
  return base + (first - home.first) * context_.element_bytes();
}

float* GradientStore::accumulator(UnitId unit, std::uint64_t first) const {
  const Home& home = homes_[unit];
  float* base =
      on_device() ? home.device_accumulator : reinterpret_cast<float*>(home.host_accumulator.data());
  return base == nullptr ? nullptr : base + (first - context_.units[unit].own.first);
}

double* GradientStore::partials(UnitId unit, std::uint64_t first) const {
  double* const all =
      device_partials_ != nullptr ? device_partials_ : reinterpret_cast<double*>(host_partials_.data());
  return all + homes_[unit].first_partial + (first - context_.units[unit].own.first) / norm_chunk_numel;
}

std::byte* GradientStore::buffer(UnitId unit) {
  const UnitPlan& plan = context_.units[unit];
  if (plan.layout.numel == 0) return nullptr;
  std::byte* memory = homes_[unit].device;
  if (!resident_) {
    slots_.acquire(unit);
    const std::uint32_t slot = *slots_.slot_of(unit);
    memory = slot_memory_[slot];
    context_.device.wait(Lane::compute, slot_drained_[slot]);
  } else {
    context_.device.wait(Lane::compute, unit_drained_[unit]);
  }
  for (const Range& gap : alignment_gaps(plan.layout))
    context_.device.fill_zero(Lane::compute, memory + gap.first * context_.element_bytes(),
                              gap.numel * context_.element_bytes());
  return memory;
}

void GradientStore::ready(UnitId unit) {
  const UnitPlan& plan = context_.units[unit];
  if (contributions_[unit] >= context_.options.accumulation)
    throw UsageError(fmt::format(
        "unit {} gave more gradients than the {} micro-batches of a step (gradient accumulation).",
        plan.layout.spec.name, context_.options.accumulation));
  if (plan.layout.numel > 0) {
    const std::byte* gradient = resident_ ? homes_[unit].device : slot_memory_[*slots_.slot_of(unit)];
    context_.device.wait(Lane::communicate, context_.device.record(Lane::compute));
    trace_.look_at(unit, gradient);
    std::uint64_t buckets = 0;
    for (const Range& shard : plan.shards)
      buckets = std::max(buckets, divide_up(shard.numel, bucket_layout_.numel));
    for (std::uint64_t b = 0; b < buckets; ++b) reduce_bucket(unit, gradient, b);
    const Event drained = context_.device.record(Lane::communicate);
    unit_drained_[unit] = drained;
    if (!resident_) {
      slot_drained_[*slots_.slot_of(unit)] = drained;
      slots_.release(unit);
    }
  }
  ++contributions_[unit];
  order_.push_back(unit);
  expect_sums();
}

void GradientStore::reduce_bucket(UnitId unit, const std::byte* gradient, std::uint64_t index) {
  const UnitPlan& plan = context_.units[unit];
  const Bytes element = context_.element_bytes();
  const auto rank = static_cast<std::size_t>(context_.communicator.rank());
  const std::uint64_t skipped = index * bucket_layout_.numel;
  const auto slice_of = [&](const Range& shard) {
    if (skipped >= shard.numel) return Range{shard.end(), 0};
    return Range{shard.first + skipped, std::min(bucket_layout_.numel, shard.numel - skipped)};
  };
  const Range own = slice_of(plan.own);
  Bucket& bucket = buckets_[buckets_used_++ % buckets_.size()];
  context_.device.wait(Lane::communicate, bucket.drained);

  std::vector<Communicator::Piece> send(plan.shards.size()), receive(plan.shards.size());
  std::vector<const void*> slices(plan.shards.size());
  std::byte* next = bucket.receive;
  for (std::size_t r = 0; r < plan.shards.size(); ++r) {
    if (r == rank) {
      slices[r] = gradient + own.first * element;
      continue;
    }
    const Range theirs = slice_of(plan.shards[r]);
    // A send buffer is only read.
    send[r] = {const_cast<std::byte*>(gradient) + theirs.first * element, theirs.numel * element};
    receive[r] = {next, own.numel * element};
    slices[r] = next;
    next += own.numel * element;
  }
  if (plan.shards.size() > 1)
    context_.communicator.all_to_all(send, receive, Traffic::reduce_scatter, plan.layout.spec.name);
  if (own.numel == 0) return;
  if (on_device())
    keep_on_device(unit, own, slices, bucket);
  else if (nvme_ == nullptr)
    keep_on_host(unit, own, slices, bucket);
  else
    keep_on_nvme(unit, own, slices, bucket);
}

void GradientStore::keep_on_device(UnitId unit, Range own, std::span<const void* const> slices,
                                   Bucket& bucket) {
  DeviceKernels& kernels = context_.kernels;
  const DType dtype = context_.options.dtype;
  float* accumulated = accumulator(unit, own.first);
  float* sum = accumulated != nullptr ? accumulated : bucket.sum;
  kernels.sum_slices(Lane::communicate, slices, dtype, own.numel, sum, contributions_[unit] > 0);
  if (last_contribution(unit))
    kernels.round_and_norm(Lane::communicate, sum, const_cast<std::byte*>(address(unit, own.first)), dtype,
                           own.numel, partials(unit, own.first));
}

void GradientStore::keep_on_host(UnitId unit, Range own, std::span<const void* const> slices,
                                 Bucket& bucket) {
  Device& device = context_.device;
  const DType dtype = context_.options.dtype;
  float* accumulated = accumulator(unit, own.first);
  context_.kernels.sum_slices(Lane::communicate, slices, dtype, own.numel, bucket.sum, false);
  if (accumulated == nullptr)
    context_.kernels.round_and_norm(Lane::communicate, bucket.sum, bucket.rounded, dtype, own.numel,
                                    partials(unit, own.first));
  device.wait(Lane::download, device.record(Lane::communicate));
  if (accumulated == nullptr) {
    device.copy(Lane::download, const_cast<std::byte*>(address(unit, own.first)), bucket.rounded,
                own.numel * context_.element_bytes());
  } else if (contributions_[unit] == 0) {
    device.copy(Lane::download, accumulated, bucket.sum, own.numel * 4);
  } else {
    const void* staged = download_staging_.data();
    device.copy(Lane::download, download_staging_.data(), bucket.sum, own.numel * 4);
    device.enqueue(Lane::download, "accumulate gradient", [accumulated, staged, numel = own.numel] {
      sum_slices({&staged, 1}, DType::f32, numel, accumulated, true);
    });
  }
  bucket.drained = device.record(Lane::download);
  if (accumulated != nullptr && last_contribution(unit)) round_accumulator(unit, own);
}

void GradientStore::keep_on_nvme(UnitId unit, Range own, std::span<const void* const> slices,
                                 Bucket& bucket) {
  const DType dtype = context_.options.dtype;
  const bool accumulate = context_.options.accumulation > 1;
  context_.kernels.sum_slices(Lane::communicate, slices, dtype, own.numel, bucket.sum, false);
  if (!accumulate)
    context_.kernels.round_and_norm(Lane::communicate, bucket.sum, bucket.rounded, dtype, own.numel,
                                    partials(unit, own.first));
  context_.device.wait(Lane::download, context_.device.record(Lane::communicate));
  if (accumulate)
    nvme_->accumulate(unit, own,
                      {.source = bucket.sum,
                       .staging = download_staging_.data(),
                       .first = contributions_[unit] == 0,
                       .last = last_contribution(unit),
                       .partials = partials(unit, own.first)});
  else
    nvme_->keep(unit, own, bucket.rounded);
  bucket.drained = context_.device.record(Lane::download);
}

void GradientStore::round_accumulator(UnitId unit, Range range) {
  const DType dtype = context_.options.dtype;
  if (nvme_ != nullptr)
    return nvme_->accumulate(unit, range, {.last = true, .partials = partials(unit, range.first)});
  float* sum = accumulator(unit, range.first);
  auto* rounded = const_cast<std::byte*>(address(unit, range.first));
  double* norm = partials(unit, range.first);
  if (on_device()) {
    context_.kernels.round_and_norm(Lane::communicate, sum, rounded, dtype, range.numel, norm);
  } else {
    context_.device.enqueue(Lane::download, "round gradient",
                            [=, numel = range.numel] { round_and_norm(sum, rounded, dtype, numel, norm); });
  }
}

// Brings this rank's partial norms to host_partials_; those of units without a gradient are 0. Blocks.
void GradientStore::collect_partials() {
  for (UnitId u = 0; u < homes_.size(); ++u) {
    const Range own = context_.units[u].own;
    if (contributions_[u] > 0 && contributions_[u] < context_.options.accumulation && own.numel > 0)
      round_accumulator(u, own);
  }
  if (device_partials_ != nullptr)
    context_.device.copy(Lane::communicate, host_partials_.data(), device_partials_,
                         norm_partials_bytes(context_.units));
  context_.device.synchronize();
  if (nvme_ != nullptr) nvme_->finish();
  auto* const partials = reinterpret_cast<double*>(host_partials_.data());
  for (UnitId u = 0; u < homes_.size(); ++u)
    if (contributions_[u] == 0)
      std::fill_n(partials + homes_[u].first_partial,
                  divide_up(context_.units[u].own.numel, norm_chunk_numel), 0.0);
}

double GradientStore::finish() {
  collect_partials();
  const int world = context_.communicator.size();
  std::vector<Bytes> pieces(static_cast<std::size_t>(world), 0);
  for (const UnitPlan& unit : context_.units)
    for (std::size_t r = 0; r < pieces.size(); ++r)
      pieces[r] += divide_up(unit.shards[r].numel, norm_chunk_numel) * sizeof(double);
  std::vector<std::size_t> next(pieces.size(), 0);  // of each rank's partials in the gathered array
  for (std::size_t r = 1; r < pieces.size(); ++r) next[r] = next[r - 1] + pieces[r - 1] / sizeof(double);
  std::vector<double> gathered(next.back() + pieces.back() / sizeof(double));
  std::copy_n(reinterpret_cast<const double*>(host_partials_.data()),
              norm_partials_bytes(context_.units) / sizeof(double),
              gathered.begin() +
                  static_cast<std::ptrdiff_t>(next[static_cast<std::size_t>(context_.communicator.rank())]));
  if (world > 1) {
    context_.communicator.all_gather(gathered.data(), pieces, Traffic::control, "gradient norm");
    context_.device.synchronize();
  }
  double sum = 0;  // in (unit, chunk) order
  for (const UnitPlan& unit : context_.units)
    for (std::size_t r = 0; r < pieces.size(); ++r)
      for (std::uint64_t c = divide_up(unit.shards[r].numel, norm_chunk_numel); c > 0; --c)
        sum += gathered[next[r]++];
  return sum;
}

// The partial norms say in which chunk it is; that is read alone.
GradientPlace GradientStore::first_of_the_sum() {
  const auto* const partials = reinterpret_cast<const double*>(host_partials_.data());
  for (UnitId u = 0; u < homes_.size(); ++u) {
    const Range own = context_.units[u].own;
    for (std::uint64_t skipped = 0; skipped < own.numel; skipped += norm_chunk_numel) {
      if (std::isfinite(partials[homes_[u].first_partial + skipped / norm_chunk_numel])) continue;
      const Range chunk{own.first + skipped, std::min(norm_chunk_numel, own.numel - skipped)};
      return {u, chunk.first + first_in_chunk(u, chunk)};
    }
  }
  return {};
}

std::uint64_t GradientStore::first_in_chunk(UnitId unit, Range chunk) {
  const DType dtype = context_.options.dtype;
  if (nvme_ != nullptr)
    return nvme_->inspect(
        unit, chunk, [&](const std::byte* values) { return first_non_finite(values, dtype, chunk.numel); });
  if (!on_device()) return first_non_finite(address(unit, chunk.first), dtype, chunk.numel);
  std::vector<std::byte> values(chunk.numel * context_.element_bytes());
  context_.device.copy(Lane::download, values.data(), address(unit, chunk.first), values.size());
  context_.device.synchronize();
  return first_non_finite(values.data(), dtype, chunk.numel);
}

void GradientStore::replicate() {
  for (UnitId u = 0; u < homes_.size(); ++u) {
    const UnitPlan& unit = context_.units[u];
    if (contributions_[u] == 0 || unit.layout.numel == 0) continue;
    context_.communicator.all_gather(homes_[u].device, piece_bytes(unit, context_.element_bytes()),
                                     Traffic::all_gather, unit.layout.spec.name);
  }
}

void GradientStore::reset() {
  std::fill(contributions_.begin(), contributions_.end(), 0);
  micro_batches_ = 0;
  order_.clear(), last_order_.clear();  // the next micro-batch finds no sums
}

}  // namespace headrace
