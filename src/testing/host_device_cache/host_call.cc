#include "testing/host_device_cache/host_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "hps/table_spec.h"
#include "testing/host_device_cache/direct_read.h"
#include "tier/device_query.h"
#include "types/row_convert.h"

namespace hps {
namespace {

// The device's content of rows that were not copied ahead.
constexpr std::byte kNotCopied{0xdb};

}  // namespace

HostCall::HostCall(size_t keys_max, std::span<std::byte> staging,
                   std::function<void(HostCall*)> give_back)
    : keys_max_(keys_max),
      staging_(staging),
      device_staging_(staging.size(), kNotCopied),
      give_back_(std::move(give_back)) {
  queries_.reserve(kTablesPerCallMax);
  counts_.reserve(kTablesPerCallMax);
  begin_.reserve(kTablesPerCallMax + 1);
  positions_.reserve(kTablesPerCallMax);
  direct_.reserve(kTablesPerCallMax);
  keys_.reserve(kTablesPerCallMax);
  misses_.reserve(keys_max);
  unique_keys_.reserve(keys_max);
  unique_misses_begin_.reserve(keys_max + 1);
  answered_.reserve(keys_max);
}

void HostCall::Lease(size_t keys_leased) {
  HPS_CHECK(keys_leased <= keys_max_);
  keys_leased_ = keys_leased;
  std::fill_n(device_staging_.begin(), staging_used_bytes_, kNotCopied);
  staging_used_bytes_ = 0;
  begun_ = false;
  queries_.clear();
  counts_.clear();
  misses_.clear();
  unique_keys_.clear();
  unique_misses_begin_.clear();
  answered_.clear();
  begin_.clear();
  keys_.clear();
  positions_.clear();
  direct_.clear();
  unanswered_count_ = 0;
}

absl::Status HostCall::Begin(std::span<const DeviceCacheQuery> queries, Stream) {
  HPS_CHECK(!begun_);
  CheckDeviceQueries(queries, keys_leased_);
  begun_ = true;
  begin_.push_back(0);
  for (const DeviceCacheQuery& query : queries) {
    const auto* table = dynamic_cast<const HostCacheTable*>(query.table);
    HPS_CHECK((table == nullptr) == (query.table == nullptr));  // else another cache's table
    queries_.push_back({query, table});
    counts_.push_back({});
    Probe(queries_.size() - 1);
  }
  unique_misses_begin_.push_back(misses_.size());
  answered_.resize(unique_keys_.size(), 0);
  for (size_t query = 0; query < queries_.size(); ++query) {
    direct_.push_back(ReadDirectly(query) ? 1 : 0);
    if (direct_[query] == 0) unanswered_count_ += keys_[query].size();
  }
  return absl::OkStatus();
}

bool HostCall::ReadDirectly(size_t query) {
  const DeviceCacheQuery& request = queries_[query].request;
  if (request.direct == nullptr) return false;
  // As a device, it writes what it finds, also if it does not find all.
  bool all = true;
  for (size_t unique = begin_[query]; unique < begin_[query + 1]; ++unique) {
    for (size_t i = unique_misses_begin_[unique]; i < unique_misses_begin_[unique + 1]; ++i) {
      const size_t position = misses_[i].position;
      const bool found =
          ReadDirectRow(*request.direct, misses_[i].key,
                        {request.rows + position * request.row_stride_bytes, request.row_bytes});
      if (found && request.status != nullptr) request.status[position] = KeyStatus::kHitL2;
      all &= found;
    }
  }
  if (all) counts_[query][KeyStatus::kHitL2] = positions_[query];
  return all;
}

void HostCall::ForgetDirectAnswers(size_t query) {
  direct_[query] = 0;
  counts_[query][KeyStatus::kHitL2] = 0;
  unanswered_count_ += keys_[query].size();
}

void HostCall::Probe(size_t query) {
  const auto& [request, table] = queries_[query];
  const size_t first_miss = misses_.size();
  for (size_t i = 0; i < request.key_count; ++i) {
    const Key key = request.keys[i];
    if (table != nullptr && table->Read(key, request.rows + i * request.row_stride_bytes)) {
      if (request.status != nullptr) request.status[i] = KeyStatus::kHitL1;
      ++counts_[query][KeyStatus::kHitL1];
    } else {
      misses_.push_back({key, i});
    }
  }
  std::sort(misses_.begin() + static_cast<std::ptrdiff_t>(first_miss), misses_.end());
  for (size_t i = first_miss; i < misses_.size(); ++i) {
    if (i > first_miss && misses_[i].key == misses_[i - 1].key) continue;
    unique_keys_.push_back(misses_[i].key);
    unique_misses_begin_.push_back(i);
  }
  positions_.push_back(misses_.size() - first_miss);
  keys_.push_back(std::span<const Key>(unique_keys_).subspan(begin_.back()));
  begin_.push_back(unique_keys_.size());
}

absl::StatusOr<DeviceMisses> HostCall::Misses(Deadline) {
  HPS_CHECK(begun_);
  return DeviceMisses{keys_, positions_, direct_};
}

HostRows HostCall::Staging(size_t query, size_t row_count) {
  const size_t row_bytes = queries_[query].request.row_bytes;
  const size_t left_bytes = staging_.size() - staging_used_bytes_;
  const size_t count = row_count <= left_bytes / row_bytes ? row_count : 0;
  HostRows rows{staging_.data() + staging_used_bytes_, count, row_bytes, row_bytes};
  staging_used_bytes_ += count * row_bytes;
  return rows;
}

bool HostCall::IsStaged(const HostRows& rows) const {
  const std::byte* const end = staging_.data() + staging_used_bytes_;
  return rows.stride_bytes == rows.row_bytes && rows.data >= staging_.data() && rows.data <= end &&
         rows.row_count * rows.row_bytes <= static_cast<size_t>(end - rows.data);
}

absl::Status HostCall::CopyAhead(const HostRows& rows) {
  if (rows.row_count == 0) return absl::OkStatus();
  HPS_CHECK(IsStaged(rows));
  std::memcpy(device_staging_.data() + (rows.data - staging_.data()), rows.data,
              rows.row_count * rows.row_bytes);
  return absl::OkStatus();
}

const std::byte* HostCall::RowOf(const DeviceRowPiece& piece, size_t row) const {
  if (!piece.on_device) return piece.rows.row(row);
  HPS_CHECK(IsStaged(piece.rows));
  return device_staging_.data() + (piece.rows.row(row) - staging_.data());
}

void HostCall::Check(const DeviceRowPiece& piece) const {
  HPS_CHECK(piece.query < queries_.size());
  const size_t miss_count = begin_[piece.query + 1] - begin_[piece.query];
  HPS_CHECK(piece.first <= miss_count && piece.statuses.size() <= miss_count - piece.first);
  HPS_CHECK(piece.rows.row_count == 0 ||
            piece.rows.row_bytes == queries_[piece.query].request.row_bytes);
  for (size_t i = 0; i < piece.statuses.size(); ++i) {
    const KeyStatus status = piece.statuses[i];
    if (status == kUnanswered) continue;
    HPS_CHECK(answered_[begin_[piece.query] + piece.first + i] == 0);
    HPS_CHECK(i < piece.rows.row_count ||
              (status != KeyStatus::kHitL2 && status != KeyStatus::kHitL3));
  }
}

absl::Status HostCall::Finish(std::span<const DeviceRowPiece> pieces) {
  for (const DeviceRowPiece& piece : pieces) {
    Check(piece);
    if (direct_[piece.query] != 0) ForgetDirectAnswers(piece.query);
    for (size_t i = 0; i < piece.statuses.size(); ++i) {
      if (piece.statuses[i] == kUnanswered) continue;
      Answer(piece.query, begin_[piece.query] + piece.first + i, piece, i);
    }
  }
  return absl::OkStatus();
}

void HostCall::Answer(size_t query, size_t unique, const DeviceRowPiece& piece, size_t row) {
  const auto& [request, table] = queries_[query];
  const size_t begin = unique_misses_begin_[unique];
  const size_t end = unique_misses_begin_[unique + 1];
  std::byte* const first = request.rows + misses_[begin].position * request.row_stride_bytes;
  KeyStatus status = piece.statuses[row];
  if (piece.reprobe && table != nullptr && table->Read(unique_keys_[unique], first)) {
    status = KeyStatus::kHitL1;
  } else if (status == KeyStatus::kHitL2 || status == KeyStatus::kHitL3) {
    std::memcpy(first, RowOf(piece, row), request.row_bytes);
  } else if (!request.default_row.empty()) {
    std::memcpy(first, request.default_row.data(), request.row_bytes);
  } else {
    std::memset(first, 0, request.row_bytes);
  }
  for (size_t i = begin; i < end; ++i) {
    const size_t position = misses_[i].position;
    if (i > begin)
      std::memcpy(request.rows + position * request.row_stride_bytes, first, request.row_bytes);
    if (request.status != nullptr) request.status[position] = status;
  }
  counts_[query][status] += end - begin;
  answered_[unique] = 1;
  --unanswered_count_;
}

absl::Status HostCall::CheckAllAnswered() const {
  HPS_CHECK(begun_);
  if (unanswered_count_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("host cache: ", unanswered_count_, " misses were not answered"));
  }
  return absl::OkStatus();
}

absl::Status HostCall::ConvertToFloat32() {
  HPS_RETURN_IF_ERROR(CheckAllAnswered());
  for (const auto& [request, table] : queries_) {
    const size_t element_count = request.row_bytes / ElementBytes(request.convert_from);
    for (size_t i = 0; i < request.key_count; ++i) {
      ConvertToFloat32InPlace(request.convert_from, element_count,
                              request.rows + i * request.row_stride_bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status HostCall::Wait(Deadline) { return CheckAllAnswered(); }

}  // namespace hps
