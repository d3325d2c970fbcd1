// Dense networks in the store: they switch with their tables, stay with them, and go with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/env.h>
#include <rocksdb/write_batch.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/logging.h"
#include "l3_rocksdb/catalog_records.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/test_store.h"
#include "l3_rocksdb/verify/verify.h"
#include "testing/faults/fault_points.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

class NetworkTest : public testing::Test {
 protected:
  NetworkTest() { SetLogLevel(LogLevel::kOff); }
  ~NetworkTest() override {
    FaultPoints::DisarmAll();
    SetLogLevel(LogLevel::kWarning);
  }

  RocksStoreOptions Options() const { return TestOptions(directory_.path() + "/store"); }
  std::unique_ptr<DurableStore> Open(OwnerRole role = OwnerRole::kCommand) const {
    RocksStoreOptions options = Options();
    options.role = role;
    auto opened = OpenRocksStore(options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }

  static ModelNetwork Network(const std::string& onnx) {
    ModelNetwork network{.onnx = onnx,
                         .inputs = {{.name = "x", .table = "t", .pooling = RowPooling::kMean}}};
    network.digest = NetworkDigest(network);
    return network;
  }
  // Imports table m/`table`, with a network unless `onnx` is empty.
  static absl::StatusOr<BulkImport::Result> Import(
      absl::StatusOr<std::unique_ptr<BulkImport>> import, const std::string& onnx) {
    HPS_RETURN_IF_ERROR(import.status());
    if (!onnx.empty()) HPS_RETURN_IF_ERROR((*import)->SetNetwork("m", Network(onnx)));
    return (*import)->Commit();
  }
  static std::vector<TableSpec> Specs(const std::string& table) {
    return {{.name = "m/" + table, .dim = 4}};
  }
  static std::string Onnx(const DurableStore& store) {
    const auto network = store.Network("m");
    if (!network.ok()) return network.status().ToString();
    return network->has_value() ? (*network)->onnx : "none";
  }

  // Column families, as a reader of the store sees them.
  std::set<std::string> NetworkFamilies() const {
    std::vector<std::string> names;
    EXPECT_TRUE(rocksdb::DB::ListColumnFamilies({}, Options().config.path, &names).ok());
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("network-"); });
    return {names.begin(), names.end()};
  }
  CatalogContents Catalog() const {
    const auto database = Reader();
    return database == nullptr ? CatalogContents() : database->catalog().contents();
  }
  void FlipABitOfTheNetwork() const {
    std::vector<rocksdb::LiveFileMetaData> files;
    {
      const auto database = Reader();
      ASSERT_NE(database, nullptr);
      database->db().GetLiveFilesMetaData(&files);
    }
    std::erase_if(
        files, [](const auto& file) { return !file.column_family_name.starts_with("network-"); });
    ASSERT_EQ(files.size(), 1U);
    FlipBit(Options().config.path + "/" + files[0].relative_filename, files[0].size / 2);
  }

  // Puts other bytes in the place of those of model m, with a right checksum.
  void PutOtherBytes(const std::string& onnx) const {
    const Incarnation id = Catalog().networks.at("m").id;
    RawDatabase raw(Options().config.path);
    rocksdb::ColumnFamilyHandle* const family = raw.FindFamily(NetworkFamilyName(id));
    ASSERT_NE(family, nullptr);
    rocksdb::WriteBatch batch;
    PutNetworkBytes(batch, family, id, onnx);
    EXPECT_TRUE(raw.db().Write({}, &batch).ok());
  }

  const TestDirectory directory_;

 private:
  std::shared_ptr<Database> Reader() const {
    RocksStoreOptions options = Options();
    options.mode = OpenMode::kReadOnly;
    const auto database = Database::Open(options);
    EXPECT_TRUE(database.ok()) << database.status();
    return database.ok() ? *database : nullptr;
  }
};

TEST_F(NetworkTest, SwitchesStaysAndGoesWithItsTables) {
  auto store = Open();
  EXPECT_EQ(Onnx(*store), "none");
  ASSERT_TRUE(Import(store->BeginImport(Specs("t")), "first").ok());
  EXPECT_EQ(Onnx(*store), "first");
  EXPECT_EQ((*store->Network("m"))->inputs, Network("").inputs);
  // Of tables alone: it stays.
  ASSERT_TRUE(Import(store->BeginImport(Specs("t")), "").ok());
  ASSERT_TRUE(Import(store->BeginImport(Specs("u")), "").ok());
  EXPECT_EQ(Onnx(*store), "first");
  ASSERT_TRUE(Import(store->BeginImport(Specs("t")), "second").ok());
  EXPECT_EQ(NetworkFamilies().size(), 1U);
  store = nullptr;
  store = Open();
  EXPECT_EQ(Onnx(*store), "second");
  ASSERT_TRUE(store->Drop("m/u").ok());
  EXPECT_EQ(Onnx(*store), "second");
  ASSERT_TRUE(store->Drop("m/t").ok());
  EXPECT_EQ(Onnx(*store), "none");
  store = nullptr;
  EXPECT_TRUE(NetworkFamilies().empty());
  EXPECT_TRUE(Catalog().networks.empty());
}

// Catches: a model that can't be served, because a table that its network reads was dropped.
TEST_F(NetworkTest, TheTablesThatItReadsGoOnlyWithTheModel) {
  const auto store = Open();
  ASSERT_TRUE(Import(store->BeginImport(Specs("t")), "first").ok());
  ASSERT_TRUE(Import(store->BeginImport(Specs("u")), "").ok());
  const std::vector<TableSpec> other = {{.name = "n/t", .dim = 4}};
  ASSERT_TRUE(Import(store->BeginImport(other), "").ok());
  const absl::Status refused = store->Drop("m/t");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the dense network of model 'm'"));
  const std::vector<TableSpec> wider = {{.name = "m/t", .dim = 8}};
  const absl::Status shape = store->BeginImport(wider).status();
  EXPECT_EQ(shape.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(shape.message()), HasSubstr("the dense network of model 'm' reads it"));
  EXPECT_EQ(store->Tables()->size(), 3U);
  EXPECT_EQ(store->Drop("k").code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(store->Drop("m").ok());
  EXPECT_EQ(Onnx(*store), "none");
  ASSERT_EQ(store->Tables()->size(), 1U);
  EXPECT_EQ(store->Tables()->at(0).spec.name, "n/t");
  EXPECT_TRUE(Import(store->BeginImport(wider), "").ok());
}

// Catches: bytes of networks that stay in the store when their import has failed.
TEST_F(NetworkTest, OfAnImportThatFailsNothingStays) {
  auto store = Open();
  ASSERT_TRUE(Import(store->BeginImport(Specs("t")), "first").ok());
  const std::set<std::string> before = NetworkFamilies();
  for (const char* moment : {"l3.import.after_network", "l3.import.before_switch"}) {
    SCOPED_TRACE(moment);
    FaultPoints::Arm(moment, {.action = FaultAction::kFail});
    EXPECT_FALSE(Import(store->BeginImport(Specs("t")), "second").ok());
    FaultPoints::DisarmAll();
    EXPECT_EQ(NetworkFamilies(), before);
    EXPECT_EQ(Onnx(*store), "first");
  }
}

// Catches: bytes of a network that stay for ever when the process ends before the switch.
TEST_F(NetworkTest, WhatAnEndedImportLeftGoesWhenTheStoreIsOpened) {
  ASSERT_TRUE(Import(Open()->BeginImport(Specs("t")), "first").ok());
  const std::set<std::string> before = NetworkFamilies();
  {
    const auto database = Database::Open(Options());
    ASSERT_TRUE(database.ok()) << database.status();
    NewContents contents;
    ASSERT_TRUE((*database)->files().CreateNetwork("m", Network("second"), contents).ok());
    EXPECT_EQ(NetworkFamilies().size(), 2U);
    (*database)->db().DestroyColumnFamilyHandle(contents.network_handle);
  }
  EXPECT_EQ(Onnx(*Open()), "first");
  EXPECT_EQ(NetworkFamilies(), before);
}

TEST_F(NetworkTest, AServerTakesAStagedOne) {
  auto server = Open(OwnerRole::kServer);
  ASSERT_TRUE(Import(server->BeginImport(Specs("t")), "first").ok());
  const auto staged = Import(StageImport(Options(), Specs("t")), "second");
  ASSERT_TRUE(staged.ok()) << staged.status();
  EXPECT_TRUE(staged->staged);
  EXPECT_EQ(Onnx(*server), "first");
  // One of the table alone is newer, but has no network: both are taken.
  ASSERT_TRUE(Import(StageImport(Options(), Specs("t")), "")->staged);
  EXPECT_TRUE(server->Refresh()->changed);
  EXPECT_EQ(Onnx(*server), "second");
}

TEST_F(NetworkTest, AReaderSeesItWithItsTables) {
  auto writer = Open();
  ASSERT_TRUE(Import(writer->BeginImport(Specs("t")), "first").ok());
  RocksStoreOptions options = Options();
  options.mode = OpenMode::kReadOnly;
  const auto reader = OpenRocksStore(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_TRUE(Import(writer->BeginImport(Specs("t")), "second").ok());
  EXPECT_TRUE((*reader)->Refresh().ok());
  EXPECT_EQ(Onnx(**reader), "second");
}

// Catches: one flipped bit of one network, and no model of the store can be read.
TEST_F(NetworkTest, DamageIsThatOfOneModel) {
  const std::vector<TableSpec> other = {{.name = "n/t", .dim = 4}};
  ASSERT_TRUE(Import(Open()->BeginImport(other), "").ok());
  for (const std::string heal : {"repair", "import", "drop"}) {
    SCOPED_TRACE(heal);
    ASSERT_TRUE(Import(Open()->BeginImport(Specs("t")), std::string(100'000, 'x')).ok());
    FlipABitOfTheNetwork();
    const auto report = VerifyRocksStore(Options(), false, {});
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->damage_count, 2U);  // its file, and what is read from it
    for (const Damage& damage : report->damage)
      EXPECT_THAT(damage.what, HasSubstr("the dense network of model 'm'"));
    {
      const auto store = Open();
      ASSERT_EQ(store->Tables()->size(), 2U);
      EXPECT_TRUE(store->OpenTable("m/t").ok());
      EXPECT_TRUE(store->OpenTable("n/t").ok());
      EXPECT_TRUE(store->Network("n").ok());
      const absl::Status damaged = store->Network("m").status();
      EXPECT_TRUE(absl::IsDataLoss(damaged));
      EXPECT_THAT(std::string(damaged.message()), HasSubstr("the dense network of model 'm'"));
    }
    if (heal == "repair") {
      const auto repaired = VerifyRocksStore(Options(), true, {});
      ASSERT_TRUE(repaired.ok()) << repaired.status();
      EXPECT_EQ(repaired->networks_removed, std::vector<std::string>{"m"});
    } else if (heal == "import") {
      ASSERT_TRUE(Import(Open()->BeginImport(Specs("t")), "second").ok());
    } else {
      ASSERT_TRUE(Open()->Drop("m").ok());
    }
    EXPECT_EQ(VerifyRocksStore(Options(), false, {})->damage_count, 0U);
    EXPECT_EQ(Onnx(*Open()), heal == "import" ? "second" : "none");
  }
}

// Catches: bytes that are not those that were imported, although their block is whole.
TEST_F(NetworkTest, OtherBytesAreFoundByTheirDigest) {
  ASSERT_TRUE(Import(Open()->BeginImport(Specs("t")), "first").ok());
  PutOtherBytes("f1rst");
  const auto store = Open();
  const absl::Status read = store->Network("m").status();
  EXPECT_TRUE(absl::IsDataLoss(read)) << Onnx(*store);
  EXPECT_THAT(std::string(read.message()), HasSubstr("digest"));
}

TEST_F(NetworkTest, AnImportThatEndsEarlyChangesNothing) {
  auto store = Open();
  ASSERT_TRUE(Import(store->BeginImport(Specs("t")), "first").ok());
  {
    auto import = store->BeginImport(Specs("t"));
    ASSERT_TRUE((*import)->SetNetwork("m", Network("second")).ok());
  }
  EXPECT_EQ(Onnx(*store), "first");
}

}  // namespace
}  // namespace hps
