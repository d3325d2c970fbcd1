// An in-memory bulk import and durable table for the tests of this folder.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "tier/durable_tier.h"

namespace hps {

using FakeRows = std::map<Key, std::string>;

// Stores the added rows and checks the contract: keys ascend within a part and across parts.
class FakeBulkImport final : public BulkImport {
 public:
  explicit FakeBulkImport(std::vector<TableSpec> specs) : specs_(std::move(specs)) {
    tables_.resize(specs_.size());
  }

  absl::Status Add(size_t table, uint32_t part, std::span<const Key> keys, HostRows rows) override {
    MutexLock lock(mutex_);
    if (fail_after_rows_ < keys.size()) return absl::ResourceExhaustedError("fake: disk full");
    fail_after_rows_ -= keys.size();
    HPS_CHECK(!finished_.contains({table, part}));
    open_.insert({table, part});
    open_parts_peak_ = std::max(open_parts_peak_, open_.size());
    auto& added = tables_.at(table)[part];
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!added.empty() && added.rbegin()->first >= keys[i])
        return absl::InvalidArgumentError(absl::StrCat("fake: keys out of order at ", keys[i]));
      added.emplace_hint(added.end(), keys[i], std::string(AsChars(rows.row(i)), rows.row_bytes));
    }
    return absl::OkStatus();
  }

  absl::Status FinishPart(size_t table, uint32_t part) override {
    MutexLock lock(mutex_);
    open_.erase({table, part});
    finished_.insert({table, part});
    return absl::OkStatus();
  }

  void SetUpdateStart(const UpdateStart& start) override { update_start_ = start; }
  absl::Status SetImportId(const std::string& id) override {
    import_id_ = id;
    return absl::OkStatus();
  }

  absl::Status SetNetwork(const std::string& /*model*/, const ModelNetwork& network) override {
    network_ = network;
    return absl::OkStatus();
  }

  absl::StatusOr<Result> Commit() override {
    MutexLock lock(mutex_);
    Result result;
    for (size_t i = 0; i < specs_.size(); ++i) {
      FakeRows& all = committed_.emplace_back();
      for (const auto& [part, rows] : tables_[i]) {
        if (!all.empty() && !rows.empty() && all.rbegin()->first >= rows.begin()->first)
          return absl::InvalidArgumentError("fake: parts overlap");
        all.insert(rows.begin(), rows.end());
      }
      result.tables.push_back({.spec = specs_[i], .row_count = all.size()});
    }
    return result;
  }

  // The rows of a table; empty before Commit.
  FakeRows rows(size_t table) const {
    return committed_.empty() ? FakeRows() : committed_.at(table);
  }
  const UpdateStart& update_start() const { return update_start_; }
  const std::string& import_id() const { return import_id_; }
  bool committed() const { return !committed_.empty(); }
  void FailAfter(uint64_t rows) { fail_after_rows_ = rows; }
  size_t part_count(size_t table) const { return tables_.at(table).size(); }
  // Parts that were begun and not finished: the current number and the maximum.
  size_t open_part_count() const { return open_.size(); }
  size_t open_parts_peak() const { return open_parts_peak_; }

 private:
  static const char* AsChars(const std::byte* bytes) {
    return static_cast<const char*>(static_cast<const void*>(bytes));
  }

  const std::vector<TableSpec> specs_;
  UpdateStart update_start_;
  std::string import_id_;
  ModelNetwork network_;
  Mutex mutex_;
  uint64_t fail_after_rows_ = UINT64_MAX;
  std::vector<std::map<uint32_t, FakeRows>> tables_;
  std::vector<FakeRows> committed_;
  std::set<std::pair<size_t, uint32_t>> open_;
  std::set<std::pair<size_t, uint32_t>> finished_;
  size_t open_parts_peak_ = 0;
};

class FakeCursor final : public RowCursor {
 public:
  FakeCursor(const FakeRows& rows, uint64_t fail_after_rows)
      : next_(rows.begin()), end_(rows.end()), fail_after_rows_(fail_after_rows) {}
  absl::StatusOr<size_t> Next(std::span<Key> keys, HostRows rows, std::span<Version>) override {
    size_t count = 0;
    for (; count < keys.size() && next_ != end_; ++count, ++next_) {
      if (fail_after_rows_-- == 0)
        return absl::DataLossError(absl::StrCat("fake: key ", next_->first, " is damaged"));
      keys[count] = next_->first;
      std::memcpy(rows.row(count), next_->second.data(), rows.row_bytes);
    }
    return count;
  }

 private:
  FakeRows::const_iterator next_;
  FakeRows::const_iterator end_;
  uint64_t fail_after_rows_;
};

// For exports: implements only Scan and the table's description.
class FakeTable final : public DurableTable {
 public:
  FakeTable(TableSpec spec, FakeRows rows) : spec_(std::move(spec)), rows_(std::move(rows)) {}
  const TableSpec& spec() const override { return spec_; }
  Incarnation incarnation() const override { return 1; }
  absl::StatusOr<FetchCounts> Fetch(const FetchBatch&, Deadline) override {
    return absl::UnimplementedError("fake");
  }
  absl::Status Write(const DurableWrite&) override { return absl::UnimplementedError("fake"); }
  absl::StatusOr<std::vector<StreamPosition>> Positions() const override {
    return std::vector<StreamPosition>();
  }
  absl::StatusOr<std::unique_ptr<RowCursor>> Scan() const override {
    return std::make_unique<FakeCursor>(rows_, fail_after_rows_);
  }
  std::vector<uint16_t> UnorderedHashes() const override { return {}; }
  TableInfo Info() const override { return {.spec = spec_, .row_count = rows_.size()}; }
  bool IsCurrent() const override { return true; }
  void FailAfter(uint64_t rows) { fail_after_rows_ = rows; }

 private:
  const TableSpec spec_;
  const FakeRows rows_;
  uint64_t fail_after_rows_ = UINT64_MAX;
};

}  // namespace hps
