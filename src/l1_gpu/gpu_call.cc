#include "l1_gpu/gpu_call.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "tier/device_query.h"

namespace hps {
namespace {

// Peek takes at most this many misses at first, and later a quarter of the known ones. Misses
// arrive as fast as they are read, and fetching should start before the last ones have arrived.
// Peek must also not keep the caller from other work for more than a few microseconds.
constexpr size_t kMissesPerPeekMin = 128;
constexpr size_t kMissesPerPeekMax = 512;

// A captured graph would replay the lookup when its buffers belong to another one.
absl::Status ValidateStream(cudaStream_t stream, int device) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaStreamIsCapturing(stream, &capture), "checking the caller's stream"));
  if (capture != cudaStreamCaptureStatusNone)
    return absl::InvalidArgumentError("gpu cache: a lookup on a stream that is being captured");
  int own_device = device;
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaStreamGetDevice(stream, &own_device), "checking the caller's stream"));
  if (own_device == device) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("gpu cache: a lookup on device ", device,
                                                 " with a stream of device ", own_device));
}

// A kernel that accesses another device's memory breaks its own device for the whole process.
// Checks only the first and the last query, because the check costs more than probing a table. A
// caller that uses the wrong device uses it for all queries.
absl::Status ValidatePlaces(std::span<const DeviceCacheQuery> queries, int device) {
  for (const DeviceCacheQuery* query : {&queries.front(), &queries.back()}) {
    if (query->key_count == 0) continue;
    for (const void* memory : std::initializer_list<const void*>{query->keys, query->rows}) {
      cudaPointerAttributes place = {};
      HPS_RETURN_IF_ERROR(
          CudaStatus(cudaPointerGetAttributes(&place, memory), "checking the caller's memory"));
      if (place.type != cudaMemoryTypeDevice || place.device == device) continue;
      return absl::InvalidArgumentError(absl::StrCat("gpu cache: a lookup on device ", device,
                                                     " with memory of device ", place.device));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuCall>> GpuCall::Create(int device, const CallSizes& sizes,
                                                         std::function<void(GpuCall*)> give_back) {
  HPS_ASSIGN_OR_RETURN(auto buffers, CallBuffers::Create(sizes));
  return std::unique_ptr<GpuCall>(new GpuCall(device, std::move(buffers), std::move(give_back)));
}

GpuCall::GpuCall(int device, std::unique_ptr<CallBuffers> buffers,
                 std::function<void(GpuCall*)> give_back)
    : device_(device),
      has_other_devices_(GpuDeviceCount() > 1),
      buffers_(std::move(buffers)),
      give_back_(std::move(give_back)),
      records_(buffers_->misses, buffers_->sizes.keys_max),
      answers_(records_, buffers_->sizes.keys_max),
      sender_(*buffers_),
      output_(*buffers_) {
  queries_.reserve(kTablesPerCallMax);
  rows_to_convert_.reserve(kTablesPerCallMax);
}

void GpuCall::Lease(size_t keys_leased, CallUse use) {
  HPS_CHECK(keys_leased <= buffers_->sizes.keys_max);
  keys_leased_ = keys_leased;
  use_ = use;
  buffers_->staging.Reset();
  state_ = State::kLeased;
}

bool GpuCall::IsIdle() {
  if (!in_flight_) return true;
  in_flight_ = false;
  for (cudaEvent_t event : {buffers_->last.get(), buffers_->staging.copied()}) {
    const absl::StatusOr<bool> done = IsDone(event);
    in_flight_ |= done.ok() && !*done;
  }
  return !in_flight_;
}

absl::Status GpuCall::WaitForDevice(Deadline deadline) const {
  HPS_RETURN_IF_ERROR(WaitFor(buffers_->last.get(), deadline, "a lookup"));
  return WaitFor(buffers_->staging.copied(), deadline, "a lookup's rows");
}

void GpuCall::Return() {
  // On a failed device no work is in flight.
  buffers_->staging.RecordCopies().IgnoreError();
  give_back_(this);
}

absl::Status GpuCall::Begin(std::span<const DeviceCacheQuery> queries, Stream stream) {
  HPS_CHECK(state_ == State::kLeased);
  CheckDeviceQueries(queries, keys_leased_);
  const DeviceScope scope(device_);
  if (stream.handle != nullptr)
    HPS_RETURN_IF_ERROR(ValidateStream(static_cast<cudaStream_t>(stream.handle), device_));
  if (has_other_devices_ && !queries.empty() && queries.front().space == MemorySpace::kDevice)
    HPS_RETURN_IF_ERROR(ValidatePlaces(queries, device_));
  queries_.assign(queries.begin(), queries.end());
  stream_ =
      stream.handle == nullptr ? buffers_->stream.get() : static_cast<cudaStream_t>(stream.handle);
  sender_.Begin(stream_);
  rows_to_convert_.clear();
  HPS_RETURN_IF_ERROR(output_.Begin(queries_, stream_));
  MakeViews();
  if (records_.key_count() == 0) {
    state_ = State::kProbed;
    return absl::OkStatus();
  }
  in_flight_ = true;
  HPS_RETURN_IF_ERROR(RecordAfter(Launch(), buffers_->last.get(), stream_, "a lookup"));
  state_ = State::kProbing;
  return absl::OkStatus();
}

void GpuCall::MakeViews() {
  records_.Clear();
  for (size_t q = 0; q < queries_.size(); ++q) {
    const DeviceCacheQuery& query = queries_[q];
    const auto* table = dynamic_cast<const GpuCacheTable*>(query.table);
    HPS_CHECK((table == nullptr) ==
              (query.table == nullptr));  // otherwise a table of another cache
    QueryView view = {.keys = query.keys,
                      .rows = query.rows,
                      .row_stride_bytes = query.row_stride_bytes,
                      .status = query.status,
                      .key_count = static_cast<uint32_t>(query.key_count),
                      .direct = query.direct};
    if (table != nullptr) {
      view.table = table->view();
    } else {
      view.table.row_bytes = static_cast<uint32_t>(query.row_bytes);
      view.table.row_stride_bytes = RowStrideBytes(view.table.row_bytes);
    }
    if (query.space == MemorySpace::kHost) {
      const size_t first = records_.key_count();
      view.keys = buffers_->keys.device + first;
      view.rows = buffers_->output.device.data() + output_.begin_bytes(q);
      view.row_stride_bytes = query.row_bytes;
      if (query.status != nullptr) view.status = buffers_->statuses.device + first;
      if (query.key_count > 0)
        std::memcpy(buffers_->keys.pinned + first, query.keys, query.key_count * sizeof(Key));
    }
    records_.AddQuery(view);
  }
}

absl::Status GpuCall::Launch() {
  // Records must not look new after a failed launch, or when the generation wraps after 2^32
  // lookups.
  uint32_t generation = records_.generation() + 1;
  if (generation == 0) {
    HPS_RETURN_IF_ERROR(buffers_->ZeroMisses());
    generation = 1;
  }
  // If the launch fails, the next one zeroes the memory.
  records_.set_generation(CallRecords::kGenerationMax);
  if (output_.key_count() > 0) {
    HPS_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(buffers_->keys.device, buffers_->keys.pinned,
                        output_.key_count() * sizeof(Key), cudaMemcpyHostToDevice, stream_),
        "copy of keys"));
  }
  HPS_RETURN_IF_ERROR(
      CudaStatus(LaunchQuery(records_.queries(), buffers_->misses, generation, stream_),
                 "the launch of a query"));
  records_.set_generation(generation);
  HPS_RETURN_IF_ERROR(output_.FetchAhead());
  if (output_.fetched_ahead() != nullptr) return absl::OkStatus();
  return CudaStatus(cudaEventRecord(buffers_->probed.get(), stream_), "a probe");
}

cudaEvent_t GpuCall::probed() const {
  const cudaEvent_t fetched = output_.fetched_ahead();
  return fetched != nullptr ? fetched : buffers_->probed.get();
}

DeviceMissesSoFar GpuCall::Peek(size_t query) {
  HPS_CHECK(state_ == State::kProbing || state_ == State::kProbed);
  const std::span<const Key>& keys = records_.keys()[query];
  const size_t known = keys.size();
  const size_t count_max = std::clamp(known / 4, kMissesPerPeekMin, kMissesPerPeekMax);
  bool read = records_.Read(query, count_max);
  // Queries the driver only if there is nothing else to do, because that takes longer. Records that
  // the device wrote before the driver's answer are read after it.
  const bool dry = keys.size() == known;
  bool ended = state_ == State::kProbed;
  if (dry && !ended) {
    const absl::StatusOr<bool> done = IsDone(probed());
    ended = !done.ok() || *done;
    if (done.ok() && ended) state_ = State::kProbed;
  }
  if (dry && ended) read = records_.Read(query, count_max);
  return {keys, ended && read};
}

absl::StatusOr<DeviceMisses> GpuCall::Misses(Deadline deadline) {
  HPS_CHECK(state_ != State::kLeased);
  if (state_ == State::kProbing) {
    HPS_RETURN_IF_ERROR(WaitFor(probed(), deadline, "the probe of a lookup"));
    state_ = State::kProbed;
  }
  if (state_ == State::kProbed) {
    in_flight_ = buffers_->staging.has_copies();
    for (size_t q = 0; q < queries_.size(); ++q) records_.Read(q, SIZE_MAX);
    answers_.Begin();
    state_ = State::kMissed;
  }
  sender_.set_deadline(deadline);
  return answers_.misses();
}

HostRows GpuCall::Staging(size_t query, size_t row_count) {
  const size_t row_bytes = queries_[query].row_bytes;
  std::byte* const room = buffers_->staging.Take(row_count * row_bytes);
  return {room, room == nullptr ? 0 : row_count, row_bytes, row_bytes};
}

absl::Status GpuCall::CopyAhead(const HostRows& rows) {
  HPS_CHECK(state_ != State::kLeased);
  if (rows.row_count == 0) return absl::OkStatus();
  const DeviceScope scope(device_);
  in_flight_ = true;
  return buffers_->staging.CopyAhead(rows);
}

absl::Status GpuCall::Finish(std::span<const DeviceRowPiece> pieces) {
  HPS_CHECK(state_ == State::kMissed);
  const DeviceScope scope(device_);
  absl::Status status;
  for (const DeviceRowPiece& piece : pieces) {
    answers_.Add(piece);
    status = sender_.Add({.view = &records_.queries()[piece.query],
                          .query = &queries_[piece.query],
                          .duplicate_count = answers_.duplicate_count(piece.query),
                          .piece = &piece});
    if (!status.ok()) break;
  }
  // The pieces before one that could not be copied are sent all the same.
  const absl::Status sent = sender_.Send();
  if (status.ok()) status = sent;
  in_flight_ |= sender_.sent();
  // Counts while the device works on the pieces that were sent.
  answers_.CountDuplicates();
  return status;
}

absl::Status GpuCall::ConvertToFloat32() {
  HPS_CHECK(state_ == State::kMissed);
  HPS_RETURN_IF_ERROR(answers_.CheckComplete());
  for (const DeviceCacheQuery& query : queries_) {
    if (query.convert_from == Dtype::kFloat32 || query.key_count == 0) continue;
    rows_to_convert_.push_back({.rows = query.rows,
                                .row_stride_bytes = query.row_stride_bytes,
                                .row_count = static_cast<uint32_t>(query.key_count),
                                .element_count = static_cast<uint32_t>(query.row_bytes / 2),
                                .dtype = query.convert_from});
  }
  if (rows_to_convert_.empty()) return absl::OkStatus();
  const DeviceScope scope(device_);
  in_flight_ = true;
  constexpr char kWhat[] = "converting rows to float32";
  return RecordAfter(CudaStatus(LaunchConvertToFloat32(rows_to_convert_, stream_), kWhat),
                     buffers_->last.get(), stream_, kWhat);
}

absl::Status GpuCall::Wait(Deadline deadline) {
  HPS_CHECK(state_ != State::kLeased);
  if (state_ == State::kDone) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(Misses(deadline).status());
  HPS_RETURN_IF_ERROR(answers_.CheckComplete());
  const DeviceScope scope(device_);
  if (output_.key_count() > 0) {
    in_flight_ = true;
    HPS_RETURN_IF_ERROR(RecordAfter(output_.Copy(!sender_.sent(), deadline), buffers_->last.get(),
                                    stream_, "a lookup"));
  } else if (sender_.sent() || !rows_to_convert_.empty()) {
    HPS_RETURN_IF_ERROR(WaitFor(buffers_->last.get(), deadline, "the answers of a lookup"));
  }
  in_flight_ = buffers_->staging.has_copies();
  if (sender_.probed_again()) answers_.AddDeviceCounts(buffers_->counts.pinned);
  state_ = State::kDone;
  return absl::OkStatus();
}

}  // namespace hps
