// Ten thousand files of each format gone wrong: each is refused with a sentence that names it, or
// read as what it says now. Never a crash, a hang, or memory as much as the file asks for.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/mutex.h"
#include "hps/config.h"
#include "import/import.h"
#include "testing/trials.h"
#include "tests/faults/allocation_watch.h"
#include "tests/faults/mutator.h"
#include "tests/faults/reference_reader.h"
#include "tests/faults/temporary_directory.h"
#include "tier/durable_tier.h"

namespace hps {
namespace {

// No file here is larger than a few KiB, so nothing that reading it needs is larger than the
// buffers of a fixed size (that for configurations has 4 MiB): a block above this was sized by the
// file's own claims.
constexpr size_t kAllocationBytesMax = 5 << 20;
constexpr uint64_t kImportMemoryBytes = 256 << 10;
constexpr size_t kRows = 33;
constexpr size_t kDim = 4;

// Mutants of each format in CI; a release run sets the factor.
uint64_t Seed() { return TestSeed(14); }

uint64_t MutantCount() { return Trials(10'000); }

std::string KeyBytes() {
  std::vector<Key> keys(kRows);
  std::iota(keys.begin(), keys.end(), Key{-2});
  keys[7] = std::numeric_limits<Key>::min();
  keys[9] = std::numeric_limits<Key>::max();
  return std::string(AsText(std::as_bytes(std::span(keys))));
}

std::string RowBytes() {
  std::vector<float> elements(kRows * kDim);
  std::iota(elements.begin(), elements.end(), 0.5f);
  return std::string(AsText(std::as_bytes(std::span(elements))));
}

std::string NpyFile(const std::string& descr, const std::string& shape, const std::string& data) {
  std::string header =
      absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }");
  header.resize(117, ' ');
  header += '\n';
  return absl::StrCat(std::string("\x93NUMPY\x01\x00\x76\x00", 10), header, data);
}

std::string SafetensorsFile(const std::string& keys, const std::string& rows) {
  const std::string header = absl::StrCat(
      R"({"__metadata__":{"format":"pt"},"keys":{"dtype":"I64","shape":[)", kRows,
      R"(],"data_offsets":[0,)", keys.size(), R"(]},"rows":{"dtype":"F32","shape":[)", kRows, ",",
      kDim, R"(],"data_offsets":[)", keys.size(), ",", keys.size() + rows.size(), "]}}");
  std::string length(8, '\0');
  StoreLittleEndian<uint64_t>(length.data(), header.size());
  return length + header + keys + rows;
}

using ImportedRows = std::map<Key, std::string>;

// A bulk import of one table that keeps the rows in memory.
class RowCollector final : public BulkImport {
 public:
  explicit RowCollector(std::vector<TableSpec> specs) : specs_(std::move(specs)) {}

  absl::Status Add(size_t, uint32_t, std::span<const Key> keys, HostRows rows) override {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!rows_.emplace(keys[i], AsText({rows.row(i), rows.row_bytes})).second)
        return absl::InvalidArgumentError("a key was added twice");
    }
    return absl::OkStatus();
  }
  absl::Status FinishPart(size_t, uint32_t) override { return absl::OkStatus(); }
  void SetUpdateStart(const UpdateStart&) override {}
  absl::Status SetImportId(const std::string&) override { return absl::OkStatus(); }
  absl::Status SetNetwork(const std::string&, const ModelNetwork&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<Result> Commit() override {
    MutexLock lock(mutex_);
    return Result{.tables = {{.spec = specs_[0], .row_count = rows_.size()}}};
  }

  ImportedRows rows() {
    MutexLock lock(mutex_);
    return rows_;
  }

 private:
  const std::vector<TableSpec> specs_;
  Mutex mutex_;
  ImportedRows rows_ HPS_GUARDED_BY(mutex_);
};

struct MutantCounts {
  uint64_t refused = 0;
  uint64_t read = 0;
};

void Print(const char* format, const MutantCounts& counts) {
  std::printf("%s: %llu mutants, %llu refused, %llu read as what they say; seed %llu\n", format,
              static_cast<unsigned long long>(counts.refused) + counts.read,
              static_cast<unsigned long long>(counts.refused),
              static_cast<unsigned long long>(counts.read),
              static_cast<unsigned long long>(Seed()));
}

class MutantTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream file(directory_.path(name), std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    HPS_CHECK(file.good());
  }

  // Imports `from` and compares what came of it with `expected`.
  // What is wrong with it, or "".
  std::string ImportAndCompare(const std::string& from, TableFormat format,
                               const std::optional<ReferenceTable>& expected,
                               MutantCounts& counts) {
    ResetLargestAllocation();
    const absl::StatusOr<ImportedRows> rows = Import(from, format);
    if (LargestAllocationBytes() > kAllocationBytesMax)
      return absl::StrCat("a block of ", LargestAllocationBytes(), " bytes was asked for");
    if (!rows.ok()) {
      ++counts.refused;
      return WrongError(rows.status());
    }
    ++counts.read;
    if (!expected.has_value()) return "read, although it is no table";
    return expected->rows == *rows ? "" : "read as something else than it says";
  }

  absl::StatusOr<ImportedRows> Import(const std::string& from, TableFormat format) {
    HPS_ASSIGN_OR_RETURN(const ImportPlan plan,
                         PlanImport({.name = "m/t", .from = from, .format = format}));
    RowCollector import(plan.specs());
    HPS_RETURN_IF_ERROR(RunImport(plan, import,
                                  {.spill_directory = directory_.root(),
                                   .memory_bytes_max = kImportMemoryBytes,
                                   .threads = 1},
                                  nullptr)
                            .status());
    return import.rows();
  }

  // An error names the file and is of a kind that blames the input.
  std::string WrongError(const absl::Status& status) const {
    if (status.code() != absl::StatusCode::kInvalidArgument &&
        status.code() != absl::StatusCode::kNotFound &&
        status.code() != absl::StatusCode::kDataLoss &&
        status.code() != absl::StatusCode::kUnimplemented)
      return absl::StrCat("refused with ", status.ToString());
    const std::string message(status.message());
    if (message.find(directory_.root()) == std::string::npos)
      return absl::StrCat("the file is not named: ", message);
    return message.find('\n') == std::string::npos ? ""
                                                   : "the message has a line break: " + message;
  }

  const TemporaryDirectory directory_;
};

TEST_F(MutantTest, HugectrTables) {
  Mutator mutator(Seed());
  MutantCounts counts;
  for (uint64_t i = 0; i < MutantCount(); ++i) {
    const std::string keys = i % 2 == 0 ? mutator.Mutate(KeyBytes(), 0) : KeyBytes();
    const std::string rows = i % 2 == 1 ? mutator.Mutate(RowBytes(), 0) : RowBytes();
    Write("key", keys);
    Write("emb_vector", rows);
    const std::string wrong = ImportAndCompare(directory_.root(), TableFormat::kHugectr,
                                               ReadReferenceHugectr(keys, rows), counts);
    ASSERT_EQ(wrong, "") << "mutant " << i << ", seed " << Seed();
  }
  Print("hugectr", counts);
  EXPECT_GT(counts.refused, 0u);
  EXPECT_GT(counts.read, 0u);
}

TEST_F(MutantTest, NpyTables) {
  Mutator mutator(Seed() + 1);
  MutantCounts counts;
  const std::vector<std::string> words = {
      "'shape': (1,)", "True",  "'>i8'", "(0, 4)", "(33, 4, 1)",
      "'O'",           "\\x00", "-1",    "{",      "'descr': '<f2', "};
  const std::string key_file = NpyFile("<i8", "(33,)", KeyBytes());
  const std::string row_file = NpyFile("<f4", "(33, 4)", RowBytes());
  for (uint64_t i = 0; i < MutantCount(); ++i) {
    const std::string keys = i % 2 == 0 ? mutator.Mutate(key_file, 128, words) : key_file;
    const std::string rows = i % 2 == 1 ? mutator.Mutate(row_file, 128, words) : row_file;
    Write("keys.npy", keys);
    Write("rows.npy", rows);
    const std::string wrong = ImportAndCompare(directory_.root(), TableFormat::kNpy,
                                               ReadReferenceNpy(keys, rows), counts);
    ASSERT_EQ(wrong, "") << "mutant " << i << ", seed " << Seed() << "\n"
                         << absl::CHexEscape(keys.substr(0, 160)) << "\n"
                         << absl::CHexEscape(rows.substr(0, 160));
  }
  Print("npy", counts);
  EXPECT_GT(counts.refused, 0u);
  EXPECT_GT(counts.read, 0u);
}

TEST_F(MutantTest, SafetensorsTables) {
  Mutator mutator(Seed() + 2);
  MutantCounts counts;
  const std::vector<std::string> words = {
      "\"I32\"",  "\"F16\"",
      "[0,0]",    "[33,4,1]",
      "null",     "1e308",
      "-1",       "{\"rows\":",
      "[[[[[[[[", "\"keys\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[0,0]},"};
  const std::string whole = SafetensorsFile(KeyBytes(), RowBytes());
  for (uint64_t i = 0; i < MutantCount(); ++i) {
    const std::string file = mutator.Mutate(whole, 230, words);
    Write("t.safetensors", file);
    const std::string wrong =
        ImportAndCompare(directory_.path("t.safetensors"), TableFormat::kSafetensors,
                         ReadReferenceSafetensors(file), counts);
    ASSERT_EQ(wrong, "") << "mutant " << i << ", seed " << Seed() << "\n"
                         << absl::CHexEscape(file.substr(0, 300));
  }
  Print("safetensors", counts);
  EXPECT_GT(counts.refused, 0u);
  EXPECT_GT(counts.read, 0u);
}

constexpr char kConfigText[] = R"(# comment
[store]
path = "rows"
cache_bytes = "2GiB"
sync = "always"
sync_interval = "250ms"
[l2]
kind = "memory"
bytes_max = "3GiB"
preload = 0.5
eviction = "least_used"
evict_from = 0.9
evict_to = 0.8
huge_pages = false
[lookup]
hit_rate_threshold = 0.75
timeout = "2ms"
[[model]]
name = "dlrm"
tables = ["user", "item"]
  [[model.table]]
  name = "user"
  l2_share = 0.25
)";

// A configuration that is accepted is printed as one that is read back as the same.
std::string JudgeConfig(const TemporaryDirectory& directory, const std::string& path,
                        MutantCounts& counts) {
  const absl::StatusOr<Config> config = LoadConfig(path);
  if (!config.ok()) {
    ++counts.refused;
    const std::string message(config.status().message());
    if (config.status().code() != absl::StatusCode::kInvalidArgument &&
        config.status().code() != absl::StatusCode::kUnimplemented)
      return absl::StrCat("refused with ", config.status().ToString());
    if (message.find(path) == std::string::npos) return "the file is not named: " + message;
    return message.find('\n') == std::string::npos ? ""
                                                   : "the message has a line break: " + message;
  }
  ++counts.read;
  const std::string printed = PrintConfig(*config);
  const std::string again_path = directory.path("again.toml");
  std::ofstream(again_path) << printed;
  const absl::StatusOr<Config> again = LoadConfig(again_path);
  if (!again.ok()) return absl::StrCat("printed as what is refused: ", again.status().ToString());
  // Without the comments, which say where a value came from, and without the default path, which is
  // the only relative one: read back, it is relative to the file.
  const bool default_path = !config->origin.contains("store.path");
  auto plain = [&](Config value) {
    value.origin.clear();
    if (default_path) value.store.path.clear();
    return PrintConfig(value);
  };
  return plain(*config) == plain(*again) ? "" : "printed as something else: " + printed;
}

TEST_F(MutantTest, Configurations) {
  Mutator mutator(Seed() + 3);
  MutantCounts counts;
  const std::vector<std::string> words = {"[store]\n",
                                          "[[model]]\n",
                                          "name = \"x\"\n",
                                          "= nan\n",
                                          "inf",
                                          "1979-05-27T07:32:00Z",
                                          "\"\"\"\n",
                                          "'''",
                                          "0x7fffffffffffffff",
                                          "\\u0000",
                                          "\\U0010ffff",
                                          "{a={a={a=",
                                          "preload = 1e400\n",
                                          "99999999999999999999",
                                          std::string(5000, '['),
                                          std::string(300, '9'),
                                          std::string(2000, '.'),
                                          "\"-1GiB\"",
                                          "\"9999999999GiB\"",
                                          "\xef\xbb\xbf",
                                          "\xff\xfe"};
  for (uint64_t i = 0; i < MutantCount(); ++i) {
    const std::string text = mutator.Mutate(kConfigText, 0, words);
    Write("hps.toml", text);
    ResetLargestAllocation();
    const std::string wrong = JudgeConfig(directory_, directory_.path("hps.toml"), counts);
    ASSERT_EQ(wrong, "") << "mutant " << i << ", seed " << Seed() << "\n" << text;
    ASSERT_LE(LargestAllocationBytes(), kAllocationBytesMax) << text;
  }
  Print("configuration", counts);
  EXPECT_GT(counts.refused, 0u);
  EXPECT_GT(counts.read, 0u);
}

// The judge itself: an import that reads something else than the file says must not pass.
TEST_F(MutantTest, AWrongReaderIsFound) {
  Write("key", KeyBytes());
  Write("emb_vector", RowBytes());
  MutantCounts counts;
  auto expected = ReadReferenceHugectr(KeyBytes(), RowBytes());
  ASSERT_TRUE(expected.has_value());
  EXPECT_EQ(ImportAndCompare(directory_.root(), TableFormat::kHugectr, expected, counts), "");
  expected->rows.begin()->second[3] ^= 1;
  EXPECT_NE(ImportAndCompare(directory_.root(), TableFormat::kHugectr, expected, counts), "");
  EXPECT_NE(ImportAndCompare(directory_.root(), TableFormat::kHugectr, std::nullopt, counts), "");
}

}  // namespace
}  // namespace hps
