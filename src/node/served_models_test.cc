#include "node/served_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "testing/fakes/manual_executor.h"
#include "testing/fakes/plain_tier.h"

namespace hps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using Missing = ServedModels::Missing;

constexpr uint32_t kDim = 4;
constexpr uint64_t kRowBytes = kDim * sizeof(float);
constexpr uint64_t kLeastBytes = 100;

// A store whose tables the test adds, changes, removes and lets fail. For one thread.
class TestStore final : public DurableStore {
 public:
  // Makes a new incarnation; its position among the tables is unchanged.
  void Put(const std::string& name, uint64_t row_count) {
    auto found = std::find_if(tables_.begin(), tables_.end(),
                              [&](const TableInfo& table) { return table.spec.name == name; });
    if (found == tables_.end()) found = tables_.insert(tables_.end(), TableInfo{});
    found->spec = {.name = name, .dim = kDim};
    found->incarnation = ++incarnations_;
    found->row_count = row_count;
  }

  absl::StatusOr<std::vector<TableInfo>> Tables() const override { return tables_; }

  absl::StatusOr<std::optional<ModelNetwork>> Network(const std::string&) const override {
    return std::optional<ModelNetwork>();
  }

  absl::StatusOr<std::unique_ptr<DurableTable>> OpenTable(const std::string& name) override {
    if (on_open) on_open(name);
    if (damaged.contains(name)) return absl::DataLossError("damaged: " + name);
    for (const TableInfo& info : tables_) {
      if (info.spec.name != name) continue;
      auto table = std::make_unique<PlainDurableTable>(info.spec, info.incarnation);
      std::vector<Key> keys(info.row_count);
      std::iota(keys.begin(), keys.end(), Key{0});
      std::vector<std::byte> bytes(info.row_count * kRowBytes);
      const HostRows rows = {.data = bytes.data(),
                             .row_count = info.row_count,
                             .row_bytes = kRowBytes,
                             .stride_bytes = kRowBytes};
      HPS_RETURN_IF_ERROR(table->Write({.upserts = {.keys = keys, .rows = rows}}));
      return table;
    }
    return absl::NotFoundError("no table " + name);
  }

  absl::Status Drop(const std::string& name) override {
    std::erase_if(tables_, [&](const TableInfo& table) { return table.spec.name == name; });
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<BulkImport>> BeginImport(std::span<const TableSpec>) override {
    return absl::UnimplementedError("BeginImport");
  }
  absl::StatusOr<RefreshResult> Refresh() override { return RefreshResult{}; }
  std::vector<RejectedImport> TakeRejectedImports(const std::string&) override { return {}; }
  absl::StatusOr<uint64_t> Snapshot(const std::string&) override {
    return absl::UnimplementedError("Snapshot");
  }
  absl::Status Sync() override { return absl::OkStatus(); }
  DurableStatistics Statistics() const override { return {}; }

  std::set<std::string> damaged;
  std::function<void(const std::string& table)> on_open;

 private:
  std::vector<TableInfo> tables_;
  Incarnation incarnations_ = 0;
};

// Counts posted tasks: a model posts one to reclaim memory at each switch.
class CountingExecutor final : public Executor {
 public:
  absl::Status Post(Task* task) override {
    ++posted;
    return executor.Post(task);
  }
  bool Await(Latch& latch, Deadline deadline) override { return executor.Await(latch, deadline); }
  const Clock& clock() const override { return executor.clock(); }
  size_t thread_count() const override { return executor.thread_count(); }
  size_t queued_count() const override { return executor.queued_count(); }

  ManualExecutor executor;
  int posted = 0;
};

// As PlainLossyTier, but a table needs a budget.
class NeedyTier final : public LossyTier {
 public:
  absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec& spec,
                                                        Incarnation incarnation,
                                                        uint64_t bytes_max) override {
    if (bytes_max == 0) return absl::ResourceExhaustedError("no budget");
    return PlainLossyTier().OpenTable(spec, incarnation, bytes_max);
  }
  void Fetch(std::span<TableFetch> fetches, Deadline deadline) override {
    FetchEach(fetches, deadline);
  }
};

class ServedModelsTest : public ::testing::Test {
 protected:
  ServedModelsTest() {
    config_.l2.bytes_max = 10'000;
    l2_.parts.push_back({.tier = std::make_unique<PlainLossyTier>(),
                         .bytes_for = [](uint64_t row_count, size_t row_bytes) {
                           return kLeastBytes + row_count * row_bytes;
                         }});
    SessionFactory::Options options;
    options.fetch_executor = &executor_;
    options.promote_executor = &executor_;
    sessions_ = *SessionFactory::Create(options);
    registry_ = std::make_unique<ModelRegistry>(sessions_->epoch_domain(), executor_);
    models_ = std::make_unique<ServedModels>(ServedModels::Parts{.config = &config_,
                                                                 .durable = &store_,
                                                                 .l2 = &l2_,
                                                                 .sessions = sessions_.get(),
                                                                 .registry = registry_.get()});
  }
  ~ServedModelsTest() override { executor_.executor.RunAll(); }

  ServedModels::ModelErrors Switch(Missing missing = Missing::kIgnored) {
    const auto errors = models_->Switch(missing);
    EXPECT_TRUE(errors.ok()) << errors.status();
    executor_.executor.RunAll();
    return errors.ok() ? *errors : ServedModels::ModelErrors{};
  }

  // The budget of every served table.
  std::map<std::string, uint64_t> Budgets() {
    std::map<std::string, uint64_t> budgets;
    uint64_t sum = 0;
    for (const TableStatistics& table : models_->Statistics()) {
      budgets[table.name] = table.l2.bytes_max;
      sum += table.l2.bytes_max;
    }
    EXPECT_LE(sum, config_.l2.bytes_max);
    return budgets;
  }

  static constexpr uint64_t Need(uint64_t row_count) { return kLeastBytes + row_count * kRowBytes; }

  Config config_;
  TestStore store_;
  L2Tiers l2_;
  CountingExecutor executor_;
  std::unique_ptr<SessionFactory> sessions_;
  std::unique_ptr<ModelRegistry> registry_;
  std::unique_ptr<ServedModels> models_;
};

TEST_F(ServedModelsTest, ModelsThatAreLoadedTogetherDivideTheLevel) {
  store_.Put("big/t", 5'000);
  store_.Put("new/t", 5'000);
  store_.Put("small/t", 10);
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(),
              ElementsAre(Pair("big/t", 4'870), Pair("new/t", 4'870), Pair("small/t", Need(10))));
}

// As Triton loads them, in any order.
TEST_F(ServedModelsTest, ModelsThatAreLoadedOneByOneDivideTheLevelToo) {
  store_.Put("a/t", 5'000);
  store_.Put("b/t", 5'000);
  store_.Put("c/t", 5'000);
  EXPECT_TRUE(models_->Load("b").ok());
  EXPECT_TRUE(models_->Load("a").ok());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", 3'333), Pair("b/t", 3'333)));
  EXPECT_TRUE(models_->Unload("b").ok());
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", 3'333), Pair("c/t", 6'667)));
}

TEST_F(ServedModelsTest, AModelThatCouldNotBeLoadedAtTheStartKeepsItsPart) {
  store_.Put("a/t", 5'000);
  store_.Put("b/t", 5'000);
  store_.damaged = {"b/t"};
  EXPECT_EQ(Switch().size(), 1u);
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", 5'000)));
  store_.damaged.clear();
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", 5'000), Pair("b/t", 5'000)));
}

// Catches: a model without budget that makes every switch fail, and a table that is served and is
// created again, or emptied, for the sake of another.
TEST_F(ServedModelsTest, ALaterModelGetsWhatIsFree) {
  config_.l2.preload = 1.0;
  store_.Put("first/t", 100);
  EXPECT_TRUE(Switch().empty());
  store_.Put("second/t", 5'000);
  EXPECT_TRUE(Switch().empty());
  store_.Put("third/t", 5'000);
  EXPECT_TRUE(Switch().empty());
  const uint64_t rest = 10'000 - Need(100);
  EXPECT_THAT(Budgets(),
              ElementsAre(Pair("first/t", Need(100)), Pair("second/t", rest), Pair("third/t", 0)));
  EXPECT_EQ(executor_.posted, 3) << "one publication of each";
  EXPECT_EQ(models_->Statistics()[0].l2.entries, 100u);
  EXPECT_TRUE(models_->NewSession("third", {}).ok());
}

// What the warning advises.
TEST_F(ServedModelsTest, AModelThatFoundNoRoomIsLoadedBeforeWhatHeldIt) {
  store_.Put("big/t", 5'000);
  EXPECT_TRUE(Switch().empty());
  store_.Put("new/t", 100);
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("big/t", 10'000), Pair("new/t", 0)));
  EXPECT_TRUE(models_->Load("new").ok());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("big/t", 10'000), Pair("new/t", 0))) << "it is served";
  for (const char* model : {"new", "big"}) EXPECT_TRUE(models_->Unload(model).ok());
  for (const char* model : {"new", "big"}) EXPECT_TRUE(models_->Load(model).ok());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("big/t", 10'000 - Need(100)), Pair("new/t", Need(100))));
}

TEST_F(ServedModelsTest, ANewImportGetsWhatItsOldTablesLeave) {
  store_.Put("a/t", 5'000);
  store_.Put("a/u", 5'000);
  store_.Put("b/t", 5'000);
  EXPECT_TRUE(Switch().empty());
  const auto other = Pair("b/t", 3'334);
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", 3'333), Pair("a/u", 3'333), other));
  // Both of its tables; then one, beside one that is kept; then one that the store has no more.
  store_.Put("a/t", 6'000);
  store_.Put("a/u", 6'000);
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", 3'333), Pair("a/u", 3'333), other));
  store_.Put("a/t", 10);
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", Need(10)), Pair("a/u", 3'333), other));
  EXPECT_TRUE(store_.Drop("a/u").ok());
  store_.Put("a/t", 6'000);
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", 6'666), other));
}

// Catches: a table that keeps the budget of its old size.
TEST_F(ServedModelsTest, AnImportedTableIsGivenBytesForItsNewSize) {
  store_.Put("a/t", 100);
  store_.Put("b/t", 100);
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", Need(100)), Pair("b/t", Need(100))));
  store_.Put("a/t", 300);
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", Need(300)), Pair("b/t", Need(100))));
  store_.Put("a/t", 10);
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", Need(10)), Pair("b/t", Need(100))));
}

TEST_F(ServedModelsTest, ATableThatIsNotTouchedKeepsItsRows) {
  config_.l2.preload = 1.0;
  store_.Put("a/t", 100);
  store_.Put("a/u", 100);
  EXPECT_TRUE(Switch().empty());
  config_.l2.preload = 0.0;
  store_.Put("a/u", 50);
  store_.Put("b/t", 50);
  EXPECT_TRUE(Switch().empty());
  for (const TableStatistics& table : models_->Statistics())
    EXPECT_EQ(table.l2.entries, table.name == "a/t" ? 100u : 0u) << table.name;
}

TEST_F(ServedModelsTest, WhereNothingIsLeftATableIsServedWithoutTheLevel) {
  config_.l2.bytes_max = 150;
  store_.Put("a/t", 5);
  EXPECT_TRUE(Switch().empty());
  store_.Put("b/t", 5);
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", 150), Pair("b/t", 0)));
  EXPECT_TRUE(models_->NewSession("b", {}).ok());
  // A table that is served stays as it is, also where memory becomes free.
  EXPECT_TRUE(store_.Drop("a/t").ok());
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("b/t", 0)));
  store_.Put("b/t", 6);
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("b/t", 150)));
}

TEST_F(ServedModelsTest, OfALevelOfTwoPartsATableWithoutBudgetHasTheSecondOne) {
  l2_.parts[0].tier = std::make_unique<NeedyTier>();
  l2_.parts.push_back({.tier = std::make_unique<PlainLossyTier>()});
  const auto rows_in_parts = [this](const std::string& model) {
    std::vector<uint64_t> rows;
    for (const L2Part& part : registry_->Find(model)->Tables()[0]->l2())
      rows.push_back(part.table().Statistics().entries);
    return rows;
  };
  config_.l2.bytes_max = 150;
  config_.l2.preload = 1.0;
  store_.Put("a/t", 5);
  EXPECT_TRUE(Switch().empty());
  store_.Put("b/t", 5);
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", 150), Pair("b/t", 0)));
  EXPECT_THAT(rows_in_parts("a"), ElementsAre(5, 5)) << "both are preloaded";
  EXPECT_THAT(rows_in_parts("b"), ElementsAre(5));
}

TEST_F(ServedModelsTest, ADamagedTableStopsOnlyItsModel) {
  store_.Put("a/t", 10);
  store_.Put("b/t", 10);
  store_.Put("b/u", 10);
  EXPECT_TRUE(Switch().empty());
  store_.Put("a/t", 20);
  store_.Put("b/t", 20);
  store_.Put("c/t", 20);
  store_.Put("d/t", 20);
  store_.damaged = {"b/t", "c/t"};
  const ServedModels::ModelErrors errors = Switch();
  ASSERT_EQ(errors.size(), 2u);
  for (const auto& [model, error] : errors) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(error.message()), HasSubstr("model '" + model + "'"));
    EXPECT_THAT(std::string(error.message()), HasSubstr("damaged: " + model + "/t"));
  }
  EXPECT_THAT(Budgets(), ElementsAre(Pair("a/t", Need(20)), Pair("b/t", Need(10)),
                                     Pair("b/u", Need(10)), Pair("d/t", Need(20))));
  EXPECT_TRUE(models_->NewSession("b", {}).ok());  // its old tables
  EXPECT_EQ(models_->NewSession("c", {}).status().code(), absl::StatusCode::kDataLoss);
  store_.damaged.clear();
  EXPECT_TRUE(Switch().empty());
  EXPECT_TRUE(models_->NewSession("c", {}).ok());
  EXPECT_EQ(Budgets()["b/t"], Need(20));
}

// A model that cannot switch keeps its tables and their budgets.
TEST_F(ServedModelsTest, WhatADamagedTableHoldsIsNotGivenAway) {
  store_.Put("big/t", 5'000);
  EXPECT_TRUE(Switch().empty());
  store_.damaged = {"big/t"};
  store_.Put("big/t", 6'000);
  store_.Put("new/t", 5'000);
  EXPECT_EQ(Switch().size(), 1u);
  EXPECT_THAT(Budgets(), ElementsAre(Pair("big/t", 10'000), Pair("new/t", 0)));
  store_.damaged.clear();
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(), ElementsAre(Pair("big/t", 10'000), Pair("new/t", 0)));
}

TEST_F(ServedModelsTest, WhatHasNotChangedIsNotPublishedAgain) {
  store_.Put("a/t", 10);
  store_.Put("b/t", 10);
  EXPECT_TRUE(Switch().empty());
  EXPECT_EQ(executor_.posted, 2);
  EXPECT_TRUE(store_.Drop("a/t").ok());
  EXPECT_TRUE(Switch().empty());
  EXPECT_EQ(executor_.posted, 3);
  EXPECT_EQ(models_->NewSession("a", {}).status().code(), absl::StatusCode::kNotFound);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Switch().empty());
  EXPECT_EQ(executor_.posted, 3);
}

// Catches: a follower that is not told of an unload, or is told of another model's switch; one that
// is called when its handle is gone; an error of it that nobody hears of.
TEST_F(ServedModelsTest, AFollowerIsToldOfEachSwitchOfItsModel) {
  store_.Put("a/t", 10);
  store_.Put("b/t", 10);
  int calls = 0;
  absl::Status answer;
  std::shared_ptr<void> handle = models_->Follow("a", [&] {
    ++calls;
    return answer;
  });
  EXPECT_TRUE(Switch().empty());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(models_->Load("b").ok());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(models_->Unload("a").ok());
  EXPECT_EQ(calls, 2);
  answer = absl::ResourceExhaustedError("planted");
  EXPECT_EQ(models_->Load("a"), answer);
  EXPECT_TRUE(models_->Pin("a").ok()) << "its tables have switched nevertheless";
  EXPECT_TRUE(Switch().empty()) << "nothing has changed";
  EXPECT_EQ(calls, 3);
  store_.Put("a/t", 20);
  EXPECT_THAT(Switch(), ElementsAre(Pair("a", answer)));
  handle.reset();
  EXPECT_TRUE(models_->Load("a").ok());
  EXPECT_EQ(calls, 4);
}

TEST_F(ServedModelsTest, AnImportWhileTablesAreOpenedMakesOneModelBeginAnew) {
  store_.Put("a/t", 10);
  store_.Put("a/u", 10);
  store_.Put("b/t", 10);
  std::map<std::string, int> opened;
  store_.on_open = [&](const std::string& table) {
    if (++opened[table] == 1 && table == "a/u") {
      store_.Put("a/t", 20);  // both at once, as an import of the whole model
      store_.Put("a/u", 20);
    }
  };
  EXPECT_TRUE(Switch().empty());
  EXPECT_THAT(Budgets(),
              ElementsAre(Pair("a/t", Need(20)), Pair("a/u", Need(20)), Pair("b/t", Need(10))));
  EXPECT_THAT(opened, ElementsAre(Pair("a/t", 2), Pair("a/u", 2), Pair("b/t", 1)));
}

TEST_F(ServedModelsTest, AModelThatKeepsChangingIsGivenUpForNow) {
  store_.Put("a/t", 10);
  store_.Put("b/t", 10);
  store_.on_open = [&](const std::string& table) {
    if (table == "a/t") store_.Put("a/t", 10);
  };
  const ServedModels::ModelErrors errors = Switch();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors.at("a").code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Budgets(), ElementsAre(Pair("b/t", Need(10))));
}

TEST_F(ServedModelsTest, WhatTheConfigurationNamesMustBeThereAtFirst) {
  store_.Put("a/t", 10);
  config_.model = {{.name = "b"}};
  EXPECT_EQ(models_->Switch(Missing::kError).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Switch().empty());
  EXPECT_FALSE(models_->HasTables());
}

}  // namespace
}  // namespace hps
