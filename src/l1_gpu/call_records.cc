#include "l1_gpu/call_records.h"

#include <algorithm>

#include "base/limits.h"

namespace hps {

CallRecords::CallRecords(const MissBuffers& misses, size_t keys_max)
    : misses_(misses),
      unique_keys_(new Key[keys_max]),
      has_duplicates_(new uint64_t[keys_max / 64 + 1]{}),
      index_of_(new uint32_t[keys_max]) {
  queries_.reserve(kTablesPerCallMax);
  keys_.reserve(kTablesPerCallMax);
}

void CallRecords::Clear() {
  queries_.clear();
  keys_.clear();
  key_count_ = 0;
}

void CallRecords::AddQuery(const QueryView& query) {
  queries_.push_back(query);
  queries_.back().first_key = static_cast<uint32_t>(key_count_);
  keys_.emplace_back(unique_keys_.get() + key_count_, 0);
  key_count_ += query.key_count;
}

bool CallRecords::Read(size_t query, size_t count_max) {
  const QueryView& view = queries_[query];
  const MissRecord* const records = misses_.records + view.first_key;
  Key* const keys = unique_keys_.get() + view.first_key;
  size_t unique = keys_[query].size();
  const size_t end = unique + std::min(count_max, view.key_count - unique);
  while (unique < end && ReadMissRecord(records[unique], generation_, &keys[unique])) ++unique;
  keys_[query] = {keys, unique};
  return unique < end || unique == view.key_count;
}

std::span<const DuplicateRecord> CallRecords::Duplicates(size_t query) const {
  const QueryView& view = queries_[query];
  const DuplicateRecord* const first = misses_.duplicate_records + view.first_key;
  const DuplicateRecord* const end = first + (keys_[query].empty() ? 0 : view.key_count);
  return {first, std::find_if(first, end, [&](const DuplicateRecord& record) {
            return record.generation != generation_;
          })};
}

bool CallRecords::AreAnsweredOnDevice(size_t query) const {
  if (queries_[query].direct == nullptr) return false;
  const auto is_answered = [](const MissRecord& record) {
    return (record.position & kAnsweredOnDevice) != 0;
  };
  // Positions that ask for the same key are read separately, while level 2 changes.
  const auto all_answered = [](const DuplicateRecord& record) { return record.open_count == 0; };
  return std::ranges::all_of(Records(query), is_answered) &&
         std::ranges::all_of(Duplicates(query), all_answered);
}

}  // namespace hps
