// hps in one program: generates a Criteo-shaped model whose rows are a known function of the key,
// imports it, looks up a power-law stream of keys, checks every row, and prints how many keys each
// level answered.
//
//   hps_demo [DIRECTORY]     (default: a temporary directory, removed at the end)
//
// With a GPU, the last passes use its cache, level 1.
// Exit status: 0 = every row was right, 2 = wrong arguments, 1 = any other error.
// Uses include/hps and the table generator of src/import.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "hps/store.h"
#include "import/generate.h"

namespace hps {
namespace {

constexpr uint32_t kTables = 26;
constexpr uint64_t kRows = 1'000'000;
constexpr uint32_t kDim = 16;
constexpr uint64_t kSeed = 20;
constexpr uint64_t kCalls = 120;
constexpr uint64_t kLinesPerCall = 1024;  // of the request stream: a key of each table per line
constexpr uint64_t kKeysPerCall = kLinesPerCall * kTables;
constexpr const char* kModel = "criteo";
constexpr int kUsageError = 2;

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

[[noreturn]] void Fail(const std::string& step, const absl::Status& status) {
  std::fprintf(stderr, "demo: %s: %s\n", step.c_str(), status.ToString().c_str());
  std::exit(EXIT_FAILURE);
}

std::string TableName(uint32_t table) { return std::string(kModel) + "/t" + std::to_string(table); }

// The last `count` int64 of a file: all of a `key` file, the data of an .npy file.
std::vector<Key> ReadKeys(const std::string& path, size_t count) {
  std::vector<Key> keys(count);
  std::vector<char> bytes(count * sizeof(Key));
  std::ifstream file(path, std::ios::binary);
  file.seekg(-static_cast<std::streamoff>(bytes.size()), std::ios::end);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())))
    Fail("reading " + path, absl::DataLossError("shorter than expected"));
  std::memcpy(keys.data(), bytes.data(), bytes.size());
  return keys;
}

// The generated data: the keys of each table, and the stream of requests.
struct Truth {
  std::array<std::unordered_set<Key>, kTables> present;
  std::vector<Key> requests;  // [calls * lines per call, tables]
};

Truth Generate(const std::string& directory) {
  const GenerateRequest request = {.out = directory,
                                   .tables = kTables,
                                   .rows = kRows,
                                   .dim = kDim,
                                   .seed = kSeed,
                                   .requests = kCalls * kLinesPerCall};
  if (const absl::Status status = GenerateTables(request); !status.ok()) Fail("generate", status);
  Truth truth;
  for (uint32_t t = 0; t < kTables; ++t) {
    const std::string path = directory + "/t" + std::to_string(t) + "/key";
    const std::vector<Key> keys = ReadKeys(path, std::filesystem::file_size(path) / sizeof(Key));
    truth.present[t].insert(keys.begin(), keys.end());
  }
  truth.requests = ReadKeys(directory + "/requests.npy", kCalls * kKeysPerCall);
  return truth;
}

// One pass of the stream over a store.
struct Measured {
  LookupCounts counts;
  std::vector<double> call_seconds;
  uint64_t wrong_rows = 0;

  double RowsPerSecond() const {
    double sum = 0;
    for (const double seconds : call_seconds) sum += seconds;
    return static_cast<double>(counts.total()) / sum;
  }
  double PercentileMs(double share) const {
    std::vector<double> sorted = call_seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))] * 1e3;
  }
};

// The keys of one lookup by table, and the buffers for the answers.
struct Call {
  std::array<std::vector<Key>, kTables> keys;
  std::array<std::vector<float>, kTables> rows;
  std::array<std::vector<KeyStatus>, kTables> status;
  std::array<HostTableQuery, kTables> queries;

  explicit Call(const LookupSession& session) {
    for (uint32_t t = 0; t < kTables; ++t) {
      const auto table = session.FindTable(TableName(t));
      if (!table.ok()) Fail("find table", table.status());
      keys[t].resize(kLinesPerCall);
      rows[t].resize(kLinesPerCall * kDim);
      status[t].resize(kLinesPerCall);
      queries[t] = {.table = *table,
                    .keys = keys[t],
                    .rows = std::as_writable_bytes(std::span(rows[t])),
                    .status = status[t]};
    }
  }

  void TakeKeys(const Truth& truth, uint64_t call) {
    for (uint64_t line = 0; line < kLinesPerCall; ++line) {
      for (uint32_t t = 0; t < kTables; ++t)
        keys[t][line] = truth.requests[(call * kLinesPerCall + line) * kTables + t];
    }
  }

  // Number of keys whose row differs from the generated one in any bit, or whose status is wrong.
  uint64_t CountWrong(const Truth& truth) const {
    uint64_t wrong = 0;
    std::array<float, kDim> expected{};
    for (uint32_t t = 0; t < kTables; ++t) {
      for (uint64_t i = 0; i < kLinesPerCall; ++i) {
        const bool present = truth.present[t].contains(keys[t][i]);
        expected.fill(0);  // the default row of an absent key
        if (present) PlantedRow(kSeed, t, keys[t][i], expected);
        const bool hit = status[t][i] == KeyStatus::kHitL1 || status[t][i] == KeyStatus::kHitL2 ||
                         status[t][i] == KeyStatus::kHitL3;
        const bool absent = status[t][i] == KeyStatus::kAbsent;
        const float* row = &rows[t][i * kDim];
        wrong +=
            (present ? !hit : !absent) || std::memcmp(row, expected.data(), sizeof(expected)) != 0;
      }
    }
    return wrong;
  }
};

Measured Stream(Store& store, const Truth& truth, int device) {
  auto session = store.NewSession(kModel, {.device = device, .keys_max = kKeysPerCall});
  if (!session.ok()) Fail("new session", session.status());
  Measured measured;
  Call call(**session);
  for (uint64_t i = 0; i < kCalls; ++i) {
    call.TakeKeys(truth, i);
    LookupCounts counts;
    const Clock::time_point start = Clock::now();
    const absl::Status status = (*session)->Lookup(
        HostLookupRequest{.queries = call.queries, .timeout = std::chrono::seconds(30)}, &counts);
    measured.call_seconds.push_back(Seconds(Clock::now() - start));
    if (!status.ok()) Fail("lookup", status);
    for (size_t s = 0; s < kKeyStatusCount; ++s)
      measured.counts.by_status[s] += counts.by_status[s];
    measured.wrong_rows += call.CountWrong(truth);
  }
  return measured;
}

struct MemoryUsed {
  uint64_t l1_bytes = 0;
  uint64_t l2_bytes = 0;
};

MemoryUsed MemoryOf(const Store& store) {
  MemoryUsed used;
  for (const TableStatistics& table : store.Statistics().tables) {
    used.l1_bytes += table.l1.bytes_used;
    used.l2_bytes += table.l2.bytes_used;
  }
  return used;
}

void PrintPass(const char* name, const Measured& measured, const MemoryUsed& used) {
  const auto percent = [&](KeyStatus status) {
    return 100.0 * static_cast<double>(measured.counts[status]) /
           static_cast<double>(measured.counts.total());
  };
  const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::printf("  %-24s %6.2f %% %6.2f %% %6.2f %% %6.2f %% %9.2f M %8.2f %8.2f %8.1f %8.1f\n", name,
              percent(KeyStatus::kHitL1), percent(KeyStatus::kHitL2), percent(KeyStatus::kHitL3),
              percent(KeyStatus::kAbsent), measured.RowsPerSecond() / 1e6,
              measured.PercentileMs(0.5), measured.PercentileMs(0.99), mib(used.l1_bytes),
              mib(used.l2_bytes));
  std::fflush(stdout);
}

// Opens the store with one configuration, runs the stream and prints. Adds to the checked rows.
struct Checked {
  uint64_t rows = 0;
  uint64_t wrong_rows = 0;
};
void RunPass(const char* name, const Config& config, const Truth& truth, int device,
             Checked* checked) {
  const auto store = Store::Open(config, OpenMode::kReadWrite);
  if (!store.ok()) Fail(std::string("open for '") + name + "'", store.status());
  const Measured measured = Stream(**store, truth, device);
  PrintPass(name, measured, MemoryOf(**store));
  checked->rows += measured.counts.total();
  checked->wrong_rows += measured.wrong_rows;
}

// Whether sessions can use the first GPU; prints the reason if not.
bool HasGpu(const Config& config) {
  Config with_gpu = config;
  with_gpu.l1.devices = {0};
  const auto store = Store::Open(with_gpu, OpenMode::kReadWrite);
  if (store.ok()) return true;
  std::printf("\nno level 1: %s\n", std::string(store.status().message()).c_str());
  return false;
}

int Run(const std::string& directory) {
  std::printf("1. generating %u tables with %lu rows of dim %u and %lu requests\n", kTables,
              static_cast<unsigned long>(kRows), kDim,
              static_cast<unsigned long>(kCalls * kLinesPerCall));
  std::fflush(stdout);
  const Truth truth = Generate(directory + "/tables");

  Config config;
  config.store.path = directory + "/store";
  const auto report = ImportTables(config, {.name = kModel, .from = directory + "/tables"});
  if (!report.ok()) Fail("import", report.status());
  std::printf("2. imported them as model '%s' in %.2f s\n", kModel, report->seconds);
  std::printf(
      "3. streaming %lu calls of %u tables x %lu keys, alpha 1.2, every row checked\n\n"
      "  %-24s %8s %8s %8s %8s %11s %8s %8s %8s %8s\n",
      static_cast<unsigned long>(kCalls), kTables, static_cast<unsigned long>(kLinesPerCall),
      "levels", "L1", "L2", "L3", "absent", "rows/s", "p50 ms", "p99 ms", "L1 MiB", "L2 MiB");
  std::fflush(stdout);

  Checked checked;
  config.l1.devices_auto = false;
  config.l2.kind = L2Kind::kNone;
  RunPass("L3 alone", config, truth, -1, &checked);
  config.l2.kind = L2Kind::kMemory;
  config.l2.bytes_max = uint64_t{32} << 20;  // the rows alone are 61 MiB
  RunPass("L2 a third, cold, + L3", config, truth, -1, &checked);
  config.l2.bytes_max = uint64_t{1} << 30;
  config.l2.preload = 1.0;
  RunPass("L2 whole, preloaded", config, truth, -1, &checked);
  if (HasGpu(config)) {
    config.l1.devices = {0};
    config.l1.bytes_max = uint64_t{24} << 20;
    RunPass("L1 a third, cold, + L2", config, truth, 0, &checked);
    config.l1.bytes_max = uint64_t{1} << 30;
    config.l1.preload = 1.0;
    RunPass("L1 whole, preloaded", config, truth, 0, &checked);
  }

  std::printf("\n%lu rows checked, %lu wrong\n", static_cast<unsigned long>(checked.rows),
              static_cast<unsigned long>(checked.wrong_rows));
  return checked.wrong_rows == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int Main(int argc, char** argv) {
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    std::fprintf(stderr, "Usage: hps_demo [DIRECTORY]\n");
    return kUsageError;
  }
  if (argc == 2) return Run(argv[1]);
  std::string directory = (std::filesystem::temp_directory_path() / "hps_demo_XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr)
    Fail("making " + directory, absl::InternalError(std::strerror(errno)));
  const int status = Run(directory);
  std::filesystem::remove_all(directory);
  return status;
}

}  // namespace
}  // namespace hps

int main(int argc, char** argv) { return hps::Main(argc, argv); }
