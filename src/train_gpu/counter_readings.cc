#include "train_gpu/counter_readings.h"

#include <cstring>
#include <utility>

#include "base/macros.h"
#include "gpu/cuda_status.h"

namespace hps {

absl::StatusOr<CounterReadings> CounterReadings::Create(size_t table_count, size_t group_count,
                                                        cudaStream_t stream) {
  CounterReadings readings;
  readings.table_count_ = table_count;
  const size_t bytes =
      table_count * sizeof(TrainTableCounters) + group_count * sizeof(TrainGroupCounters);
  HPS_ASSIGN_OR_RETURN(readings.counters_, MakeDeviceBuffer("counters", bytes));
  HPS_ASSIGN_OR_RETURN(readings.memory_, MakePinnedBuffer("counters", (kReadings + 1) * bytes));
  std::memset(readings.memory_.data(), 0, readings.memory_.bytes());
  for (size_t i = 0; i < kReadings; ++i) {
    HPS_ASSIGN_OR_RETURN(CudaEvent event, MakeEvent());
    readings.readings_.push_back({.event = std::move(event), .taken = {}});
  }
  readings.taken_.resize(table_count + 1);
  readings.known_taken_.resize(table_count + 1);
  HPS_RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(readings.counters_.data(), 0, bytes, stream),
                                 "clearing counters"));
  return readings;
}

void CounterReadings::AddTaken(const NewKeys& keys, cudaStream_t stream) {
  for (const NewKeys::OfTable& each : keys.tables) taken_[each.table] += each.count;
  taken_[table_count_] += keys.total;
  Poll();
  Reading& reading = readings_[next_];
  if (reading.is_under_way) return;  // the device is far behind: the bounds stay as they are
  if (cudaMemcpyAsync(memory_.data() + next_ * bytes(), counters_.data(), bytes(),
                      cudaMemcpyDeviceToHost, stream) != cudaSuccess ||
      cudaEventRecord(reading.event.get(), stream) != cudaSuccess) {
    (void)cudaGetLastError();  // the next operation that matters fails, too
    return;
  }
  reading.is_under_way = true;
  reading.taken = taken_;
  next_ = (next_ + 1) % kReadings;
}

void CounterReadings::Poll() {
  for (size_t i = 0; i < kReadings; ++i) {
    const size_t at = (next_ + i) % kReadings;  // from the oldest
    Reading& reading = readings_[at];
    if (!reading.is_under_way) continue;
    const absl::StatusOr<bool> is_done = IsDone(reading.event.get());
    if (!is_done.ok() || !*is_done) return;
    reading.is_under_way = false;
    std::memcpy(memory_.data() + kReadings * bytes(), memory_.data() + at * bytes(), bytes());
    known_taken_ = reading.taken;
  }
}

bool CounterReadings::Wait() {
  for (size_t i = 0; i < kReadings; ++i) {
    const Reading& reading = readings_[(next_ + i) % kReadings];
    if (!reading.is_under_way) continue;
    const bool is_done = cudaEventSynchronize(reading.event.get()) == cudaSuccess;
    if (is_done) Poll();
    return is_done;
  }
  return false;
}

absl::Status CounterReadings::Read(cudaStream_t stream) {
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(memory_.data() + kReadings * bytes(), counters_.data(), bytes(),
                                 cudaMemcpyDeviceToHost, stream),
                 "reading counters"));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "the device's work"));
  for (Reading& reading : readings_) reading.is_under_way = false;
  known_taken_ = taken_;
  return absl::OkStatus();
}

}  // namespace hps
