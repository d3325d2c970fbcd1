#include "l1_gpu/gpu_call.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "hps/table_spec.h"
#include "l1_gpu/cuda_status.h"
#include "l1_gpu/kernels/statuses.h"
#include "tier/device_query.h"

namespace hps {
namespace {

// The answer to a key: none yet, its status, or that the device counts its positions.
constexpr uint8_t kNoAnswer = 0;
constexpr uint8_t kCountedOnDevice = 0xff;
constexpr uint8_t kDifferentAnswers = 0xfe;  // of a query
constexpr uint8_t AnswerOf(KeyStatus status) { return static_cast<uint8_t>(status) + 1; }
constexpr KeyStatus StatusOf(uint8_t answer) { return static_cast<KeyStatus>(answer - 1); }
static_assert(kKeyStatusCount < kDifferentAnswers);

bool AreUnanswered(std::span<const uint8_t> answers) {
  // The first is kNoAnswer and each one equals its predecessor.
  return answers.empty() ||
         (answers[0] == kNoAnswer &&
          std::memcmp(answers.data(), answers.data() + 1, answers.size() - 1) == 0);
}

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
absl::Status ValidatePlace(const void* memory, int device) {
  cudaPointerAttributes attributes = {};
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaPointerGetAttributes(&attributes, memory), "checking the caller's memory"));
  if (attributes.type != cudaMemoryTypeDevice || attributes.device == device)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("gpu cache: a lookup on device ", device,
                                                 " with memory of device ", attributes.device));
}

// Checks only the first and the last query, because the check costs more than probing a table. A
// caller that uses the wrong device uses it for all queries.
absl::Status ValidatePlaces(std::span<const DeviceCacheQuery> queries, int device) {
  for (const DeviceCacheQuery* query : {&queries.front(), &queries.back()}) {
    if (query->key_count == 0) continue;
    HPS_RETURN_IF_ERROR(ValidatePlace(query->keys, device));
    HPS_RETURN_IF_ERROR(ValidatePlace(query->rows, device));
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
      sender_(*buffers_),
      output_(*buffers_),
      keys_(new Key[buffers_->sizes.keys_max]),
      answers_(new uint8_t[buffers_->sizes.keys_max]),
      has_duplicates_(new uint64_t[buffers_->sizes.keys_max / 64 + 1]{}),
      index_of_(new uint32_t[buffers_->sizes.keys_max]) {
  queries_.reserve(kTablesPerCallMax);
  views_.reserve(kTablesPerCallMax);
  counts_.reserve(kTablesPerCallMax);
  duplicate_counts_.reserve(kTablesPerCallMax);
  common_answers_.reserve(kTablesPerCallMax);
  missed_.reserve(kTablesPerCallMax);
  positions_.reserve(kTablesPerCallMax);
  direct_.reserve(kTablesPerCallMax);
  duplicates_counted_.reserve(kTablesPerCallMax);
  rows_to_convert_.reserve(kTablesPerCallMax);
}

GpuCall::~GpuCall() = default;

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
  HPS_RETURN_IF_ERROR(CheckDeviceQueries(queries, keys_leased_, "gpu cache"));
  const DeviceScope scope(device_);
  if (stream.handle != nullptr)
    HPS_RETURN_IF_ERROR(ValidateStream(static_cast<cudaStream_t>(stream.handle), device_));
  if (has_other_devices_ && !queries.empty() && queries.front().space == MemorySpace::kDevice)
    HPS_RETURN_IF_ERROR(ValidatePlaces(queries, device_));
  queries_.assign(queries.begin(), queries.end());
  on_host_ = !queries.empty() && queries.front().space == MemorySpace::kHost;
  stream_ =
      stream.handle == nullptr ? buffers_->stream.get() : static_cast<cudaStream_t>(stream.handle);
  sender_.Begin(stream_);
  fetched_ahead_ = converted_ = false;
  if (on_host_) HPS_RETURN_IF_ERROR(output_.Begin(queries_, stream_));
  MakeViews();
  probed_ = key_count_ == 0;
  probe_status_ = absl::OkStatus();
  if (key_count_ > 0) {
    in_flight_ = true;
    absl::Status status = Launch();
    // Also after an error: some of the work may be in flight.
    const absl::Status recorded =
        CudaStatus(cudaEventRecord(buffers_->last.get(), stream_), "a lookup");
    if (status.ok()) status = recorded;
    HPS_RETURN_IF_ERROR(status);
  }
  state_ = State::kBegun;
  return absl::OkStatus();
}

void GpuCall::MakeViews() {
  views_.clear();
  missed_.clear();
  key_count_ = 0;
  for (size_t q = 0; q < queries_.size(); ++q) {
    const DeviceCacheQuery& query = queries_[q];
    const auto* table = dynamic_cast<const GpuCacheTable*>(query.table);
    HPS_CHECK((table == nullptr) ==
              (query.table == nullptr));  // otherwise a table of another cache
    QueryView view;
    if (table != nullptr) {
      view.table = table->view();
    } else {
      view.table.row_bytes = static_cast<uint32_t>(query.row_bytes);
      view.table.row_stride_bytes = RowStrideBytes(view.table.row_bytes);
    }
    view.key_count = static_cast<uint32_t>(query.key_count);
    view.first_key = static_cast<uint32_t>(key_count_);
    if (on_host_) {
      view.keys = buffers_->keys.device + key_count_;
      view.rows = buffers_->output.device.data() + output_.begin_bytes(q);
      view.row_stride_bytes = query.row_bytes;
      if (query.status != nullptr) view.status = buffers_->statuses.device + key_count_;
      if (query.key_count > 0) {
        std::memcpy(buffers_->keys.pinned + key_count_, query.keys, query.key_count * sizeof(Key));
      }
    } else {
      view.keys = query.keys;
      view.rows = query.rows;
      view.row_stride_bytes = query.row_stride_bytes;
      view.status = query.status;
    }
    view.direct = query.direct;
    views_.push_back(view);
    missed_.emplace_back(keys_.get() + key_count_, 0);
    key_count_ += query.key_count;
  }
}

absl::Status GpuCall::Launch() {
  // Old records must not look new: after a failed launch, and when the generation wraps after 2^32
  // lookups.
  if (misses_are_dirty_ || ++generation_ == 0) {
    misses_are_dirty_ = true;
    HPS_RETURN_IF_ERROR(buffers_->ZeroMisses());
    generation_ = 1;
  }
  misses_are_dirty_ = true;
  if (on_host_) {
    HPS_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(buffers_->keys.device, buffers_->keys.pinned,
                                   key_count_ * sizeof(Key), cudaMemcpyHostToDevice, stream_),
                   "copy of keys"));
  }
  HPS_RETURN_IF_ERROR(CudaStatus(LaunchQuery(views_, buffers_->misses, generation_, stream_),
                                 "the launch of a query"));
  misses_are_dirty_ = false;
  if (on_host_) {
    HPS_ASSIGN_OR_RETURN(fetched_ahead_, output_.FetchAhead());
  }
  if (fetched_ahead_) return absl::OkStatus();
  return CudaStatus(cudaEventRecord(buffers_->probed.get(), stream_), "a probe");
}

cudaEvent_t GpuCall::probed() const {
  return fetched_ahead_ ? output_.fetched_ahead() : buffers_->probed.get();
}

bool GpuCall::IsProbed() {
  if (probed_) return true;
  const absl::StatusOr<bool> done = IsDone(probed());
  probed_ = !done.ok() || *done;
  probe_status_ = done.status();
  return probed_;
}

DeviceMissesSoFar GpuCall::Peek(size_t query) {
  HPS_CHECK(state_ == State::kBegun);
  const size_t known = missed_[query].size();
  const size_t count_max = std::clamp(known / 4, kMissesPerPeekMin, kMissesPerPeekMax);
  bool read = ReadRecords(query, count_max);
  // Queries the driver only if there is nothing else to do, because that takes longer. Records that
  // the device wrote before the driver's answer are read after it.
  const bool dry = missed_[query].size() == known;
  const bool all = (probed_ || dry) && IsProbed();
  if (all && dry) read = ReadRecords(query, count_max);
  return {missed_[query], all && read};
}

absl::StatusOr<DeviceMisses> GpuCall::Misses(Deadline deadline) {
  HPS_CHECK(state_ != State::kLeased);
  if (state_ == State::kBegun) {
    if (!probed_) {
      HPS_RETURN_IF_ERROR(WaitFor(probed(), deadline, "the probe of a lookup"));
      probed_ = true;
    }
    HPS_RETURN_IF_ERROR(probe_status_);
    in_flight_ = buffers_->staging.has_copies();
    ReadMisses();
    state_ = State::kMissed;
  }
  sender_.set_deadline(deadline);
  return DeviceMisses{missed_, positions_, direct_};
}

bool GpuCall::ReadRecords(size_t query, size_t count_max) {
  const QueryView& view = views_[query];
  const MissRecord* const records = buffers_->misses.records + view.first_key;
  Key* const keys = keys_.get() + view.first_key;
  size_t unique = missed_[query].size();
  const size_t end = unique + std::min(count_max, view.key_count - unique);
  bool more = true;
  for (; unique < end; ++unique) {
    if (!ReadMissRecord(records[unique], generation_, &keys[unique])) {
      more = false;
      break;
    }
    answers_[view.first_key + unique] = kNoAnswer;
  }
  missed_[query] = {keys, unique};
  return !more || unique == view.key_count;
}

void GpuCall::ReadMisses() {
  counts_.clear();
  duplicate_counts_.clear();
  common_answers_.assign(queries_.size(), kNoAnswer);
  positions_.clear();
  direct_.clear();
  unanswered_count_ = 0;
  duplicates_counted_.assign(queries_.size(), 0);
  for (size_t q = 0; q < queries_.size(); ++q) {
    ReadRecords(q, SIZE_MAX);
    const size_t count = missed_[q].size();
    uint32_t duplicate_count = 0;
    for (const DuplicateRecord& record : DuplicatesOf(q)) duplicate_count += record.count;
    duplicate_counts_.push_back(duplicate_count);
    positions_.push_back(count + duplicate_count);
    counts_.emplace_back();
    counts_.back()[KeyStatus::kHitL1] = views_[q].key_count - count - duplicate_count;
    direct_.push_back(IsAnsweredDirectly(q) ? 1 : 0);
    if (direct_[q] != 0) {
      counts_.back()[KeyStatus::kHitL2] = positions_[q];
    } else {
      unanswered_count_ += count;
    }
  }
}

bool GpuCall::IsAnsweredDirectly(size_t query) const {
  const QueryView& view = views_[query];
  if (view.direct == nullptr) return false;
  const std::span records(buffers_->misses.records + view.first_key, missed_[query].size());
  const auto is_answered = [](const MissRecord& record) {
    return (record.position & kAnsweredOnDevice) != 0;
  };
  // Positions that ask for the same key are read separately, while level 2 changes.
  const auto all_answered = [](const DuplicateRecord& record) { return record.open_count == 0; };
  return std::ranges::all_of(records, is_answered) &&
         std::ranges::all_of(DuplicatesOf(query), all_answered);
}

void GpuCall::ForgetDirectAnswers(size_t query) {
  direct_[query] = 0;
  counts_[query][KeyStatus::kHitL2] = 0;
  unanswered_count_ += missed_[query].size();
  duplicates_counted_[query] = 0;
}

std::span<const DuplicateRecord> GpuCall::DuplicatesOf(size_t query) const {
  const QueryView& view = views_[query];
  const DuplicateRecord* const first = buffers_->misses.duplicate_records + view.first_key;
  const DuplicateRecord* const end = first + (missed_[query].empty() ? 0 : view.key_count);
  return {first, std::find_if(first, end, [&](const DuplicateRecord& record) {
            return record.generation != generation_;
          })};
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

absl::Status GpuCall::Validate(const DeviceRowPiece& piece) const {
  if (piece.query >= queries_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("gpu cache: a piece for query ", piece.query,
                                                   " of a call with ", queries_.size(),
                                                   " queries"));
  }
  const size_t miss_count = missed_[piece.query].size();
  if (piece.first > miss_count || piece.statuses.size() > miss_count - piece.first) {
    return absl::InvalidArgumentError(absl::StrCat("gpu cache: a piece of ", piece.statuses.size(),
                                                   " answers from index ", piece.first,
                                                   ", the number of misses is ", miss_count));
  }
  if (piece.rows.row_count > 0 && piece.rows.row_bytes != queries_[piece.query].row_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("gpu cache: a piece with rows of ",
                                                   piece.rows.row_bytes, " bytes, expected ",
                                                   queries_[piece.query].row_bytes));
  }
  const uint8_t* const answers = answers_.get() + views_[piece.query].first_key + piece.first;
  if (TakesRow(StatusOfAll(piece.statuses)) && piece.rows.row_count >= piece.statuses.size() &&
      AreUnanswered({answers, piece.statuses.size()})) {
    return absl::OkStatus();
  }
  for (size_t i = 0; i < piece.statuses.size(); ++i) {
    if (piece.statuses[i] == kUnanswered) continue;
    if (answers[i] != kNoAnswer) {
      return absl::InvalidArgumentError(absl::StrCat(
          "gpu cache: key ", missed_[piece.query][piece.first + i], " is answered twice"));
    }
    if (TakesRow(piece.statuses[i]) && i >= piece.rows.row_count) {
      return absl::InvalidArgumentError(absl::StrCat("gpu cache: a piece of ",
                                                     piece.statuses.size(), " answers with ",
                                                     piece.rows.row_count, " rows"));
    }
  }
  return absl::OkStatus();
}

void GpuCall::Answer(const DeviceRowPiece& piece) {
  uint8_t* const answers = answers_.get() + views_[piece.query].first_key + piece.first;
  LookupCounts& counts = counts_[piece.query];
  const size_t count = piece.statuses.size();
  if (const KeyStatus status = StatusOfAll(piece.statuses); status != kUnanswered) {
    const uint8_t answer = piece.reprobe ? kCountedOnDevice : AnswerOf(status);
    NoteAnswer(piece.query, answer);
    std::fill_n(answers, count, answer);
    unanswered_count_ -= count;
    if (!piece.reprobe) counts[status] += count;
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const KeyStatus status = piece.statuses[i];
    if (status == kUnanswered) continue;
    answers[i] = piece.reprobe ? kCountedOnDevice : AnswerOf(status);
    NoteAnswer(piece.query, answers[i]);
    --unanswered_count_;
    if (!piece.reprobe) ++counts[status];
  }
}

void GpuCall::NoteAnswer(size_t query, uint8_t answer) {
  uint8_t& common = common_answers_[query];
  if (common == kNoAnswer) common = answer;
  if (common != answer) common = kDifferentAnswers;
}

void GpuCall::CountAllDuplicates() {
  for (size_t q = 0; q < queries_.size(); ++q)
    if (std::exchange(duplicates_counted_[q], 1) == 0 && direct_[q] == 0) CountDuplicates(q);
}

// In most calls all misses have the same answer; then it does not matter which key a position waits
// for. Otherwise every miss must be looked at, which takes a fifth of a lookup's time if many keys
// miss.
void GpuCall::CountDuplicates(size_t query) {
  const uint8_t common = common_answers_[query];
  if (duplicate_counts_[query] == 0 || common == kCountedOnDevice) return;
  LookupCounts& counts = counts_[query];
  if (common != kDifferentAnswers) {
    counts[StatusOf(common)] += duplicate_counts_[query];
    return;
  }
  // Recording the unique index of every position would cost a cache miss each, so only positions
  // with duplicates are recorded.
  const std::span<const DuplicateRecord> duplicates = DuplicatesOf(query);
  const auto bit_of = [](uint32_t position) { return uint64_t{1} << position % 64; };
  for (const DuplicateRecord& record : duplicates)
    has_duplicates_[record.position / 64] |= bit_of(record.position);
  const size_t first = views_[query].first_key;
  const MissRecord* const records = buffers_->misses.records + first;
  for (size_t i = 0; i < missed_[query].size(); ++i) {
    const uint32_t position = records[i].position & ~kAnsweredOnDevice;
    if ((has_duplicates_[position / 64] & bit_of(position)) != 0)
      index_of_[position] = static_cast<uint32_t>(i);
  }
  for (const DuplicateRecord& record : duplicates) {
    has_duplicates_[record.position / 64] = 0;
    const uint8_t answer = answers_[first + index_of_[record.position]];
    if (answer != kCountedOnDevice) counts[StatusOf(answer)] += record.count;
  }
}

absl::Status GpuCall::FinishPieces(std::span<const DeviceRowPiece> pieces) {
  for (const DeviceRowPiece& piece : pieces) {
    HPS_RETURN_IF_ERROR(Validate(piece));
    if (direct_[piece.query] != 0) ForgetDirectAnswers(piece.query);
    Answer(piece);
    HPS_RETURN_IF_ERROR(sender_.Add({.view = &views_[piece.query],
                                     .query = &queries_[piece.query],
                                     .duplicate_count = duplicate_counts_[piece.query],
                                     .piece = &piece}));
  }
  return absl::OkStatus();
}

absl::Status GpuCall::Finish(std::span<const DeviceRowPiece> pieces) {
  HPS_CHECK(state_ == State::kMissed);
  const DeviceScope scope(device_);
  absl::Status status = FinishPieces(pieces);
  // The pieces before a refused piece are sent all the same.
  const absl::Status sent = sender_.Send();
  if (status.ok()) status = sent;
  in_flight_ |= sender_.sent();
  // Counts while the device works on the pieces that were sent.
  if (unanswered_count_ == 0) CountAllDuplicates();
  return status;
}

absl::Status GpuCall::CheckAllAnswered() const {
  if (unanswered_count_ == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("gpu cache: ", unanswered_count_, " misses were not answered"));
}

absl::Status GpuCall::ConvertToFloat32() {
  HPS_CHECK(state_ == State::kMissed);
  HPS_RETURN_IF_ERROR(CheckAllAnswered());
  rows_to_convert_.clear();
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
  in_flight_ = converted_ = true;
  const absl::Status launched =
      CudaStatus(LaunchConvertToFloat32(rows_to_convert_, stream_), "converting rows to float32");
  // Also after an error: some of the work may be in flight.
  const absl::Status recorded =
      CudaStatus(cudaEventRecord(buffers_->last.get(), stream_), "converting rows to float32");
  return launched.ok() ? recorded : launched;
}

absl::Status GpuCall::Wait(Deadline deadline) {
  HPS_CHECK(state_ != State::kLeased);
  if (state_ == State::kDone) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(Misses(deadline).status());
  HPS_RETURN_IF_ERROR(CheckAllAnswered());
  const DeviceScope scope(device_);
  if (on_host_ && key_count_ > 0) {
    in_flight_ = true;
    absl::Status status = output_.Copy(fetched_ahead_ && !sender_.sent(), deadline);
    const absl::Status recorded =
        CudaStatus(cudaEventRecord(buffers_->last.get(), stream_), "a lookup");
    if (status.ok()) status = recorded;
    HPS_RETURN_IF_ERROR(status);
    in_flight_ = buffers_->staging.has_copies();
  } else if (sender_.sent() || converted_) {
    HPS_RETURN_IF_ERROR(WaitFor(buffers_->last.get(), deadline, "the answers of a lookup"));
    in_flight_ = buffers_->staging.has_copies();
  }
  if (sender_.probed_again()) {
    for (size_t q = 0; q < queries_.size(); ++q) {
      for (size_t status = 0; status < kKeyStatusCount; ++status)
        counts_[q].by_status[status] += buffers_->counts.pinned[q * kKeyStatusCount + status];
    }
  }
  state_ = State::kDone;
  return absl::OkStatus();
}

}  // namespace hps
