// A table of stamped rows in page files and in a plain map, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "l3_pages/page_file.h"
#include "l3_pages/page_file_writer.h"
#include "l3_pages/page_table.h"
#include "testing/fakes/stamped_row.h"
#include "testing/test_directory.h"

namespace hps {

inline constexpr Incarnation kTestIncarnation = 0x123456789abcd;

// How a test reads page files.
struct TestReaderKind {
  bool use_uring = true;
  bool direct = false;
  uint64_t cache_bytes = 0;
};

inline std::string TestReaderName(const testing::TestParamInfo<TestReaderKind>& info) {
  return std::string(info.param.use_uring ? "Uring" : "Threads") +
         (info.param.direct ? "Direct" : "Buffered") +
         (info.param.cache_bytes == 0 ? "" : "Cache" + std::to_string(info.param.cache_bytes));
}

class TestPageTable {
 public:
  using Rows = std::map<Key, Version>;

  explicit TestPageTable(size_t row_bytes) : row_bytes_(row_bytes) {}

  // Random keys, those at both ends of the key space included.
  static Rows RandomRows(size_t count, std::mt19937_64& random) {
    Rows rows;
    if (count > 2) rows = {{INT64_MIN, 1}, {INT64_MAX, 2}};
    while (rows.size() < count) {
      // Half of them dense, half of them anywhere.
      const auto key = static_cast<Key>(random() % 2 == 0 ? random() % (2 * count) : random());
      rows[key] = random() % 3;
    }
    return rows;
  }

  // Writes the rows, in calls of 100, to `file_count` files.
  void Write(Rows rows, size_t file_count = 1) {
    rows_ = std::move(rows);
    const std::vector<Key> keys = Keys();
    for (size_t file = 0; file < file_count; ++file) {
      const size_t begin = keys.size() * file / file_count;
      WriteFile(std::span(keys).subspan(begin, keys.size() * (file + 1) / file_count - begin));
    }
  }

  absl::StatusOr<std::unique_ptr<PageTable>> Open(PageReader& reader, bool direct = false) const {
    return PageTable::Open({kTestIncarnation, row_bytes_, direct, parts_}, reader);
  }
  absl::StatusOr<std::unique_ptr<PageFile>> OpenFile() const {
    return PageFile::Open({path(), kTestIncarnation, row_bytes_, false});
  }

  struct Answer {
    FetchCounts counts;
    std::vector<FetchOutcome> outcomes;
  };
  // Fetches and compares every row and version that was hit. Outcomes are for the caller.
  Answer Fetch(const PageTable& table, const std::vector<Key>& keys) const {
    constexpr std::byte kUntouched{0x5a};
    std::vector<std::byte> bytes(keys.size() * row_bytes_, kUntouched);
    std::vector<Version> versions(keys.size(), 77);
    Answer answer;
    answer.outcomes.resize(keys.size());
    const auto counts = table.Fetch(
        {keys, {bytes.data(), keys.size(), row_bytes_, row_bytes_}, answer.outcomes, versions},
        kNoDeadline);
    EXPECT_TRUE(counts.ok()) << counts.status();
    if (!counts.ok()) return answer;
    answer.counts = *counts;
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::span<const std::byte> row(bytes.data() + i * row_bytes_, row_bytes_);
      if (answer.outcomes[i] == FetchOutcome::kHit) {
        EXPECT_TRUE(rows_.contains(keys[i])) << keys[i];
        EXPECT_EQ(versions[i], rows_.at(keys[i])) << keys[i];
        EXPECT_TRUE(StampedRow::Matches(1, keys[i], versions[i], row)) << keys[i];
      } else {
        EXPECT_EQ(versions[i], 77u) << keys[i];
        EXPECT_EQ(std::count(row.begin(), row.end(), kUntouched),
                  static_cast<std::ptrdiff_t>(row_bytes_))
            << keys[i];
      }
    }
    return answer;
  }

  std::vector<Key> Keys() const {
    std::vector<Key> keys;
    for (const auto& [key, version] : rows_) keys.push_back(key);
    return keys;
  }
  const Rows& rows() const { return rows_; }
  size_t row_bytes() const { return row_bytes_; }
  std::string path(size_t file = 0) const { return directory_.Path("rows" + std::to_string(file)); }

 private:
  static constexpr size_t kCallKeys = 100;

  void WriteFile(std::span<const Key> keys) {
    const std::string file = path(files_++);
    auto writer = PageFileWriter::Create(file, kTestIncarnation, row_bytes_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    std::vector<Version> versions(kCallKeys);
    const size_t stride = row_bytes_ + (files_ % 2) * 8;  // rows side by side, or with gaps
    std::vector<std::byte> bytes(kCallKeys * stride);
    for (size_t begin = 0; begin < keys.size(); begin += kCallKeys) {
      const auto call = keys.subspan(begin, std::min(kCallKeys, keys.size() - begin));
      for (size_t i = 0; i < call.size(); ++i) {
        versions[i] = rows_.at(call[i]);
        StampedRow::Write(1, call[i], versions[i], {bytes.data() + i * stride, row_bytes_});
      }
      const absl::Status added =
          (*writer)->Add(call, {bytes.data(), call.size(), row_bytes_, stride},
                         std::span(versions).first(call.size()));
      ASSERT_TRUE(added.ok()) << added;
    }
    const auto written = (*writer)->Finish();
    ASSERT_TRUE(written.ok()) << written.status();
    ASSERT_EQ(written->file_bytes(), std::filesystem::file_size(file));
    ASSERT_EQ(written->row_count, keys.size());
    if (!keys.empty())
      parts_.push_back({file, written->row_count, written->first_key, written->last_key});
  }

  const TestDirectory directory_;
  const size_t row_bytes_;
  Rows rows_;
  size_t files_ = 0;
  std::vector<PageTable::Part> parts_;
};

}  // namespace hps
