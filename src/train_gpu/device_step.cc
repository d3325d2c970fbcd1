#include "train_gpu/device_step.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "train/gradient_bound.h"

namespace hps {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kKeysMax = (uint64_t{1} << 29) - 1;
constexpr size_t kVectorElements = 4;

cudaStream_t StreamOf(DeviceStream stream) { return static_cast<cudaStream_t>(stream.handle); }

// Divides memory into arrays.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  template <typename T>
  T* Take(size_t count) {
    const size_t at = RoundUp(used_, kAlignment);
    used_ = at + count * sizeof(T);
    return memory_ == nullptr ? nullptr : static_cast<T*>(static_cast<void*>(memory_ + at));
  }
  // With what the beginning of the memory may lack to be aligned.
  size_t bytes() const { return used_ + kAlignment; }

 private:
  std::byte* const memory_;
  size_t used_ = 0;
};

std::byte* Aligned(std::span<std::byte> memory) {
  return std::bit_cast<std::byte*>(RoundUp(std::bit_cast<uintptr_t>(memory.data()), kAlignment));
}

absl::Status MemoryError(size_t got, size_t needed) {
  return absl::InvalidArgumentError(
      absl::StrCat("embedding tables: a step got ", got, " bytes of memory, but needs ", needed));
}

template <typename T>
absl::Status WriteArray(T* to, std::span<const T> values, cudaStream_t stream) {
  return CudaStatus(
      WriteToDevice(static_cast<std::byte*>(static_cast<void*>(to)), AsBytes(values), stream),
      "describing a step");
}

// Appends the bytes of arrays, which follow each other on the device as in Carver.
class Description {
 public:
  template <typename T>
  void Add(const std::vector<T>& values) {
    bytes_.resize(RoundUp(bytes_.size(), kAlignment));
    const std::span<const std::byte> added = AsBytes(std::span<const T>(values));
    bytes_.insert(bytes_.end(), added.begin(), added.end());
  }
  std::vector<std::byte> bytes() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

DeviceStep::DeviceStep(DeviceStorage* storage, std::span<TableProgress> progress,
                       std::vector<size_t> tables, std::vector<SetFeature> features)
    : storage_(storage),
      progress_(progress),
      tables_(std::move(tables)),
      features_(std::move(features)),
      order_(features_.size()),
      has_gradients_(tables_.size()) {
  const auto group_of = [this](size_t feature) {
    return storage_->group_of(tables_[features_[feature].table]);
  };
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    return std::pair(group_of(a), features_[a].table) < std::pair(group_of(b), features_[b].table);
  });
  for (uint32_t i = 0; i < order_.size(); ++i) {
    const uint32_t group = group_of(order_[i]);
    if (groups_.empty() || groups_.back().group != group)
      groups_.push_back({.group = group,
                         .feature_begin = i,
                         .dim = dim(order_[i]),
                         .states = storage_->group(group).state_count / dim(order_[i])});
    groups_.back().feature_end = i + 1;
    dim_max_ = std::max(dim_max_, dim(order_[i]));
  }
}

uint32_t DeviceStep::dim(size_t feature) const {
  return storage_->options(tables_[features_[feature].table]).dim;
}

absl::Status DeviceStep::CheckBatch(const SetBatch& batch) const {
  HPS_RETURN_IF_ERROR(ValidateSizes(batch, features_.size()));
  if (batch.keys.size() > kKeysMax || batch.offsets.size() > kKeysMax)
    return absl::InvalidArgumentError("keys: 2^29 keys or bags, or more, in a batch on a device");
  if (batch.weights.empty()) return absl::OkStatus();
  for (size_t i = 0; i < features_.size(); ++i) {
    const bool is_weighted = batch.is_weighted.empty() || batch.is_weighted[i] != 0;
    if (!is_weighted || features_[i].pooling == Pooling::kSum) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("feature '", features_[i].name, "' of table '",
                     storage_->options(tables_[features_[i].table]).name,
                     "': keys: weights need the pooling sum"));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> DeviceStep::ScratchBytes(size_t key_count, StepMode mode) const {
  if (mode == StepMode::kEvaluate || key_count == 0) return size_t{0};
  if (scratch_.key_count != key_count) {
    HPS_RETURN_IF_ERROR(
        CudaStatus(OrderScratchBytes(static_cast<uint32_t>(key_count), &scratch_.bytes),
                   "asking for a sort's memory"));
    scratch_.key_count = key_count;
  }
  return scratch_.bytes;
}

size_t DeviceStep::LayOut(const SetBatch& batch, StepMode mode, size_t scratch_bytes,
                          std::byte* memory, TrainStepView& view) const {
  const size_t keys = batch.keys.size();
  const size_t features = features_.size();
  Carver carver(memory);
  // What Describe describes comes first, in its order.
  view.features = carver.Take<FeatureView>(features);
  view.tables = carver.Take<StepTable>(tables_.size());
  view.groups = carver.Take<StepGroup>(groups_.size());
  view.starts = carver.Take<uint32_t>(features + 1);
  view.found.counts = carver.Take<StepCounts>(1);
  view.found.table_missing = carver.Take<uint32_t>(tables_.size());
  view.outputs.rows = carver.Take<FeatureRows>(features);
  view.found.rows = carver.Take<uint32_t>(keys);
  if (mode == StepMode::kTrain) {
    view.found.missing = carver.Take<uint32_t>(keys);
    view.found.entries = carver.Take<uint64_t*>(keys);
    view.found.created = carver.Take<uint32_t>(keys);
  }
  if (mode == StepMode::kEvaluate) return carver.bytes();
  if (!batch.offsets.empty()) view.found.bags = carver.Take<uint32_t>(keys);
  view.order.firsts = carver.Take<uint32_t>(keys);
  view.order.positions = carver.Take<uint32_t>(keys);
  view.order.sorted_firsts = carver.Take<uint32_t>(keys);
  view.order.sorted = carver.Take<uint32_t>(keys);
  view.order.scratch = carver.Take<std::byte>(scratch_bytes);
  view.order.scratch_bytes = scratch_bytes;
  return carver.bytes();
}

absl::StatusOr<size_t> DeviceStep::PrepareBytes(const SetBatch& batch, StepMode mode) const {
  HPS_RETURN_IF_ERROR(CheckBatch(batch));
  const DeviceScope scope(storage_->device());
  HPS_ASSIGN_OR_RETURN(const size_t scratch_bytes, ScratchBytes(batch.keys.size(), mode));
  TrainStepView view{};
  return LayOut(batch, mode, scratch_bytes, nullptr, view);
}

absl::Status DeviceStep::Prepare(const SetBatch& batch, StepMode mode, std::span<std::byte> memory,
                                 DeviceStream stream) {
  HPS_RETURN_IF_ERROR(CheckBatch(batch));
  const MutexLock lock(storage_->mutex());
  const DeviceScope scope(storage_->device());
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_RETURN_IF_ERROR(storage_->TakeProblem());
  stage_ = Stage::kNone;
  HPS_RETURN_IF_ERROR(UseMemory(batch, mode, memory));
  if (mode != StepMode::kEvaluate) {
    HPS_ASSIGN_OR_RETURN(view_.number, storage_->NextOrder());
  }
  HPS_RETURN_IF_ERROR(storage_->Enter(StreamOf(stream)));
  // The memory before may be this one.
  HPS_RETURN_IF_ERROR(WaitForOrder(StreamOf(stream)));
  if (mode == StepMode::kTrain) HPS_RETURN_IF_ERROR(CountTraining());
  const absl::Status status = FindRowsOf(batch, mode, StreamOf(stream));
  if (!status.ok() && mode == StepMode::kTrain) UncountTraining();
  HPS_RETURN_IF_ERROR(storage_->Leave(StreamOf(stream)));
  HPS_RETURN_IF_ERROR(status);
  stage_ = mode == StepMode::kEvaluate ? Stage::kFound : Stage::kOrdered;
  return absl::OkStatus();
}

absl::Status DeviceStep::UseMemory(const SetBatch& batch, StepMode mode,
                                   std::span<std::byte> memory) {
  HPS_ASSIGN_OR_RETURN(const size_t scratch_bytes, ScratchBytes(batch.keys.size(), mode));
  view_ = {};
  const size_t bytes = LayOut(batch, mode, scratch_bytes, Aligned(memory), view_);
  if (memory.size() < bytes) return MemoryError(memory.size(), bytes);
  view_.set = storage_->view();
  view_.batch.keys = batch.keys.data();
  view_.batch.offsets = batch.offsets.empty() ? nullptr : batch.offsets.data();
  view_.batch.weights = batch.weights.empty() ? nullptr : batch.weights.data();
  view_.batch.key_count = static_cast<uint32_t>(batch.keys.size());
  view_.feature_count = static_cast<uint32_t>(features_.size());
  view_.table_count = static_cast<uint32_t>(tables_.size());
  view_.group_count = static_cast<uint32_t>(groups_.size());
  using NewRows = TrainStepView::NewRows;
  view_.new_rows = mode == StepMode::kTrain ? NewRows::kByAdmission : NewRows::kNone;
  return absl::OkStatus();
}

absl::Status DeviceStep::InsertRows(const SetBatch& batch, std::span<std::byte> memory,
                                    cudaStream_t stream) {
  HPS_RETURN_IF_ERROR(UseMemory(batch, StepMode::kTrain, memory));
  HPS_ASSIGN_OR_RETURN(view_.number, storage_->NextOrder());
  view_.new_rows = TrainStepView::NewRows::kAll;
  HPS_RETURN_IF_ERROR(StartStep(batch, /*is_seen=*/false, stream));
  return TakeRows(batch, stream);
}

absl::Status DeviceStep::CountTraining() {
  for (const size_t table : tables_) {
    // A step counts two changes.
    if (progress_[table].change < UINT32_MAX - 2) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "embedding table ", storage_->options(table).name, ": more than 2^31 training steps"));
  }
  for (const size_t table : tables_) {
    ++progress_[table].step;
    ++progress_[table].change;
  }
  return absl::OkStatus();
}

// The step was not made: the next one has its number. Rows may have been erased for their age, so
// the change stays.
void DeviceStep::UncountTraining() {
  for (const size_t table : tables_) --progress_[table].step;
}

std::vector<std::byte> DeviceStep::Describe(const SetBatch& batch) {
  std::vector<uint32_t> bag_begins(features_.size() + 1);
  for (size_t i = 0; i < features_.size(); ++i)
    bag_begins[i + 1] = bag_begins[i] + static_cast<uint32_t>(batch.bag_counts[i]);
  view_.batch.bag_count = bag_begins.back();
  sizes_.output_rows_max = 0;
  sizes_.sum_count = batch.offsets.empty() ? 0 : batch.keys.size() * dim_max_;
  for (size_t i = 0; i < features_.size(); ++i) {
    if (batch.offsets.empty())
      sizes_.sum_count +=
          batch.keys.empty() ? 0 : size_t{bag_begins[i + 1] - bag_begins[i]} * dim(i);
    // Only the device knows how many keys a feature has.
    const bool has_row_for_key = features_[i].pooling == Pooling::kNone && !batch.offsets.empty();
    sizes_.output_rows_max =
        std::max(sizes_.output_rows_max,
                 has_row_for_key ? view_.batch.key_count : bag_begins[i + 1] - bag_begins[i]);
  }
  std::vector<FeatureView> features;
  features.reserve(features_.size());
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    for (uint32_t i = groups_[g].feature_begin; i < groups_[g].feature_end; ++i) {
      const size_t f = order_[i];
      const bool is_weighted =
          !batch.weights.empty() && (batch.is_weighted.empty() || batch.is_weighted[f] != 0);
      features.push_back({.bag_begin = bag_begins[f],
                          .bag_count = static_cast<uint32_t>(batch.bag_counts[f]),
                          .table = static_cast<uint32_t>(tables_[features_[f].table]),
                          .step_table = static_cast<uint32_t>(features_[f].table),
                          .step_group = g,
                          .pooling = features_[f].pooling,
                          .is_weighted = is_weighted ? 1U : 0U,
                          .key_begin = 0});
    }
  }
  std::vector<StepTable> tables;
  for (const size_t table : tables_) {
    tables.push_back({.table = static_cast<uint32_t>(table),
                      .step = progress_[table].step,
                      .change = progress_[table].change});
  }
  Description description;
  description.Add(features);
  description.Add(tables);
  description.Add(groups_);
  return std::move(description).bytes();
}

absl::Status DeviceStep::StartStep(const SetBatch& batch, bool is_seen, cudaStream_t stream) {
  const std::vector<std::byte> description = Describe(batch);
  const int64_t bags_max = *std::max_element(batch.bag_counts.begin(), batch.bag_counts.end());
  HPS_RETURN_IF_ERROR(
      CudaStatus(StartPositions(view_, description, static_cast<uint32_t>(bags_max), stream),
                 "reading offsets"));
  if (batch.keys.empty()) return absl::OkStatus();
  return CudaStatus(FindRows(view_, is_seen, stream), "finding rows");
}

absl::Status DeviceStep::FindRowsOf(const SetBatch& batch, StepMode mode, cudaStream_t stream) {
  for (size_t i = 0; mode == StepMode::kTrain && i < tables_.size(); ++i)
    HPS_RETURN_IF_ERROR(BeginAges(*storage_, tables_[i], progress_[tables_[i]], stream));
  HPS_RETURN_IF_ERROR(StartStep(batch, mode != StepMode::kEvaluate, stream));
  if (batch.keys.empty()) return absl::OkStatus();
  if (mode == StepMode::kTrain) HPS_RETURN_IF_ERROR(TakeRows(batch, stream));
  if (mode == StepMode::kEvaluate) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(CudaStatus(FindFirsts(view_, stream), "finding first positions"));
  if (mode == StepMode::kTrain) return OrderBeside(stream);
  return CudaStatus(OrderPositions(view_, stream), "sorting rows");
}

// Sorts in a stream of its own, while Gather reads rows.
absl::Status DeviceStep::OrderBeside(cudaStream_t stream) {
  if (ordered_ == nullptr) {
    HPS_ASSIGN_OR_RETURN(found_, MakeEvent());
    HPS_ASSIGN_OR_RETURN(ordered_, MakeEvent());
  }
  const cudaStream_t beside = storage_->beside();
  HPS_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(found_.get(), stream), "recording an event"));
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaStreamWaitEvent(beside, found_.get(), 0), "waiting in a stream"));
  const absl::Status status = CudaStatus(OrderPositions(view_, beside), "sorting rows");
  return RecordAfter(status, ordered_.get(), beside, "recording an event");
}

absl::Status DeviceStep::WaitForOrder(cudaStream_t stream) const {
  if (ordered_ == nullptr) return absl::OkStatus();
  return CudaStatus(cudaStreamWaitEvent(stream, ordered_.get(), 0), "waiting in a stream");
}

// The number of a table's keys is known without offsets; with them, any table may have all keys.
NewKeys DeviceStep::NewRowsBound(const SetBatch& batch) const {
  NewKeys bound{.tables = {}, .total = batch.keys.size()};
  for (const size_t table : tables_) bound.tables.push_back({.table = table});
  for (size_t i = 0; i < features_.size(); ++i) {
    uint64_t& count = bound.tables[features_[i].table].count;
    if (batch.offsets.empty())
      count += static_cast<uint64_t>(batch.bag_counts[i]);
    else
      count = batch.keys.size();
  }
  return bound;
}

absl::Status DeviceStep::TakeRows(const SetBatch& batch, cudaStream_t stream) {
  const NewKeys bound = NewRowsBound(batch);
  NewKeys taken = bound;
  bool has_room = storage_->HasRoom(bound);
  // Steps before this one may have taken less than the host knows.
  while (!has_room && storage_->WaitForReading()) has_room = storage_->HasRoom(bound);
  if (!has_room) HPS_RETURN_IF_ERROR(MakeRoom(bound, stream, taken));
  HPS_RETURN_IF_ERROR(CudaStatus(ClaimEntries(view_, stream), "claiming slots of keys"));
  HPS_RETURN_IF_ERROR(CudaStatus(CreateRows(view_, stream), "making rows"));
  HPS_RETURN_IF_ERROR(CudaStatus(ResolveRows(view_, stream), "finding new rows"));
  storage_->AddTaken(taken, stream);
  return absl::OkStatus();
}

// Waits for the device, and asks it how many keys have no row.
absl::Status DeviceStep::MakeRoom(const NewKeys& bound, cudaStream_t stream, NewKeys& taken) {
  std::vector<uint32_t> missing(tables_.size());
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(missing.data(), view_.found.table_missing,
                                 missing.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost, stream),
                 "counting new keys"));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "counting new keys"));
  taken.total = 0;
  for (size_t i = 0; i < taken.tables.size(); ++i) {
    taken.tables[i].count = missing[i];
    taken.total += missing[i];
  }
  return storage_->MakeRoom(taken, bound, stream);
}

bool DeviceStep::IsAligned(const FeatureRows& rows, Dtype dtype, size_t feature) const {
  const size_t bytes = kVectorElements * ElementBytes(dtype);
  return std::bit_cast<uintptr_t>(rows.rows) % bytes == 0 && rows.stride % bytes == 0 &&
         dim(feature) % kVectorElements == 0;
}

absl::Status DeviceStep::Gather(std::span<const DeviceOutput> outputs, Dtype dtype,
                                DeviceStream stream) {
  HPS_CHECK(outputs.size() == features_.size());
  const MutexLock lock(storage_->mutex());
  if (stage_ == Stage::kNone)
    return absl::InvalidArgumentError("embedding tables: the step was not prepared");
  const DeviceScope scope(storage_->device());
  std::vector<FeatureRows> places;
  bool is_aligned = true;
  for (const size_t f : order_) {
    places.push_back({outputs[f].rows, outputs[f].stride_bytes});
    is_aligned = is_aligned && IsAligned(places.back(), dtype, f);
  }
  view_.outputs.dtype = dtype;
  HPS_RETURN_IF_ERROR(storage_->Enter(StreamOf(stream)));
  absl::Status status =
      WriteArray(view_.outputs.rows, std::span<const FeatureRows>(places), StreamOf(stream));
  if (status.ok()) {
    status = CudaStatus(
        GatherRows(view_, sizes_.output_rows_max, dim_max_, is_aligned, StreamOf(stream)),
        "reading rows");
  }
  // Also after an error: the caller may free the step's memory behind this call.
  HPS_RETURN_IF_ERROR(WaitForOrder(StreamOf(stream)));
  HPS_RETURN_IF_ERROR(storage_->Leave(StreamOf(stream)));
  return status;
}

size_t DeviceStep::LayOutReduce(std::byte* memory, ReduceView& reduce) const {
  const size_t keys = view_.batch.key_count;
  const size_t chunks = (keys + kChunk - 1) / kChunk;
  reduce.chunks = static_cast<uint32_t>(chunks);
  Carver carver(memory);
  reduce.gradients = carver.Take<FeatureRows>(features_.size());
  reduce.updates = carver.Take<StepUpdate>(tables_.size());
  reduce.sums = carver.Take<float>(sizes_.sum_count);
  reduce.heads = carver.Take<float>(chunks * dim_max_);
  reduce.tails = carver.Take<float>(chunks * dim_max_);
  reduce.spans = carver.Take<Span>(chunks);
  return carver.bytes();
}

size_t DeviceStep::ReduceBytes() const {
  ReduceView reduce{};
  return LayOutReduce(nullptr, reduce);
}

absl::Status DeviceStep::Reduce(const DeviceGradients& gradients, float scale,
                                std::span<std::byte> memory, DeviceStream stream) {
  HPS_CHECK(gradients.features.size() == features_.size());
  const MutexLock lock(storage_->mutex());
  if (stage_ != Stage::kOrdered)
    return absl::InvalidArgumentError(
        "embedding tables: Reduce needs a step prepared with kTrain or kOrder, and once");
  reduce_ = {};
  const size_t bytes = LayOutReduce(Aligned(memory), reduce_);
  if (memory.size() < bytes) return MemoryError(memory.size(), bytes);
  const DeviceScope scope(storage_->device());
  reduce_.dtype = gradients.dtype;
  reduce_.dim_max = dim_max_;
  reduce_.limit = GradientLimit(1, scale);
  reduce_.scale = scale;
  reduce_.is_aligned = true;
  reduce_.skipped = storage_->skipped();
  std::vector<FeatureRows> rows;
  std::fill(has_gradients_.begin(), has_gradients_.end(), 0);
  for (const size_t f : order_) {
    const DeviceGradient& own = gradients.features[f];
    rows.push_back({const_cast<std::byte*>(own.rows), own.stride_bytes});  // only read
    reduce_.is_aligned = reduce_.is_aligned && IsAligned(rows.back(), gradients.dtype, f);
    if (own.rows != nullptr) has_gradients_[features_[f].table] = 1;
  }

  HPS_RETURN_IF_ERROR(storage_->Enter(StreamOf(stream)));
  absl::Status status =
      WriteArray(reduce_.gradients, std::span<const FeatureRows>(rows), StreamOf(stream));
  if (status.ok() && view_.batch.key_count != 0) {
    status =
        CudaStatus(SumGradients(view_, reduce_, groups_, StreamOf(stream)), "summing gradients");
  }
  HPS_RETURN_IF_ERROR(storage_->Leave(StreamOf(stream)));
  stage_ = status.ok() ? Stage::kReduced : Stage::kNone;
  return status;
}

absl::Status DeviceStep::Apply(std::span<const UpdateFactors> factors, float* verdict,
                               DeviceStream stream) {
  HPS_CHECK(factors.size() == tables_.size());
  const MutexLock lock(storage_->mutex());
  if (stage_ != Stage::kReduced)
    return absl::InvalidArgumentError("embedding tables: call Reduce before Apply");
  stage_ = Stage::kNone;
  reduce_.verdict = verdict;
  const DeviceScope scope(storage_->device());
  std::vector<StepUpdate> updates;
  for (size_t t = 0; t < tables_.size(); ++t) {
    updates.push_back({.rate = factors[t].learning_rate,
                       .change = ++progress_[tables_[t]].change,
                       .has_gradients = has_gradients_[t],
                       .correction = 1});
  }
  HPS_RETURN_IF_ERROR(storage_->Enter(StreamOf(stream)));
  const absl::Status status =
      CudaStatus(UpdateRows(view_, reduce_, updates, groups_, StreamOf(stream)), "updating rows");
  HPS_RETURN_IF_ERROR(storage_->Leave(StreamOf(stream)));
  return status;
}

}  // namespace hps
