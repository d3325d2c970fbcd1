// Files that rot: bits flipped, ends cut, pieces swapped, in every kind of file that a store has.
// A row that is answered is right; what a lookup would meet, verify has found.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "l3_rocksdb/verify/verify.h"
#include "testing/trials.h"
#include "tests/faults/store_run.h"
#include "tests/faults/temporary_directory.h"

namespace hps {
namespace {

namespace fs = std::filesystem;

constexpr EventPlan kPlan = {.seed = 13};
constexpr uint64_t kEvents = 30;

uint64_t Seed() { return TestSeed(13); }

enum class Kind { kFlip, kCut, kSwap };
constexpr std::array<const char*, 3> kKindNames = {"flip", "cut", "swap"};

std::string ReadFile(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Damages the file; false when it came out as it was.
bool Damage(const fs::path& path, Kind kind, std::mt19937_64& random) {
  const std::string before = ReadFile(path);
  std::string bytes = before;
  if (bytes.empty()) return false;
  const size_t place = random() % bytes.size();
  if (kind == Kind::kFlip) {
    bytes[place] = static_cast<char>(bytes[place] ^ (1 << (random() % 8)));
  } else if (kind == Kind::kCut) {
    bytes.resize(place);
  } else {
    const size_t length = std::min<size_t>(1 + random() % 512, bytes.size() / 2);
    if (length == 0) return false;
    const size_t first = random() % (bytes.size() - 2 * length + 1);
    const size_t second = first + length + random() % (bytes.size() - first - 2 * length + 1);
    std::swap_ranges(bytes.begin() + static_cast<ptrdiff_t>(first),
                     bytes.begin() + static_cast<ptrdiff_t>(first + length),
                     bytes.begin() + static_cast<ptrdiff_t>(second));
  }
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return bytes != before;
}

// "sst", "log", "MANIFEST", "CURRENT", "OPTIONS", "pages", ...
std::string TypeOf(const fs::path& path) {
  if (path.parent_path().filename() == "pages") return "pages";
  if (path.has_extension()) return path.extension().string().substr(1);
  const std::string name = path.filename().string();
  return name.substr(0, name.find('-'));
}

std::map<std::string, std::vector<fs::path>> FilesByType(const fs::path& directory) {
  std::map<std::string, std::vector<fs::path>> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file() && entry.file_size() > 0)
      files[TypeOf(entry.path())].push_back(entry.path());
  }
  for (auto& [type, paths] : files) std::sort(paths.begin(), paths.end());
  return files;
}

// Files whose content nobody reads: of the locks, and of the space that is kept for a full disk.
bool MeansNothing(const std::string& type) {
  return type == "lock" || type == "LOCK" || type == "reserve";
}

// What reading every planned key of both tables gives.
struct Seen {
  uint64_t right = 0;
  uint64_t lost = 0;
  uint64_t failed = 0;  // whole fetches
  std::string wrong;    // the first wrong answer
};

void FetchAll(DurableStore& store, size_t number, const PlannedState& state, Seen& seen) {
  auto table = store.OpenTable(kPlannedTables[number]);
  if (!table.ok()) {
    ++seen.failed;
    if (absl::IsNotFound(table.status())) seen.wrong = "a table is not there";
    return;
  }
  std::vector<Key> keys;
  for (size_t i = 0; i < kPlannedKeyCount; ++i) keys.push_back(PlannedKey(i));
  std::vector<std::byte> bytes(keys.size() * kPlannedRowBytes);
  std::vector<FetchOutcome> outcomes(keys.size());
  std::vector<Version> versions(keys.size());
  const HostRows rows = {.data = bytes.data(),
                         .row_count = keys.size(),
                         .row_bytes = kPlannedRowBytes,
                         .stride_bytes = kPlannedRowBytes};
  const auto counts = (*table)->Fetch(
      {.keys = keys, .rows = rows, .outcomes = outcomes, .versions = versions}, kNoDeadline);
  if (!counts.ok()) ++seen.failed;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto row = std::span(bytes).subspan(i * kPlannedRowBytes, kPlannedRowBytes);
    const bool has = state.Has(number, keys[i]);
    if (outcomes[i] == FetchOutcome::kLost) ++seen.lost;
    if (outcomes[i] == FetchOutcome::kHit && state.IsRight(number, keys[i], versions[i], row))
      ++seen.right;
    else if (outcomes[i] == FetchOutcome::kHit)
      seen.wrong = absl::StrCat(kPlannedTables[number], ", key ", keys[i], ": a wrong row");
    else if (outcomes[i] == FetchOutcome::kAbsent && has)
      seen.wrong = absl::StrCat(kPlannedTables[number], ", key ", keys[i], ": told absent");
  }
}

class DamageTest : public testing::Test {
 protected:
  DamageTest() { SetLogLevel(LogLevel::kOff); }
  ~DamageTest() override { SetLogLevel(LogLevel::kWarning); }

  // A store with imported rows, rows that were flushed, and rows that are in the log.
  void MakeStore() {
    StoreRun run(kPlan, TestStoreOptions(whole_));
    ASSERT_TRUE(run.Open().ok());
    ASSERT_TRUE(run.DoEvents(kEvents / 2).ok());
    ASSERT_TRUE(run.Open().ok());  // recovery flushes the log
    ASSERT_TRUE(run.DoEvents(kEvents - kEvents / 2).ok());
    run.Close();
    state_.AdvanceTo(kEvents);
  }

  void CopyStore() {
    fs::remove_all(damaged_);
    fs::copy(whole_, damaged_, fs::copy_options::recursive);
  }

  // Whether verify, which must not change a byte, finds damage.
  bool VerifyFinds() {
    RocksStoreOptions options = TestStoreOptions(damaged_);
    options.mode = OpenMode::kReadWrite;
    const auto report = VerifyRocksStore(options, false, {});
    return !report.ok() || report->damage_count > 0;
  }

  // The newest state that the store equals, or nullopt.
  std::optional<uint64_t> EqualState(DurableStore& store) {
    std::optional<uint64_t> equal;
    PlannedState state(kPlan);
    for (uint64_t n = 1; n <= kEvents; ++n) {
      state.AdvanceTo(n);
      if (state.Compare(store).ok()) equal = n;
    }
    return equal;
  }

  struct Outcome {
    bool found = false;      // by verify
    bool met = false;        // by opening or reading
    bool tail_lost = false;  // an older state, whole
    std::string wrong;
  };
  Outcome Judge() {
    Outcome outcome;
    outcome.found = VerifyFinds();
    RocksStoreOptions options = TestStoreOptions(damaged_);
    options.mode = OpenMode::kReadWrite;
    const auto store = OpenRocksStore(options);
    if (!store.ok()) {
      outcome.met = true;
      if (!absl::IsDataLoss(store.status()) && !absl::IsFailedPrecondition(store.status()))
        outcome.wrong = absl::StrCat("refused as ", store.status().ToString());
      return outcome;
    }
    if (state_.Compare(**store).ok()) return outcome;
    outcome.met = true;
    if (EqualState(**store).has_value()) {
      outcome.tail_lost = true;
      return outcome;
    }
    Seen seen;
    for (size_t table = 0; table < kPlannedTableCount; ++table)
      FetchAll(**store, table, state_, seen);
    outcome.wrong = seen.wrong;
    return outcome;
  }

  const TemporaryDirectory directory_;
  const std::string whole_ = directory_.path("whole");
  const std::string damaged_ = directory_.path("damaged");
  PlannedState state_{kPlan};
};

// Every kind of damage in every kind of file.
TEST_F(DamageTest, IsFoundAndNeverServed) {
  MakeStore();
  std::mt19937_64 random(Seed());
  std::map<std::string, uint64_t> trials;
  std::map<std::string, uint64_t> met;
  for (const auto& [type, files] : FilesByType(whole_)) {
    if (MeansNothing(type)) continue;
    for (uint64_t i = 0; i < Trials(36); ++i) {
      const Kind kind = static_cast<Kind>(i % 3);
      CopyStore();
      const fs::path file = files[random() % files.size()];
      const fs::path target = damaged_ / fs::relative(file, whole_);
      if (!Damage(target, kind, random)) continue;
      SCOPED_TRACE(absl::StrCat(kKindNames[i % 3], " of ", target.filename().string(), ", trial ",
                                i, ", seed ", Seed()));
      const Outcome outcome = Judge();
      ++trials[type];
      met[type] += outcome.met ? 1 : 0;
      ASSERT_EQ(outcome.wrong, "");
      // A log may end anywhere; a lost end that is whole is no damage that could be told.
      if (type == "log" && kind == Kind::kCut && outcome.tail_lost) continue;
      EXPECT_FALSE(outcome.tail_lost && type != "log") << "an older state, without a word";
      EXPECT_TRUE(outcome.found || !outcome.met) << "met by reading, not found by verify";
      if (type == "sst" || type == "pages") {
        EXPECT_TRUE(outcome.found) << "damage to a file of rows was not found";
      }
    }
  }
  for (const auto& [type, count] : trials) {
    std::printf("%s: %llu damaged, %llu met by reading\n", type.c_str(),
                static_cast<unsigned long long>(count), static_cast<unsigned long long>(met[type]));
  }
  for (const char* type : {"pages", "sst", "log", "MANIFEST", "CURRENT"})
    EXPECT_GT(trials[type], 0u);
}

// A hundred bits of a store, each at a place drawn from all bytes of all files that mean something.
TEST_F(DamageTest, VerifyFindsEveryFlipThatALookupMeets) {
  MakeStore();
  std::mt19937_64 random(Seed() + 1);
  std::vector<std::pair<fs::path, uint64_t>> files;
  uint64_t total = 0;
  for (const auto& [type, paths] : FilesByType(whole_)) {
    if (MeansNothing(type)) continue;
    for (const fs::path& path : paths) {
      files.emplace_back(path, fs::file_size(path));
      total += fs::file_size(path);
    }
  }
  const uint64_t flips = Trials(100);
  uint64_t met = 0;
  uint64_t found = 0;
  for (uint64_t i = 0; i < flips; ++i) {
    CopyStore();
    uint64_t place = random() % total;
    size_t file = 0;
    while (place >= files[file].second) place -= files[file++].second;
    const fs::path target = damaged_ / fs::relative(files[file].first, whole_);
    std::string bytes = ReadFile(target);
    bytes[place] = static_cast<char>(bytes[place] ^ (1 << (random() % 8)));
    std::ofstream(target, std::ios::binary | std::ios::trunc) << bytes;
    const Outcome outcome = Judge();
    met += outcome.met ? 1 : 0;
    found += outcome.found ? 1 : 0;
    EXPECT_EQ(outcome.wrong, "") << target << " at " << place;
    EXPECT_TRUE(outcome.found || !outcome.met)
        << target << " at " << place << ": met by reading, not found by verify";
  }
  std::printf("flips: %llu, %llu met by reading, %llu found by verify; seed %llu\n",
              static_cast<unsigned long long>(flips), static_cast<unsigned long long>(met),
              static_cast<unsigned long long>(found), static_cast<unsigned long long>(Seed()) + 1);
  EXPECT_GT(met, flips / 4);  // or most bytes were of no use to anybody
}

// An import that waits for the server and rots meanwhile: taken whole and right, or not at all.
TEST_F(DamageTest, ARottenStagedImportIsRefusedOrLost) {
  constexpr EventPlan kStagedPlan = {.seed = 14, .import_every = 5};
  StoreRun run(kStagedPlan, [&] {
    RocksStoreOptions options = TestStoreOptions(whole_);
    options.role = OwnerRole::kServer;
    return options;
  }());
  ASSERT_TRUE(run.Open().ok());
  ASSERT_TRUE(run.DoEvents(4).ok());
  {
    const auto import = StageImport(TestStoreOptions(whole_), PlannedSpecs());
    ASSERT_TRUE(import.ok()) << import.status();
    const auto committed = FillAndCommit(**import, kStagedPlan, 5);
    ASSERT_TRUE(committed.ok() && committed->staged) << committed.status();
  }
  run.Close();
  PlannedState before(kStagedPlan);
  before.AdvanceTo(4);
  PlannedState after(kStagedPlan);
  after.AdvanceTo(5);
  std::mt19937_64 random(Seed() + 2);
  uint64_t trials = 0;
  uint64_t refused = 0;
  for (const auto& [type, files] : FilesByType(whole_ + "/staging")) {
    for (uint64_t i = 0; i < Trials(15); ++i) {
      CopyStore();
      const fs::path target = damaged_ / fs::relative(files[random() % files.size()], whole_);
      const Kind kind = static_cast<Kind>(i % 3);
      if (!Damage(target, kind, random)) continue;
      ++trials;
      SCOPED_TRACE(absl::StrCat(kKindNames[i % 3], " of ", target.string(), ", trial ", i));
      const auto store = OpenRocksStore(TestStoreOptions(damaged_));
      if (!store.ok()) {
        ++refused;
        EXPECT_TRUE(absl::IsDataLoss(store.status())) << store.status();
        continue;
      }
      if (before.Compare(**store).ok()) {
        ++refused;
        continue;
      }
      Seen seen;
      for (size_t table = 0; table < kPlannedTableCount; ++table)
        FetchAll(**store, table, after, seen);
      EXPECT_EQ(seen.wrong, "");
    }
  }
  std::printf("staged imports: %llu damaged, %llu refused\n",
              static_cast<unsigned long long>(trials), static_cast<unsigned long long>(refused));
  EXPECT_GT(refused, 0u);
}

// The judge itself: a store with one wrong row, correctly checksummed, is called wrong.
TEST_F(DamageTest, TheJudgeFindsAPlantedRow) {
  MakeStore();
  CopyStore();
  {
    const auto store = OpenRocksStore(TestStoreOptions(damaged_));
    ASSERT_TRUE(store.ok());
    const auto table = (*store)->OpenTable(kPlannedTables[0]);
    const Key key = PlannedKey(5);
    std::vector<std::byte> row(kPlannedRowBytes);
    ASSERT_TRUE((*table)
                    ->Write({.upserts = {.keys = {&key, 1},
                                         .rows = {.data = row.data(),
                                                  .row_count = 1,
                                                  .row_bytes = row.size(),
                                                  .stride_bytes = row.size()}}})
                    .ok());
  }
  const Outcome outcome = Judge();
  EXPECT_TRUE(outcome.met);
  EXPECT_FALSE(outcome.found);
  EXPECT_NE(outcome.wrong, "");
}

}  // namespace
}  // namespace hps
