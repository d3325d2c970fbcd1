#include "bench/l1/l1_device.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "gpu/cuda_status.h"

namespace hps::bench {
namespace {

// A bijection, so that keys are random and different.
Key KeyOfNumber(uint64_t number) {
  number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
  number = (number ^ number >> 27) * 0x94d049bb133111eb;
  return static_cast<Key>(number ^ number >> 31);
}

// Two events with times, for one stream.
struct Timers {
  cudaStream_t stream = nullptr;
  CudaEvent begin;
  CudaEvent end;

  static absl::StatusOr<std::unique_ptr<Timers>> Create(cudaStream_t stream) {
    auto timers = std::make_unique<Timers>();
    timers->stream = stream;
    for (CudaEvent* event : {&timers->begin, &timers->end}) {
      cudaEvent_t made = nullptr;
      HPS_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&made), "a timer"));
      event->reset(made);
    }
    return timers;
  }
};

template <typename Launch>
absl::StatusOr<double> TimeBetween(const Timers& timers, const Launch& launch) {
  float ms = 0;
  cudaError_t error = cudaEventRecord(timers.begin.get(), timers.stream);
  if (error == cudaSuccess) error = launch();
  if (error == cudaSuccess) error = cudaEventRecord(timers.end.get(), timers.stream);
  if (error == cudaSuccess) error = cudaEventSynchronize(timers.end.get());
  if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, timers.begin.get(), timers.end.get());
  HPS_RETURN_IF_ERROR(CudaStatus(error, "a timed call"));
  return 1000 * static_cast<double>(ms);
}

// A rank from 0 to count - 1 by a power law, from a uniform number in [0, 1): the inverse of the
// integral that stands for the sum.
uint64_t RankOf(double uniform, double alpha, uint64_t count) {
  const double power = 1 - alpha;
  const double end = std::pow(static_cast<double>(count) + 1, power);
  const double x = std::pow(1 + uniform * (end - 1), 1 / power);
  return std::min(count - 1, static_cast<uint64_t>(x) - 1);
}

}  // namespace

absl::StatusOr<CallTimes> TimeCalls(cudaStream_t stream, size_t runs,
                                    const std::function<cudaError_t(size_t)>& launch) {
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<Timers> timers, Timers::Create(stream));
  for (size_t i = 0; i < DeviceTables::kSets; ++i)
    HPS_RETURN_IF_ERROR(CudaStatus(launch(i), "a call that warms up"));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "warming up"));

  std::vector<double> times_us;
  for (size_t i = 0; i < runs; ++i) {
    HPS_ASSIGN_OR_RETURN(const double us, TimeBetween(*timers, [&] { return launch(i); }));
    times_us.push_back(us);
  }
  HPS_ASSIGN_OR_RETURN(const double all_us, TimeBetween(*timers, [&] {
                         cudaError_t error = cudaSuccess;
                         for (size_t i = 0; i < runs && error == cudaSuccess; ++i)
                           error = launch(i);
                         return error;
                       }));
  CallTimes times;
  times.back_to_back_us = all_us / static_cast<double>(runs);
  times.p99_us = Quantile(times_us, 0.99);
  times.one_us = Median(times_us);
  return times;
}

absl::StatusOr<CallTimes> TimeGraph(cudaStream_t stream, size_t runs, size_t calls,
                                    const std::function<cudaError_t(size_t)>& launch) {
  // What is launched for the first time may be loaded, which a capture does not allow.
  HPS_RETURN_IF_ERROR(CudaStatus(launch(0), "a call that warms up"));
  cudaGraph_t graph = nullptr;
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "a graph"));
  cudaError_t error = cudaSuccess;
  for (size_t i = 0; i < calls && error == cudaSuccess; ++i) error = launch(i);
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (error == cudaSuccess) error = ended;
  cudaGraphExec_t executable = nullptr;
  if (error == cudaSuccess) error = cudaGraphInstantiate(&executable, graph, 0);
  absl::StatusOr<CallTimes> times;
  if (error != cudaSuccess) {
    times = CudaStatus(error, "a graph");
  } else {
    times = TimeCalls(stream, runs, [&](size_t) { return cudaGraphLaunch(executable, stream); });
  }
  if (executable != nullptr) (void)cudaGraphExecDestroy(executable);
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  return times;
}

absl::StatusOr<double> TimeOnce(cudaStream_t stream, const std::function<cudaError_t()>& launch) {
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<Timers> timers, Timers::Create(stream));
  return TimeBetween(*timers, launch);
}

absl::StatusOr<std::unique_ptr<DeviceTables>> DeviceTables::Create(const Options& options) {
  std::unique_ptr<DeviceTables> tables(new DeviceTables);
  HPS_RETURN_IF_ERROR(tables->Allocate(options));
  HPS_RETURN_IF_ERROR(tables->Fill());
  HPS_RETURN_IF_ERROR(tables->DrawKeys({}));
  return tables;
}

absl::Status DeviceTables::Allocate(const Options& options) {
  options_ = options;
  part_keys_max_ = options.keys_max / options.table_count + 1;
  HPS_ASSIGN_OR_RETURN(stream_, MakeStream(StreamPriority::kHigh));
  // Device memory for `count` elements of the type of `part`, zeroed.
  const auto take = [this](auto*& part, uint64_t count) -> absl::Status {
    const uint64_t bytes = count * sizeof(*part);
    HPS_ASSIGN_OR_RETURN(DeviceBuffer buffer, MakeDeviceBuffer("the benchmark", bytes));
    HPS_RETURN_IF_ERROR(CudaStatus(cudaMemset(buffer.data(), 0, bytes), "the benchmark"));
    part = buffer.at<std::remove_reference_t<decltype(*part)>>(0);
    buffers_.push_back(std::move(buffer));
    return absl::OkStatus();
  };
  WriteSequence* sequence = nullptr;
  HPS_RETURN_IF_ERROR(take(sequence, 1));
  for (uint32_t t = 0; t < options.table_count; ++t) {
    TableView table;
    table.slab_count = static_cast<uint32_t>(options.slots / options.table_count / kSlabSlots + 1);
    table.row_bytes = options.row_bytes;
    table.row_stride_bytes = RowStrideBytes(options.row_bytes);
    table.write_sequence = sequence;
    const uint64_t slots = uint64_t{table.slab_count} * kSlabSlots;
    HPS_RETURN_IF_ERROR(take(table.slabs, table.slab_count));
    HPS_RETURN_IF_ERROR(take(table.rows, slots * table.row_stride_bytes));
    HPS_RETURN_IF_ERROR(take(table.counters, 1));
    tables_.push_back(table);
  }
  const uint64_t set_keys = uint64_t{kSets} * options.table_count * part_keys_max_;
  HPS_RETURN_IF_ERROR(take(set_keys_, set_keys));
  HPS_RETURN_IF_ERROR(take(set_slots_, set_keys));
  HPS_RETURN_IF_ERROR(take(new_keys_, options.keys_max));
  HPS_RETURN_IF_ERROR(take(count_, 1));
  HPS_RETURN_IF_ERROR(take(rows_, uint64_t{options.keys_max} * options.row_bytes));
  HPS_RETURN_IF_ERROR(take(output_, uint64_t{options.keys_max} * options.row_bytes));
  std::byte* misses = nullptr;
  HPS_RETURN_IF_ERROR(take(misses, MissDeviceBytes(options.keys_max)));
  HPS_ASSIGN_OR_RETURN(pinned_,
                       MakePinnedBuffer("the benchmark", MissPinnedBytes(options.keys_max)));
  std::fill_n(pinned_.data(), pinned_.bytes(), std::byte{0});
  misses_ = CarveMissBuffers(options.keys_max, misses, pinned_.data());
  return absl::OkStatus();
}

absl::Status DeviceTables::Fill() {
  const uint64_t per_table = options_.slots / options_.table_count / 4 * 3;
  for (uint32_t t = 0; t < options_.table_count; ++t) {
    for (uint64_t first = 0; first < per_table; first += options_.keys_max) {
      const auto count =
          static_cast<uint32_t>(std::min<uint64_t>(options_.keys_max, per_table - first));
      std::vector<Key> keys(count);
      for (Key& key : keys) key = KeyOfNumber(next_key_++);
      HPS_RETURN_IF_ERROR(Insert(t, keys));
      held_.insert(held_.end(), keys.begin(), keys.end());
    }
  }
  return absl::OkStatus();
}

absl::Status DeviceTables::Insert(uint32_t table, const std::vector<Key>& keys) {
  const auto count = static_cast<uint32_t>(keys.size());
  HPS_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(new_keys_, keys.data(), keys.size() * sizeof(Key),
                                                 cudaMemcpyHostToDevice, stream()),
                                 "copying keys"));
  HPS_RETURN_IF_ERROR(
      CudaStatus(LaunchMakeRows({new_keys_, count}, options_.row_bytes, rows_, stream()), "rows"));
  const WriteView write = {.table = tables_[table],
                           .keys = new_keys_,
                           .rows = rows_,
                           .row_stride_bytes = options_.row_bytes,
                           .key_count = count};
  HPS_RETURN_IF_ERROR(CudaStatus(LaunchInsertIfAbsent(write, 0, stream()), "inserting"));
  return CudaStatus(cudaStreamSynchronize(stream()), "inserting");
}

absl::StatusOr<TableCounters> DeviceTables::Counters(uint32_t table) {
  TableCounters counters;
  HPS_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream()), "counters"));
  HPS_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpy(&counters, tables_[table].counters, sizeof(counters), cudaMemcpyDeviceToHost),
      "counters"));
  return counters;
}

absl::StatusOr<double> DeviceTables::KeptShare() {
  uint64_t held = 0;
  for (uint32_t t = 0; t < options_.table_count; ++t) {
    HPS_ASSIGN_OR_RETURN(const TableCounters counters, Counters(t));
    held += counters.insertions - counters.evictions;
  }
  return static_cast<double>(held) / static_cast<double>(held_.size());
}

absl::Status DeviceTables::DrawKeys(const KeyDraw& draw) {
  std::mt19937_64 random(7);
  const uint64_t per_table = held_.size() / options_.table_count;
  std::vector<Key> keys(uint64_t{kSets} * options_.table_count * part_keys_max_);
  const double uniform_step = 1.0 / 18446744073709551616.0;
  for (size_t part = 0; part < kSets * options_.table_count; ++part) {
    const Key* const held = held_.data() + part % options_.table_count * per_table;
    Key* const drawn = keys.data() + part * part_keys_max_;
    // Without duplicates: one key from each of as many stretches, in random order.
    const uint64_t stretch = std::max<uint64_t>(1, per_table / part_keys_max_);
    for (uint32_t i = 0; i < part_keys_max_; ++i) {
      const uint64_t uniform = random();
      drawn[i] =
          draw.alpha == 0
              ? held[std::min(per_table - 1, i * stretch + uniform % stretch)]
              : held[RankOf(static_cast<double>(uniform) * uniform_step, draw.alpha, per_table)];
    }
    std::shuffle(drawn, drawn + part_keys_max_, random);
  }
  HPS_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(set_keys_, keys.data(), keys.size() * sizeof(Key),
                                                 cudaMemcpyHostToDevice, stream()),
                                 "copying keys"));
  if (options_.table_count == 1) {
    HPS_RETURN_IF_ERROR(
        CudaStatus(LaunchFindSlots(tables_[0], {set_keys_, static_cast<uint32_t>(keys.size())},
                                   set_slots_, count_, stream()),
                   "finding slots"));
  }
  return CudaStatus(cudaStreamSynchronize(stream()), "drawing keys");
}

uint32_t DeviceTables::KeysOf(uint32_t table, uint32_t count) const {
  return count / options_.table_count + (table < count % options_.table_count ? 1 : 0);
}

Key* DeviceTables::SetKeys(size_t i, uint32_t table) const {
  return set_keys_ + (i % kSets * options_.table_count + table) * part_keys_max_;
}

std::span<const QueryView> DeviceTables::QueriesOf(size_t i, uint32_t count) {
  SetQueries& made = queries_[i % kSets];
  if (made.key_count == count) return made.views;
  made.key_count = count;
  made.views.resize(options_.table_count);
  uint32_t first = 0;
  for (uint32_t t = 0; t < options_.table_count; ++t) {
    made.views[t] = {.table = tables_[t],
                     .keys = SetKeys(i, t),
                     .rows = output_ + uint64_t{first} * options_.row_bytes,
                     .row_stride_bytes = options_.row_bytes,
                     .key_count = KeysOf(t, count),
                     .first_key = first};
    first += made.views[t].key_count;
  }
  return made.views;
}

cudaError_t DeviceTables::Query(size_t i, uint32_t count) {
  return LaunchQuery(QueriesOf(i, count), misses_, ++generation_, stream());
}

cudaError_t DeviceTables::Gather(int shape, size_t i, uint32_t count) {
  return LaunchGather(shape,
                      {.table = tables_[0].rows,
                       .slots = set_slots_ + i % kSets * part_keys_max_,
                       .array = output_,
                       .row_bytes = options_.row_bytes,
                       .count = count},
                      stream());
}

cudaError_t DeviceTables::Scatter(int shape, size_t i, uint32_t count) {
  return LaunchScatterRows(shape,
                           {.table = tables_[0].rows,
                            .slots = set_slots_ + i % kSets * part_keys_max_,
                            .array = rows_,
                            .row_bytes = options_.row_bytes,
                            .count = count},
                           stream());
}

cudaError_t DeviceTables::Update(size_t i, uint32_t count, uint32_t blocks_max,
                                 cudaStream_t stream) {
  return LaunchUpdate({.table = tables_[0],
                       .keys = SetKeys(i, 0),
                       .rows = rows_,
                       .row_stride_bytes = options_.row_bytes,
                       .key_count = count,
                       .blocks_max = blocks_max},
                      stream);
}

absl::Status DeviceTables::MakeNewKeys(uint32_t count) {
  std::vector<Key> keys(count);
  for (Key& key : keys) key = KeyOfNumber(next_key_++);
  HPS_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(new_keys_, keys.data(), count * sizeof(Key),
                                                 cudaMemcpyHostToDevice, stream()),
                                 "copying keys"));
  HPS_RETURN_IF_ERROR(
      CudaStatus(LaunchMakeRows({new_keys_, count}, options_.row_bytes, rows_, stream()), "rows"));
  insertions_ += count;
  queries_ = {};  // they say it too
  tables_[0].stamp_epoch = StampEpoch(insertions_, tables_[0].slab_count);
  return CudaStatus(cudaStreamSynchronize(stream()), "new keys");
}

cudaError_t DeviceTables::InsertNewKeys(uint32_t count) {
  return LaunchInsertIfAbsent({.table = tables_[0],
                               .keys = new_keys_,
                               .rows = rows_,
                               .row_stride_bytes = options_.row_bytes,
                               .key_count = count},
                              0, stream());
}

absl::StatusOr<uint32_t> DeviceTables::TakeCount() {
  uint32_t count = 0;
  HPS_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(&count, count_, sizeof(count), cudaMemcpyDeviceToHost, stream()), "a count"));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(count_, 0, sizeof(count), stream()), "a count"));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream()), "a count"));
  return count;
}

absl::Status DeviceTables::CheckRows() {
  const uint32_t key_count = options_.keys_max;
  const uint64_t output_bytes = uint64_t{key_count} * options_.row_bytes;
  HPS_RETURN_IF_ERROR(TakeCount().status());
  for (size_t set = 0; set < kSets; ++set) {
    const Key* const keys = SetKeys(set, 0);
    HPS_RETURN_IF_ERROR(
        CudaStatus(LaunchFindSlots(tables_[0], {keys, key_count}, set_slots_ + set * part_keys_max_,
                                   count_, stream()),
                   "finding slots"));
    HPS_ASSIGN_OR_RETURN(const uint32_t lost_count, TakeCount());
    HPS_RETURN_IF_ERROR(
        CudaStatus(cudaMemsetAsync(output_, 0, output_bytes, stream()), "poisoning"));
    HPS_RETURN_IF_ERROR(CudaStatus(Query(set, key_count), "a query"));
    HPS_RETURN_IF_ERROR(CudaStatus(
        LaunchCompareRows({keys, key_count}, options_.row_bytes, output_, count_, stream()),
        "comparing"));
    HPS_ASSIGN_OR_RETURN(const uint32_t different_count, TakeCount());
    if (lost_count != different_count) {
      return absl::InternalError(absl::StrCat("bench l1: ", different_count, " rows of ", key_count,
                                              " are not what was put in, and ", lost_count,
                                              " keys were lost"));
    }
  }
  return absl::OkStatus();
}

}  // namespace hps::bench
