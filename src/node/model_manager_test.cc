#include "node/model_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/public_message.h"
#include "hps/store.h"
#include "node/open_store.h"
#include "node/test_store_files.h"
#include "testing/faults/fault_points.h"
#include "testing/host_device_cache/host_devices.h"

namespace hps {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr size_t kRows = 1000;

// A cache with a callback when a table is opened in it, in the middle of a load.
class ObservedCache final : public DeviceCache {
 public:
  ObservedCache(std::unique_ptr<DeviceCache> cache, const std::function<void()>& on_open)
      : cache_(std::move(cache)), on_open_(on_open) {}

  int device() const override { return cache_->device(); }
  uint64_t TableBytes(size_t row_bytes, uint64_t row_count) const override {
    return cache_->TableBytes(row_bytes, row_count);
  }
  absl::StatusOr<std::unique_ptr<DeviceCacheTable>> OpenTable(size_t row_bytes,
                                                              uint64_t bytes_max) override {
    if (on_open_ != nullptr) on_open_();
    return cache_->OpenTable(row_bytes, bytes_max);
  }
  absl::StatusOr<DeviceCallLease> AcquireCall(size_t keys_max) override {
    return cache_->AcquireCall(keys_max);
  }
  absl::StatusOr<DeviceCallLease> AcquireCallAhead(size_t keys_max) override {
    return cache_->AcquireCallAhead(keys_max);
  }
  absl::Status PinHostMemory(std::span<std::byte> memory) override {
    return cache_->PinHostMemory(memory);
  }
  void UnpinHostMemory(std::span<std::byte> memory) override { cache_->UnpinHostMemory(memory); }
  bool AwaitReturnedCalls() override { return cache_->AwaitReturnedCalls(); }

 private:
  const std::unique_ptr<DeviceCache> cache_;
  const std::function<void()>& on_open_;
};

// Flips the byte in the middle of a file whose name ends so, in a staging directory that was made
// after those of `older`.
void DamageStaged(const std::string& store, const std::string& ending,
                  const std::set<std::filesystem::path>& older = {}) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(store + "/staging")) {
    const std::filesystem::path& path = entry.path();
    if (path.string().ends_with(ending) && !older.contains(path.parent_path()))
      found.push_back(path);
  }
  ASSERT_FALSE(found.empty());
  std::fstream file(found[0], std::ios::in | std::ios::out | std::ios::binary);
  const auto middle = static_cast<std::streamoff>(std::filesystem::file_size(found[0]) / 2);
  file.seekg(middle);
  const int byte = file.get();
  file.seekp(middle);
  file.put(static_cast<char>(~byte));
  ASSERT_TRUE(file.flush());
}

class ModelManagerTest : public StoreFilesTest {
 protected:
  ModelManagerTest() : StoreFilesTest(uint64_t{16} << 20) {
    config_.l2.preload = 1.0;
    // A table takes all of its memory when it is pinned, which is some time after its import.
    config_.l2.pinned_bytes_max = 0;
    config_.l1.bytes_max = uint64_t{1} << 20;
    config_.l1.preload = 1.0;
    devices_.decorate = [this](std::unique_ptr<DeviceCache> cache) {
      return std::make_unique<ObservedCache>(std::move(cache), on_open_);
    };
  }

  // Keys 0 to kRows - 1, whose every element is `value`.
  void Import(const std::string& table, float value, uint32_t dim = kTestDim) {
    StoreFilesTest::Import(Files(table, kRows, value, dim));
  }
  // Stages an import and corrupts it. REQUIRES: the store is open.
  void ImportDamaged(const std::string& table, float value) {
    std::set<std::filesystem::path> older;
    for (const auto& entry : std::filesystem::directory_iterator(config_.store.path + "/staging"))
      older.insert(entry.path());
    Import(table, value);
    DamageStaged(config_.store.path, ".rows", older);
  }
  void Open(OpenMode mode = OpenMode::kServe) {
    auto store = OpenStore(config_, mode, devices_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  // The first element of key 1's row, or the error.
  static absl::StatusOr<float> Ask(LookupSession& session, uint32_t dim = 4) {
    const Key key = 1;
    std::vector<float> row(dim);
    const HostTableQuery query = {.table = {0},
                                  .keys = std::span<const Key>(&key, 1),
                                  .rows = std::as_writable_bytes(std::span(row)),
                                  .status = {}};
    const absl::Status status = session.Lookup(
        HostLookupRequest{.queries = {&query, 1}, .timeout = std::chrono::minutes(1)}, nullptr);
    if (!status.ok()) return status;
    return row[0];
  }
  absl::StatusOr<float> AskNow(const std::string& model, uint32_t dim = 4) {
    auto session = store_->NewSession(model, {});
    if (!session.ok()) return session.status();
    return Ask(**session, dim);
  }
  // Bytes that the tables of a model hold in levels 1 and 2.
  std::pair<uint64_t, uint64_t> BytesOf(const std::string& model) {
    std::pair<uint64_t, uint64_t> bytes;
    for (const TableStatistics& table : store_->Statistics().tables) {
      if (!table.name.starts_with(model + "/")) continue;
      bytes.first += table.l1.bytes_used;
      bytes.second += table.l2.bytes_used;
    }
    return bytes;
  }
  ModelInfo InfoOf(const std::string& model) {
    for (ModelInfo& info : store_->models().List()) {
      if (info.name == model) return info;
    }
    return {};
  }

  std::function<void()> on_open_;  // while a load opens a table in level 1
  HostDevices devices_;
  std::unique_ptr<Store> store_;
};

TEST_F(ModelManagerTest, AServersStoreLoadsNothingByItself) {
  Import("a/t", 1);
  Import("b/t", 2);
  Open();
  EXPECT_THAT(store_->models().List(), ::testing::SizeIs(2));
  EXPECT_EQ(InfoOf("a").condition, ModelCondition::kNotLoaded);
  EXPECT_EQ(InfoOf("a").version, 0u);
  EXPECT_EQ(AskNow("a").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(AskNow("c").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(store_->models().Load("b").ok());
  EXPECT_EQ(*AskNow("b"), 2);
  EXPECT_EQ(InfoOf("a").condition, ModelCondition::kNotLoaded);
  ASSERT_TRUE(store_->models().LoadAll().ok());
  EXPECT_EQ(InfoOf("a").condition, ModelCondition::kLoaded);
  EXPECT_EQ(*AskNow("a"), 1);
  EXPECT_THAT(store_->models().devices(), ElementsAre(Field(&LookupDevice::number, 0)));
}

// Catches: waiting for a model without tables.
TEST_F(ModelManagerTest, AModelThatHasLostItsTablesIsNotWaitedFor) {
  Import("a/t", 1);
  Import("a/u", 1);
  Import("b/t", 2);
  Open();
  ASSERT_TRUE(store_->models().LoadAll().ok());
  ASSERT_TRUE(store_->Drop("a/t").ok());
  EXPECT_EQ(InfoOf("a").condition, ModelCondition::kLoaded) << "with the other table";
  ASSERT_TRUE(store_->Drop("a/u").ok());
  EXPECT_EQ(InfoOf("a").condition, ModelCondition::kDropped);
  EXPECT_EQ(AskNow("a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->models().Load("a").code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store_->models().LoadAll().ok());
  EXPECT_EQ(InfoOf("a").condition, ModelCondition::kDropped);
  EXPECT_EQ(InfoOf("b").condition, ModelCondition::kLoaded);

  Import("a/t", 3);  // staged: this process has the store
  ASSERT_TRUE(store_->models().Load("a").ok());
  EXPECT_EQ(InfoOf("a").condition, ModelCondition::kLoaded);
  EXPECT_EQ(*AskNow("a"), 3);
}

// Catches: a model reported as not in the store while it is being loaded again.
TEST_F(ModelManagerTest, AModelThatIsBeingLoadedAgainIsNotUnknown) {
  Import("a/t", 1);
  Open();
  ASSERT_TRUE(store_->models().Load("a").ok());
  ASSERT_TRUE(store_->models().Unload("a", std::chrono::seconds(30)).ok());
  absl::Status meanwhile;
  on_open_ = [&] { meanwhile = AskNow("a").status(); };
  ASSERT_TRUE(store_->models().Load("a").ok());
  on_open_ = nullptr;
  EXPECT_EQ(TextForLog(meanwhile), "UNAVAILABLE: model 'a' is not loaded yet");
  EXPECT_EQ(*AskNow("a"), 1);
}

// Catches: a load that reports success although its staged import was discarded.
TEST_F(ModelManagerTest, ALoadSaysThatWhatWasStagedForItIsLost) {
  Import("a/t", 1);
  Import("b/t", 1);
  Open();
  ASSERT_TRUE(store_->models().LoadAll().ok());
  const auto expect_lost = [this](const std::string& model) {
    const absl::Status loaded = store_->models().Load(model);
    EXPECT_EQ(loaded.code(), absl::StatusCode::kFailedPrecondition) << loaded;
    EXPECT_THAT(std::string(loaded.message()), HasSubstr("model '" + model + "'"));
    EXPECT_THAT(std::string(loaded.message()), testing::Not(HasSubstr(config_.store.path)));
    EXPECT_EQ(*AskNow(model), 1) << "the old rows are served";
    EXPECT_TRUE(store_->models().Load(model).ok()) << "it is said once";
  };
  Import("a/t", 2);
  DamageStaged(config_.store.path, ".rows");
  EXPECT_TRUE(store_->models().Load("b").ok()) << "it is another model's";
  expect_lost("a");

  Import("b/t", 2);
  DamageStaged(config_.store.path, "manifest");
  expect_lost("b");

  Import("c/t", 1);
  Import("c/t", 2, 8);  // of another shape than the one that is taken before it
  expect_lost("c");

  // What is imported again after it was lost is there.
  Import("a/t", 2);
  DamageStaged(config_.store.path, ".rows");
  EXPECT_TRUE(store_->models().Load("b").ok());
  Import("a/t", 3);
  EXPECT_TRUE(store_->models().Load("a").ok());
  EXPECT_EQ(*AskNow("a"), 3);
  EXPECT_TRUE(store_->models().Load("a").ok());

  // The newer of two imports had replaced the older one before it was damaged.
  Import("a/t", 4);
  ImportDamaged("a/t", 5);
  EXPECT_EQ(store_->models().Load("a").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*AskNow("a"), 3);
  // In the other order nothing is lost.
  ImportDamaged("a/t", 6);
  Import("a/t", 7);
  EXPECT_TRUE(store_->models().Load("a").ok());
  EXPECT_EQ(*AskNow("a"), 7);
}

// Catches: losses judged by the model's version.
TEST_F(ModelManagerTest, ALossIsTheTablesOwn) {
  Import("a/t", 1);
  Import("a/u", 1);
  Open();
  ASSERT_TRUE(store_->models().LoadAll().ok());
  // The model has a new version when it is loaded, but not of this table.
  ImportDamaged("a/t", 2);
  ASSERT_TRUE(store_->models().LoadAll().ok());
  Import("a/u", 2);
  EXPECT_EQ(store_->models().Load("a").code(), absl::StatusCode::kFailedPrecondition);
  // The table was imported again and switched to before the load.
  ImportDamaged("a/t", 3);
  ASSERT_TRUE(store_->models().LoadAll().ok());
  ASSERT_TRUE(store_->Import(Files("a/t", kRows, 4)).ok());
  EXPECT_TRUE(store_->models().Load("a").ok());
  EXPECT_EQ(*AskNow("a"), 4);
  // The table was dropped.
  ImportDamaged("a/u", 5);
  ASSERT_TRUE(store_->Drop("a/u").ok());
  EXPECT_TRUE(store_->models().Load("a").ok());
}

TEST_F(ModelManagerTest, ALossIsToldByTheLoadThatComesToItsEnd) {
  Import("a/t", 1);
  Open();
  ASSERT_TRUE(store_->models().Load("a").ok());
  ImportDamaged("a/t", 2);
  Import("a/u", 2);
  FaultPoints::Arm("l3.import.before_families",
                   {.action = FaultAction::kFail,
                    .status = absl::ResourceExhaustedError("planned: no space"),
                    .times = 1});
  EXPECT_EQ(store_->models().Load("a").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store_->models().Load("a").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(store_->models().Load("a").ok());
}

// Catches: a server that serves nothing after a restart because one import has no room.
TEST_F(ModelManagerTest, WhatIsThereIsLoadedWhileAnImportCantBeTaken) {
  Import("a/t", 1);
  Open();
  Import("a/t", 2);
  store_.reset();
  const auto refuse = [](uint64_t times) {
    FaultPoints::Arm("l3.import.before_families",
                     {.action = FaultAction::kFail,
                      .status = absl::ResourceExhaustedError("planned: no space"),
                      .times = times});
  };
  refuse(2);  // as it is opened, and as all is loaded
  Open();
  EXPECT_TRUE(store_->models().LoadAll().ok());
  EXPECT_EQ(*AskNow("a"), 1);
  EXPECT_TRUE(store_->models().Load("a").ok());
  EXPECT_EQ(*AskNow("a"), 2);

  Import("b/t", 3);
  ASSERT_TRUE(store_->models().Unload("a", std::chrono::seconds(30)).ok());
  refuse(1);
  EXPECT_TRUE(store_->models().Load("a").ok()) << "the import was another model's";
  EXPECT_EQ(*AskNow("a"), 2);
}

// Catches: a load that succeeds because the import of another model could be committed.
TEST_F(ModelManagerTest, OfTwoImportsEachModelsLoadReportsItsOwn) {
  Import("a/t", 1);
  Import("b/t", 1);
  Open();
  ASSERT_TRUE(store_->models().LoadAll().ok());
  for (const auto& [first, second] : {std::pair("a", "b"), std::pair("b", "a")}) {
    SCOPED_TRACE(first);
    for (const std::string model : {"a", "b"}) Import(model + "/t", *AskNow(model) + 1);
    const float before = *AskNow("b");
    FaultPoints::Arm("l3.import.before_families",  // of the oldest one, which is a's
                     {.action = FaultAction::kFail,
                      .status = absl::ResourceExhaustedError("planned: no space"),
                      .times = 1});
    const absl::Status loaded = store_->models().Load(first);
    if (std::string(first) == "b") {
      EXPECT_TRUE(loaded.ok()) << loaded;
      EXPECT_EQ(*AskNow("b"), before + 1);
    } else {
      EXPECT_EQ(loaded.code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(std::string(loaded.message()), HasSubstr("model 'a'"));
    }
    EXPECT_TRUE(store_->models().Load("a").ok());
    EXPECT_TRUE(store_->models().Load("b").ok());
  }
}

// Catches: a server that is ready with nothing to serve.
TEST_F(ModelManagerTest, AnImportThatCantBeTakenIsToldWhereNothingElseIsThere) {
  Import("a/t", 0);
  Open();
  ASSERT_TRUE(store_->Drop("a/t").ok());
  Import("a/t", 1);
  FaultPoints::Arm("l3.import.before_families",
                   {.action = FaultAction::kFail,
                    .status = absl::ResourceExhaustedError("planned: no space"),
                    .times = 1});
  EXPECT_EQ(store_->models().LoadAll().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store_->models().LoadAll().ok());
  EXPECT_EQ(*AskNow("a"), 1);
}

TEST_F(ModelManagerTest, ANewModelIsNotUnknownWhereItsImportIsLost) {
  Import("a/t", 1);
  Open();
  ASSERT_TRUE(store_->models().LoadAll().ok());
  ImportDamaged("c/t", 2);
  ImportDamaged("c/u", 2);
  const absl::Status loaded = store_->models().Load("c");
  EXPECT_EQ(loaded.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(loaded.message()), HasSubstr("and was discarded (and 1 more)"));
  EXPECT_THAT(std::string(loaded.message()), HasSubstr("It has no tables: import it again"));
  EXPECT_EQ(store_->models().Load("c").code(), absl::StatusCode::kNotFound);
}

// The model of the import is unknown, so a later import of a table does not make up for it.
TEST_F(ModelManagerTest, AnImportThatNobodyCanReadIsToldAlsoAfterANewerOne) {
  Import("a/t", 1);
  Open();
  ASSERT_TRUE(store_->models().LoadAll().ok());
  Import("b/t", 2);
  DamageStaged(config_.store.path, "manifest");
  ASSERT_TRUE(store_->models().LoadAll().ok());
  Import("a/t", 3);
  EXPECT_EQ(store_->models().Load("a").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*AskNow("a"), 3);
  EXPECT_EQ(store_->models().Load("b").code(), absl::StatusCode::kNotFound);
}

// Catches: an unknown name that is treated as a known one, and an unreported loss of a first
// import.
TEST_F(ModelManagerTest, AnImportThatNobodyCanReadIsToldToAnUnknownModelToo) {
  Import("a/t", 1);
  Open();
  ASSERT_TRUE(store_->models().LoadAll().ok());
  Import("b/t", 2);
  DamageStaged(config_.store.path, "manifest");
  const absl::Status lost = store_->models().Load("b");
  EXPECT_EQ(lost.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("'b'"));
  EXPECT_THAT(std::string(lost.message()),
              HasSubstr("a staged import of this or another model was corrupt and was discarded"));
  Import("b/t", 3);
  EXPECT_TRUE(store_->models().Load("b").ok());
  EXPECT_EQ(*AskNow("b"), 3);
  const absl::Status unknown = store_->models().Load("c");
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), Not(HasSubstr("staged")));
}

TEST_F(ModelManagerTest, WhatIsLostWhenTheStoreIsOpenedIsTold) {
  Import("a/t", 1);
  Open();
  ImportDamaged("a/t", 2);
  store_.reset();
  Open();
  ASSERT_TRUE(store_->models().LoadAll().ok());
  EXPECT_EQ(store_->models().Load("a").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*AskNow("a"), 1);
  EXPECT_TRUE(store_->models().Load("a").ok());
}

TEST_F(ModelManagerTest, WhatTheConfigurationNamesMustBeThere) {
  Import("a/t", 1);
  config_.model = {{.name = "aa"}};
  const auto store = OpenStore(config_, OpenMode::kServe, devices_);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("did you mean 'a'"));
}

TEST_F(ModelManagerTest, UnloadGivesBackWhatTheLevelsHold) {
  Import("a/t", 1);
  Import("b/t", 2);
  Open(OpenMode::kReadWrite);
  auto old = store_->NewSession("a", {});
  ASSERT_TRUE(old.ok());
  const auto before = BytesOf("b");
  EXPECT_GT(BytesOf("a").first, 0u);
  EXPECT_GT(BytesOf("a").second, 0u);
  ASSERT_TRUE(store_->models().Unload("a", std::chrono::seconds(30)).ok());
  EXPECT_EQ(BytesOf("a"), std::pair(uint64_t{0}, uint64_t{0}));
  EXPECT_EQ(BytesOf("b"), before);
  EXPECT_EQ(Ask(**old).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(AskNow("a").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store_->models().Open("a").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(InfoOf("a").condition, ModelCondition::kUnloaded);
  EXPECT_EQ(InfoOf("a").version, 1u);
  EXPECT_TRUE(store_->models().LoadAll().ok());
  EXPECT_EQ(InfoOf("a").condition, ModelCondition::kUnloaded) << "only a load brings it back";
  EXPECT_EQ(*AskNow("b"), 2);

  ASSERT_TRUE(store_->models().Load("a").ok());
  EXPECT_EQ(*AskNow("a"), 1);
  EXPECT_EQ(*Ask(**old), 1) << "an old session goes on";
  EXPECT_EQ(InfoOf("a").version, 1u) << "the same rows";
  EXPECT_GT(BytesOf("a").first, 0u);
  EXPECT_GT(BytesOf("a").second, 0u);
}

TEST_F(ModelManagerTest, UnloadAndLoadOfWhatIsNotThere) {
  Import("a/t", 1);
  Open();
  EXPECT_EQ(store_->models().Load("aa").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->models().Unload("aa", std::chrono::seconds(30)).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->models().Open("aa").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store_->models().Unload("a", std::chrono::seconds(30)).ok())
      << "it waits to be loaded; now it does not";
  EXPECT_EQ(InfoOf("a").condition, ModelCondition::kUnloaded);
  EXPECT_TRUE(store_->models().LoadAll().ok());
  EXPECT_EQ(InfoOf("a").condition, ModelCondition::kUnloaded);
}

// Catches: versions that began at 1 after a restart, so that a client saw an older one.
TEST_F(ModelManagerTest, AVersionSurvivesARestart) {
  const auto reopen = [&](OpenMode mode) {
    store_.reset();
    Open(mode);
    if (mode == OpenMode::kServe) {
      EXPECT_TRUE(store_->models().LoadAll().ok());
    }
  };
  Import("a/t", 1);
  Import("b/t", 1);
  Import("a/t", 2);
  Open(OpenMode::kReadWrite);
  EXPECT_EQ(InfoOf("a").version, 2u);
  EXPECT_EQ(InfoOf("b").version, 1u) << "each model counts its own changes";
  Import("a/t", 3);  // staged
  ASSERT_TRUE(store_->models().Load("a").ok());
  Import("a/u", 4);
  ASSERT_TRUE(store_->models().Load("a").ok());
  EXPECT_EQ(InfoOf("a").version, 4u);
  for (const OpenMode mode : {OpenMode::kServe, OpenMode::kReadWrite, OpenMode::kReadOnly}) {
    reopen(mode);
    EXPECT_EQ(InfoOf("a").version, 4u);
    EXPECT_EQ(InfoOf("b").version, 1u);
  }
  reopen(OpenMode::kReadWrite);
  ASSERT_TRUE(store_->Drop("a/u").ok());
  EXPECT_EQ(InfoOf("a").version, 5u) << "a drop is a change";
  reopen(OpenMode::kReadWrite);
  EXPECT_EQ(InfoOf("a").version, 5u);
  EXPECT_EQ(*AskNow("a"), 3);
}

TEST_F(ModelManagerTest, AHandleKeepsItsVersion) {
  Import("a/t", 1);
  Open(OpenMode::kReadWrite);
  auto held = store_->models().Open("a");
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ((*held)->version(), 1u);
  EXPECT_EQ((*held)->tables()[0].name, "a/t");
  auto session = (*held)->NewSession({});
  ASSERT_TRUE(session.ok());

  Import("a/t", 2);  // staged: this process has the store
  EXPECT_EQ(*AskNow("a"), 1);
  ASSERT_TRUE(store_->models().Load("a").ok());
  EXPECT_EQ(*AskNow("a"), 2);
  EXPECT_EQ(*Ask(**session), 1);
  EXPECT_EQ(*Ask(**(*held)->NewSession({})), 1) << "also a new session of it";
  EXPECT_EQ(InfoOf("a").version, 2u);

  // Another shape, then dropped: the handle keeps its version.
  ASSERT_TRUE(store_->Drop("a/t").ok());
  EXPECT_EQ(*Ask(**session), 1);
  Import("a/t", 3, 8);
  ASSERT_TRUE(store_->models().Load("a").ok());
  EXPECT_EQ(*AskNow("a", 8), 3);
  EXPECT_EQ(*Ask(**session), 1);

  // Unload waits for the handle and returns an error if it is not released in time.
  EXPECT_EQ(store_->models().Unload("a", std::chrono::milliseconds(10)).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(*Ask(**session), 1);
  session->reset();
  held->reset();
  EXPECT_TRUE(store_->models().Unload("a", std::chrono::minutes(1)).ok());
}

TEST_F(ModelManagerTest, HandlesAndSessionsKeepTheStoreOpen) {
  Import("a/t", 1);
  Open(OpenMode::kReadWrite);
  auto held = store_->models().Open("a");
  ASSERT_TRUE(held.ok()) << held.status();
  auto session = store_->NewSession("a", {});
  ASSERT_TRUE(session.ok()) << session.status();
  store_.reset();
  EXPECT_EQ(*Ask(**session), 1);
  session->reset();
  auto pinned = (*held)->NewSession({});
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  held->reset();
  EXPECT_EQ(*Ask(**pinned), 1);
  EXPECT_EQ(OpenStore(config_, OpenMode::kReadWrite, devices_).status().code(),
            absl::StatusCode::kUnavailable)
      << "the session holds the lock";
  pinned->reset();
  EXPECT_TRUE(OpenStore(config_, OpenMode::kReadWrite, devices_).ok());
}

TEST_F(ModelManagerTest, AProcessThatEndsFillsNothing) {
  Import("a/t", 1);
  Open();
  store_->models().StopPreloading();
  ASSERT_TRUE(store_->models().Load("a").ok());
  EXPECT_EQ(store_->Statistics().tables.at(0).l2.entries, 0u);
  EXPECT_EQ(*AskNow("a"), 1);
}

TEST_F(ModelManagerTest, ALoadSwitchesItsModelAlone) {
  Import("a/t", 1);
  Import("b/t", 2);
  Open(OpenMode::kReadWrite);
  const auto bytes = BytesOf("b");
  Import("a/t", 3);
  Import("b/t", 4);
  ASSERT_TRUE(store_->models().Load("a").ok());
  EXPECT_EQ(*AskNow("a"), 3);
  EXPECT_EQ(*AskNow("b"), 2) << "committed, but not switched to";
  EXPECT_EQ(InfoOf("b").version, 1u);
  EXPECT_EQ(BytesOf("b"), bytes);
  ASSERT_TRUE(store_->models().Load("b").ok());
  EXPECT_EQ(*AskNow("b"), 4);
  EXPECT_EQ(InfoOf("b").version, 2u);
}

}  // namespace
}  // namespace hps
