// Real click logs and ratings through the whole of hps: a table per categorical column of 8,000
// Criteo rows, tables of users and items of MovieLens 100k. Every line is sent in order through a
// session, every row that comes back is checked, and so are the figures that the data is known for.
//
// The data is not part of the project. It is looked for in $HPS_REAL_DATA, else in ../shared/data
// beside the source tree; without it the tests are skipped.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "hps/store.h"
#include "import/generate.h"

namespace hps {
namespace {

constexpr uint32_t kDim = 16;
constexpr uint64_t kSeed = 8;
constexpr size_t kColumns = 26;
constexpr size_t kFirstColumn = 14;  // after the label and 13 integers

// The keys of one line, table after table; a missing value is no key.
using Line = std::vector<std::vector<Key>>;

std::vector<std::string> Split(const std::string& line, char separator) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == '\r') continue;
    if (c == separator) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

// The keys of a table in the order of their first appearance.
std::vector<Key> DistinctKeys(const std::vector<Line>& lines, size_t table) {
  std::vector<Key> keys;
  std::set<Key> seen;
  for (const Line& line : lines) {
    for (const Key key : line[table]) {
      if (seen.insert(key).second) keys.push_back(key);
    }
  }
  return keys;
}

class RealDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("HPS_REAL_DATA");
    data_ = given != nullptr ? given : std::string(HPS_SOURCE_DIRECTORY) + "/../shared/data";
    if (!std::filesystem::exists(data_ + "/truths.json"))
      GTEST_SKIP() << "no real data in " << data_ << ": set HPS_REAL_DATA";
    std::ifstream(data_ + "/truths.json") >> truths_;
    std::string pattern = (std::filesystem::temp_directory_path() / "hps_real_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    config_.store.path = directory_ + "/store";
    config_.l2.bytes_max = uint64_t{64} << 20;
  }
  void TearDown() override {
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  std::vector<Line> ReadCriteo(const std::string& name) const {
    std::vector<Line> lines;
    std::ifstream file(data_ + "/criteo-8k/" + name);
    for (std::string text; std::getline(file, text);) {
      const std::vector<std::string> fields = Split(text, '\t');
      Line& line = lines.emplace_back(kColumns);
      EXPECT_EQ(fields.size(), kFirstColumn + kColumns);
      if (fields.size() != kFirstColumn + kColumns) continue;
      for (size_t c = 0; c < kColumns; ++c) {
        const std::string& field = fields[kFirstColumn + c];
        if (!field.empty()) line[c].push_back(static_cast<Key>(std::stoull(field, nullptr, 16)));
      }
    }
    return lines;
  }

  // Writes one table in HugeCTR's format, with planted rows.
  void WriteTable(const std::string& name, uint32_t table, const std::vector<Key>& keys) const {
    const std::string path = directory_ + "/tables/" + name;
    std::filesystem::create_directories(path);
    std::ofstream key_file(path + "/key", std::ios::binary);
    std::ofstream row_file(path + "/emb_vector", std::ios::binary);
    std::array<float, kDim> row{};
    std::array<char, sizeof(row)> bytes{};
    for (const Key key : keys) {
      std::memcpy(bytes.data(), &key, sizeof(key));
      key_file.write(bytes.data(), sizeof(key));
      PlantedRow(kSeed, table, key, row);
      std::memcpy(bytes.data(), row.data(), sizeof(row));
      row_file.write(bytes.data(), sizeof(row));
    }
  }

  // Imports the distinct keys of `lines`, a table each, as model "m".
  void Import(const std::vector<std::string>& names, const std::vector<Line>& lines) {
    names_ = names;
    for (uint32_t t = 0; t < names.size(); ++t) WriteTable(names[t], t, DistinctKeys(lines, t));
    const auto report = ImportTables(config_, {.name = "m", .from = directory_ + "/tables"});
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->tables.size(), names.size());
  }

  // Sends every line as one call and checks every row. `all_present`: every key must be there; else
  // absent ones must get the default row.
  LookupCounts Send(const std::vector<Line>& lines, bool all_present) const;

  const nlohmann::json& Truth(const std::string& name) const { return truths_.at(name); }

  std::string data_;
  std::string directory_;
  nlohmann::json truths_;
  Config config_;
  std::vector<std::string> names_;
};

// The buffers of a call with at most one key per table.
struct LineCall {
  std::vector<TableIndex> tables;
  std::vector<std::array<float, kDim>> rows;
  std::vector<KeyStatus> statuses;
  std::vector<HostTableQuery> queries;

  LineCall(const LookupSession& session, const std::vector<std::string>& names)
      : rows(names.size()), statuses(names.size()), queries(names.size()) {
    for (const std::string& name : names) tables.push_back(*session.FindTable(name));
  }

  absl::Status LookUp(LookupSession& session, const Line& line, LookupCounts* counts) {
    for (size_t t = 0; t < tables.size(); ++t) {
      queries[t] = {.table = tables[t],
                    .keys = line[t],
                    .rows = std::as_writable_bytes(std::span(rows[t])),
                    .status = std::span(statuses).subspan(t, line[t].size())};
    }
    return session.Lookup(HostLookupRequest{.queries = queries, .timeout = std::chrono::minutes(1)},
                          counts);
  }

  uint64_t CountWrong(const Line& line, bool all_present) const {
    uint64_t wrong = 0;
    for (uint32_t t = 0; t < tables.size(); ++t) {
      if (line[t].empty()) continue;
      const bool absent = statuses[t] == KeyStatus::kAbsent;
      const bool hit = statuses[t] == KeyStatus::kHitL2 || statuses[t] == KeyStatus::kHitL3;
      std::array<float, kDim> expected{};
      if (!absent) PlantedRow(kSeed, t, line[t][0], expected);
      wrong += !(hit || (absent && !all_present)) ||
               std::memcmp(rows[t].data(), expected.data(), sizeof(expected)) != 0;
    }
    return wrong;
  }
};

LookupCounts RealDataTest::Send(const std::vector<Line>& lines, bool all_present) const {
  LookupCounts sum;
  const auto store = Store::Open(config_, OpenMode::kReadWrite);
  EXPECT_TRUE(store.ok()) << store.status();
  if (!store.ok()) return sum;
  const auto session = (*store)->NewSession("m", {.keys_max = names_.size()});
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return sum;
  LineCall call(**session, names_);
  uint64_t keys_sent = 0, wrong = 0;
  for (const Line& line : lines) {
    LookupCounts counts;
    const absl::Status status = call.LookUp(**session, line, &counts);
    EXPECT_TRUE(status.ok()) << status;
    wrong += call.CountWrong(line, all_present);
    for (const std::vector<Key>& keys : line) keys_sent += keys.size();
    for (size_t s = 0; s < kKeyStatusCount; ++s) sum.by_status[s] += counts.by_status[s];
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(sum.total(), keys_sent);
  const auto percent = [&](KeyStatus status) {
    return 100.0 * static_cast<double>(sum[status]) / static_cast<double>(sum.total());
  };
  std::printf("    %zu lines, %llu keys: L2 %.2f %%, L3 %.2f %%, absent %.2f %%\n", lines.size(),
              static_cast<unsigned long long>(sum.total()), percent(KeyStatus::kHitL2),
              percent(KeyStatus::kHitL3), percent(KeyStatus::kAbsent));
  return sum;
}

std::vector<std::string> CriteoColumns() {
  std::vector<std::string> names;
  for (size_t c = 1; c <= kColumns; ++c) names.push_back("C" + std::to_string(c));
  return names;
}

TEST_F(RealDataTest, CriteoByColumn) {
  std::vector<Line> lines;
  for (const char* name : {"train.tsv", "dev.tsv", "test.tsv"}) {
    const std::vector<Line> part = ReadCriteo(name);
    lines.insert(lines.end(), part.begin(), part.end());
  }
  const nlohmann::json& truth = Truth("criteo-8k (train, dev, test in that order)");
  EXPECT_EQ(lines.size(), truth.at("rows"));
  const std::vector<std::string> names = CriteoColumns();
  uint64_t pairs = 0, values = 0, sum = 0;
  std::set<Key> values_of_all_columns;
  for (size_t c = 0; c < kColumns; ++c) {
    const std::vector<Key> keys = DistinctKeys(lines, c);
    EXPECT_EQ(keys.size(), truth.at("distinct").at(names[c])) << names[c];
    pairs += keys.size();
    values_of_all_columns.insert(keys.begin(), keys.end());
    uint64_t missing = 0;
    for (const Line& line : lines) {
      missing += line[c].empty();
      values += line[c].size();
      for (const Key key : line[c]) sum += static_cast<uint64_t>(key);
    }
    EXPECT_EQ(missing, truth.at("missing").at(names[c])) << names[c];
  }
  EXPECT_EQ(pairs, truth.at("distinct_column_value_pairs"));
  EXPECT_EQ(values_of_all_columns.size(), truth.at("distinct_values_over_all_columns"));
  EXPECT_EQ(values, truth.at("categorical_values"));
  EXPECT_EQ(sum, truth.at("sum_of_values_as_uint32"));

  ASSERT_NO_FATAL_FAILURE(Import(names, lines));
  const LookupCounts counts = Send(lines, true);
  EXPECT_EQ(counts.total(), truth.at("categorical_values"));
  // Level 3 answers every key at least once; later calls find it promoted, or not yet.
  EXPECT_GE(counts[KeyStatus::kHitL3], pairs);
}

// With the rows of train.tsv alone, it is known how many values of the other files are absent.
TEST_F(RealDataTest, CriteoValuesThatTrainLacks) {
  ASSERT_NO_FATAL_FAILURE(Import(CriteoColumns(), ReadCriteo("train.tsv")));
  for (const char* name : {"dev.tsv", "test.tsv"}) {
    const nlohmann::json& truth = Truth(std::string("criteo-8k/") + name);
    const LookupCounts counts = Send(ReadCriteo(name), false);
    EXPECT_EQ(counts.total(), truth.at("categorical_values"));
    EXPECT_EQ(counts[KeyStatus::kAbsent], truth.at("values_whose_pair_is_absent_from_train"));
  }
}

TEST_F(RealDataTest, MovieLensUsersAndItems) {
  std::vector<Line> lines;
  std::ifstream file(data_ + "/movielens-100k/u.data");
  for (std::string text; std::getline(file, text);) {
    const std::vector<std::string> fields = Split(text, '\t');
    ASSERT_EQ(fields.size(), 4u);
    lines.push_back({{std::stoll(fields[0])}, {std::stoll(fields[1])}});
  }
  const nlohmann::json& truth = Truth("movielens-100k/u.data");
  ASSERT_EQ(lines.size(), truth.at("rows"));
  EXPECT_EQ(DistinctKeys(lines, 0).size(), truth.at("distinct_users"));
  EXPECT_EQ(DistinctKeys(lines, 1).size(), truth.at("distinct_items"));
  const std::vector<Line> first(lines.begin(), lines.begin() + 1024);
  EXPECT_EQ(DistinctKeys(first, 0).size(), truth.at("first_1024_rows").at("distinct_users"));
  EXPECT_EQ(DistinctKeys(first, 1).size(), truth.at("first_1024_rows").at("distinct_items"));

  ASSERT_NO_FATAL_FAILURE(Import({"user", "item"}, lines));
  const LookupCounts counts = Send(lines, true);
  EXPECT_EQ(counts.total(), 2 * lines.size());
}

}  // namespace
}  // namespace hps
