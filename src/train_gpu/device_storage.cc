#include "train_gpu/device_storage.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "train_gpu/kernels/kernels.h"

namespace hps {
namespace {

// An index grows when more than kLoadMax of its slots are in use, to room for kGrowth times the
// keys that it has and gets.
constexpr double kLoadMax = 0.8;
constexpr double kGrowth = 1.5;
// An index also gets room for later steps, if the keys wanted in all tables are at most
// kWantedKeys, or those of the table at most half of its own. Rows for later steps take at most 1 /
// kWantedPart of the device's memory, or 1 / kWantedPartOfRows of the rows that are needed.
constexpr uint64_t kWantedKeys = uint64_t{4} << 20;
constexpr uint64_t kWantedPart = 16;
constexpr uint64_t kWantedPartOfRows = 4;
// Steps that the host may queue before it knows what the first of them has taken.
constexpr uint64_t kStepsAhead = 3;
constexpr uint64_t kStrideUnit = 128;
constexpr uint64_t kStateAlignment = 16;

bool HaveOneGroup(const ShardOptions& a, const ShardOptions& b) {
  return a.dim == b.dim && a.dtype == b.dtype && a.optimizer == b.optimizer;
}

// Row-wise AdaGrad's is in the record.
uint32_t StateInRow(const ShardOptions& options) {
  if (options.optimizer.kind == OptimizerKind::kRowwiseAdagrad) return 0;
  return static_cast<uint32_t>(options.optimizer.state_count(options.dim));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStorage>> DeviceStorage::Create(
    int device, const std::vector<ShardOptions>& options) {
  std::unique_ptr<DeviceStorage> storage(new DeviceStorage(device));
  HPS_RETURN_IF_ERROR(storage->Initialize(options));
  return storage;
}

DeviceStorage::~DeviceStorage() {
  // Steps of the caller's streams may use the memory.
  const DeviceScope scope(device_);
  (void)cudaDeviceSynchronize();
}

absl::Status DeviceStorage::Initialize(const std::vector<ShardOptions>& options) {
  HPS_ASSIGN_OR_RETURN(stream_, MakeStream(StreamPriority::kHigh));
  HPS_ASSIGN_OR_RETURN(beside_, MakeStream(StreamPriority::kHigh));
  HPS_ASSIGN_OR_RETURN(last_work_, MakeEvent());
  for (const ShardOptions& each : options) HPS_RETURN_IF_ERROR(AddTable(each));
  HPS_ASSIGN_OR_RETURN(
      device_views_,
      MakeDeviceBuffer("tables",
                       RoundUp(table_views_.size() * sizeof(TrainTableView), kStrideUnit) +
                           group_views_.size() * sizeof(TrainGroupView)));
  HPS_ASSIGN_OR_RETURN(readings_,
                       CounterReadings::Create(tables_.size(), groups_.size(), stream()));
  HPS_ASSIGN_OR_RETURN(skipped_, MakeDeviceBuffer("counters", sizeof(uint64_t)));
  HPS_ASSIGN_OR_RETURN(problems_, MakePinnedBuffer("counters", kDeviceProblems * sizeof(uint32_t)));
  std::memset(problems_.data(), 0, problems_.bytes());
  HPS_RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(skipped_.data(), 0, skipped_.bytes(), stream()),
                                 "clearing counters"));
  view_ = {.tables = device_views_.at<TrainTableView>(0),
           .groups = device_views_.at<TrainGroupView>(
               RoundUp(table_views_.size() * sizeof(TrainTableView), kStrideUnit)),
           .table_counters = readings_.tables(),
           .group_counters = readings_.groups(),
           .problems = problems_.at<uint32_t>(0)};
  HPS_RETURN_IF_ERROR(UploadViews(stream()));
  return CudaStatus(cudaStreamSynchronize(stream()), "making tables");
}

absl::Status DeviceStorage::AddTable(const ShardOptions& options) {
  HPS_ASSIGN_OR_RETURN(const uint32_t group, GroupFor(options));
  tables_.push_back({.options = options});
  table_views_.push_back({.buckets = nullptr,
                          .bucket_count = 0,
                          .group = group,
                          .admit_after = options.admit_after,
                          .expire_after = options.expire_after,
                          .initializer = options.initializer});
  return GrowIndex(tables_.size() - 1, 1, stream());
}

absl::StatusOr<uint32_t> DeviceStorage::GroupFor(const ShardOptions& options) {
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (!HaveOneGroup(tables_[t].options, options)) continue;
    absl::StrAppend(&groups_[table_views_[t].group].tables, ", ", options.name);
    return table_views_[t].group;
  }
  Group group{.tables = options.name};
  const uint32_t state_count = StateInRow(options);
  const uint64_t state_begin = RoundUp(options.dim * ElementBytes(options.dtype), kStateAlignment);
  TrainGroupView view{
      .rows = nullptr,
      .records = nullptr,
      .free_rows = nullptr,
      .stride_bytes = RoundUp(state_begin + state_count * sizeof(float), kStrideUnit),
      .dim = options.dim,
      .dtype = options.dtype,
      .state_begin = static_cast<uint32_t>(state_begin),
      .state_count = state_count,
      .optimizer = options.optimizer,
      .corrections = nullptr};
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for a device's memory"));
  for (VirtualMemory* const memory : {&group.rows, &group.records, &group.free_rows}) {
    HPS_ASSIGN_OR_RETURN(*memory, VirtualMemory::Reserve(device_, total_bytes));
  }
  HPS_RETURN_IF_ERROR(AddCorrections(group, view));
  groups_.push_back(std::move(group));
  group_views_.push_back(view);
  const auto number = static_cast<uint32_t>(groups_.size() - 1);
  HPS_RETURN_IF_ERROR(GrowRows(number, 1));
  return number;
}

// The host's own numbers, as its kernels use them.
absl::Status DeviceStorage::AddCorrections(Group& group, TrainGroupView& view) {
  const SparseOptimizer& optimizer = view.optimizer;
  if (optimizer.kind != OptimizerKind::kAdam) return absl::OkStatus();
  std::vector<float2> known(kKnownCorrections);
  for (uint32_t t = 1; t < kKnownCorrections; ++t) {
    known[t].x = static_cast<float>(1 / (1 - std::pow(double{optimizer.beta1}, t)));
    known[t].y = static_cast<float>(1 / (1 - std::pow(double{optimizer.beta2}, t)));
  }
  const size_t bytes = known.size() * sizeof(float2);
  HPS_ASSIGN_OR_RETURN(group.corrections, MakeDeviceBuffer("Adam's corrections", bytes));
  view.corrections = group.corrections.at<float2>(0);
  return CudaStatus(
      cudaMemcpy(group.corrections.data(), known.data(), bytes, cudaMemcpyHostToDevice),
      "copying Adam's corrections");
}

absl::Status DeviceStorage::UploadViews(cudaStream_t stream) {
  HPS_RETURN_IF_ERROR(
      CudaStatus(WriteToDevice(device_views_.data(),
                               AsBytes(std::span<const TrainTableView>(table_views_)), stream),
                 "copying tables"));
  return CudaStatus(
      WriteToDevice(
          device_views_.data() + RoundUp(table_views_.size() * sizeof(TrainTableView), kStrideUnit),
          AsBytes(std::span<const TrainGroupView>(group_views_)), stream),
      "copying tables");
}

uint64_t DeviceStorage::SlotsBound(size_t table) const {
  return readings_.table(table).slots + readings_.taken_since(table);
}

uint64_t DeviceStorage::RowsBound(size_t table) const {
  return readings_.table(table).rows + readings_.taken_since(table);
}

uint64_t DeviceStorage::RowsMax(uint32_t group) const {
  const Group& memory = groups_[group];
  return std::min({memory.rows.bytes() / group_views_[group].stride_bytes,
                   memory.records.bytes() / sizeof(RowRecord),
                   memory.free_rows.bytes() / sizeof(uint32_t), uint64_t{kDeviceRowsMax}});
}

bool DeviceStorage::HasRoom(const NewKeys& keys) const {
  std::vector<uint64_t> rows(groups_.size());
  for (const auto& [table, count] : keys.tables) {
    const TrainTableView& view = table_views_[table];
    const auto slots = static_cast<double>(SlotsBound(table) + count);
    if (slots > kLoadMax * static_cast<double>(view.bucket_count * kBucketKeys)) return false;
    rows[view.group] += count;
  }
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (rows[g] != 0 && RowsWith(g, std::min(rows[g], keys.total)) > RowsMax(g)) return false;
  }
  return true;
}

absl::Status DeviceStorage::MakeRoom(const NewKeys& needed, const NewKeys& wanted,
                                     cudaStream_t stream) {
  HPS_RETURN_IF_ERROR(ReadCounters(stream));
  const absl::Status status = Grow(needed, wanted, stream);
  // Also after an error: some of it may have grown.
  HPS_RETURN_IF_ERROR(UploadViews(stream));
  // Moving an index leaves out the slots of erased keys: its counter is smaller now.
  HPS_RETURN_IF_ERROR(ReadCounters(stream));
  return status;
}

absl::Status DeviceStorage::Grow(const NewKeys& needed, const NewKeys& wanted,
                                 cudaStream_t stream) {
  std::vector<uint64_t> rows(groups_.size());
  std::vector<uint64_t> rows_wanted(groups_.size());
  uint64_t all_wanted = 0;
  for (const NewKeys::OfTable& each : wanted.tables) all_wanted += each.count;
  for (size_t i = 0; i < needed.tables.size(); ++i) {
    const auto& [table, count] = needed.tables[i];
    const TrainTableView& view = table_views_[table];
    const uint64_t most = std::max(wanted.tables[i].count, count);
    rows[view.group] += count;
    rows_wanted[view.group] += most;
    const uint64_t slots = readings_.table(table).slots + count;
    // Room for this step, and if that is cheap for the next ones, too.
    const bool is_cheap = all_wanted <= kWantedKeys || most <= slots / 2;
    const uint64_t slack = is_cheap ? kStepsAhead * most : 0;
    const double room = kLoadMax * static_cast<double>(view.bucket_count * kBucketKeys);
    if (static_cast<double>(slots + slack) > room)
      HPS_RETURN_IF_ERROR(GrowIndex(table, count + slack, stream));
  }
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for a device's memory"));
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (rows_wanted[g] == 0) continue;
    const uint64_t least = RowsWith(g, std::min(rows[g], needed.total));
    const uint64_t most = std::min(rows_wanted[g], std::max(wanted.total, needed.total));
    const uint64_t cheap = std::max(total_bytes / kWantedPart / group_views_[g].stride_bytes,
                                    least / kWantedPartOfRows);
    const uint64_t slack = kStepsAhead * most <= cheap ? kStepsAhead * most : most;
    if (slack <= cheap && GrowRows(g, least + slack).ok()) continue;
    HPS_RETURN_IF_ERROR(GrowRows(g, least));
  }
  return absl::OkStatus();
}

// The most rows that will have been taken when so many more keys have got some.
uint64_t DeviceStorage::RowsWith(uint32_t group, uint64_t more) const {
  uint64_t taken = 0;
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (table_views_[t].group == group) taken += readings_.taken_since(t);
  }
  const TrainGroupCounters& known = readings_.group(group);
  const uint64_t coming = std::min(taken, readings_.all_taken_since()) + more;
  const auto free = static_cast<uint64_t>(std::max(known.free, 0));
  return known.taken + (coming > free ? coming - free : 0);
}

absl::Status DeviceStorage::GrowIndex(size_t table, uint64_t new_keys, cudaStream_t stream) {
  Table& grown = tables_[table];
  const TrainTableView before = table_views_[table];
  uint64_t keys = new_keys;
  // Places of erased keys are not moved.
  if (before.bucket_count != 0) {
    const TrainTableCounters& counted = readings_.table(table);
    keys += uint64_t{counted.rows} + counted.pending + counted.noted;
  }
  const auto least =
      static_cast<uint64_t>(static_cast<double>(keys) * kGrowth / (kLoadMax * kBucketKeys)) + 1;
  const uint64_t bytes = (least + 1) * sizeof(KeyBucket);
  HPS_ASSIGN_OR_RETURN(VirtualMemory index, VirtualMemory::Reserve(device_, bytes));
  const absl::Status status = index.GrowTo(
      bytes,
      absl::StrCat("the index of embedding table '", grown.options.name, "' for ", keys, " keys")
          .c_str());
  HPS_RETURN_IF_ERROR(status);
  TrainTableView after = before;
  after.buckets = index.as<KeyBucket>();
  after.bucket_count = index.bytes() / sizeof(KeyBucket) - 1;  // one is for the marks
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(index.data(), 0xff, index.bytes(), stream), "clearing an index"));
  if (before.bucket_count != 0) {
    TrainTableCounters* const counted = counters(table);
    HPS_RETURN_IF_ERROR(CudaStatus(
        cudaMemsetAsync(&counted->slots, 0, sizeof(counted->slots), stream), "an index"));
    HPS_RETURN_IF_ERROR(CudaStatus(MoveIndex(before, after, counted, stream), "moving an index"));
  }
  HPS_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "moving an index"));
  grown.index = std::move(index);
  table_views_[table] = after;
  return absl::OkStatus();
}

absl::Status DeviceStorage::GrowRows(uint32_t group, uint64_t rows) {
  if (rows > kDeviceRowsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("embedding tables ", groups_[group].tables, ": more than 2^30 rows"));
  }
  Group& grown = groups_[group];
  TrainGroupView& view = group_views_[group];
  const std::string what = absl::StrCat(rows, " rows of the embedding tables ", grown.tables);
  HPS_RETURN_IF_ERROR(grown.rows.GrowTo(rows * view.stride_bytes, what.c_str()));
  HPS_RETURN_IF_ERROR(grown.records.GrowTo(rows * sizeof(RowRecord), what.c_str()));
  HPS_RETURN_IF_ERROR(grown.free_rows.GrowTo(rows * sizeof(uint32_t), what.c_str()));
  view.rows = grown.rows.data();
  view.records = grown.records.as<RowRecord>();
  view.free_rows = grown.free_rows.as<uint32_t>();
  return absl::OkStatus();
}

absl::Status DeviceStorage::Enter(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaStreamIsCapturing(stream, &capture), "asking whether a stream is captured"));
  if (capture != cudaStreamCaptureStatusNone) {
    return absl::FailedPreconditionError(
        "embedding tables: a step can't be captured in a CUDA graph yet; capture the network "
        "alone");
  }
  readings_.Poll();
  return CudaStatus(cudaStreamWaitEvent(stream, last_work_.get(), 0), "waiting in a stream");
}

absl::Status DeviceStorage::Leave(cudaStream_t stream) {
  return CudaStatus(cudaEventRecord(last_work_.get(), stream), "recording an event");
}

uint64_t DeviceStorage::RowBytes(size_t table) const {
  const uint64_t row =
      group_views_[group_of(table)].stride_bytes + sizeof(RowRecord) + sizeof(uint32_t);
  return readings_.table(table).rows * row;
}

absl::Status DeviceStorage::TakeProblem() {
  HPS_RETURN_IF_ERROR(TakeFullIndex());
  if (std::atomic_ref(view_.problems[kBadOffsets]).exchange(0) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "embedding tables: the offsets of an earlier call did not ascend from 0 to the number of "
      "keys; its update has changed no row");
}

absl::Status DeviceStorage::TakeFullIndex() {
  if (std::atomic_ref(view_.problems[kIndexFull]).exchange(0) == 0) return absl::OkStatus();
  return absl::InternalError("embedding tables: an index was full");
}

absl::StatusOr<uint32_t> DeviceStorage::NextOrder() {
  if (order_ == UINT32_MAX)
    return absl::ResourceExhaustedError("embedding tables: more than 2^32 steps");
  return ++order_;
}

}  // namespace hps
