// Dense networks in the store: they switch with their tables, stay with them, and go with them.
#include <gtest/gtest.h>
#include <rocksdb/write_batch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/logging.h"
#include "l3_rocksdb/catalog.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/salvage/verify.h"
#include "l3_rocksdb/test_store.h"
#include "testing/faults/fault_points.h"

namespace hps {
namespace {

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

  const TestDirectory directory_;
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
  store = nullptr;
  store = Open();
  EXPECT_EQ(Onnx(*store), "second");
  ASSERT_TRUE(store->Drop("m/t").ok());
  EXPECT_EQ(Onnx(*store), "second");
  ASSERT_TRUE(store->Drop("m/u").ok());
  EXPECT_EQ(Onnx(*store), "none");
  store = nullptr;
  // Of no replaced network is anything left.
  const auto database = Database::Open(Options());
  ASSERT_TRUE(database.ok()) << database.status();
  const auto catalog = ReadCatalog((*database)->db());
  ASSERT_TRUE(catalog.ok());
  EXPECT_TRUE(catalog->networks.empty());
  EXPECT_TRUE(catalog->network_ids.empty());
  EXPECT_EQ(catalog->format_version, kFirstFormatVersion);
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
  EXPECT_TRUE(server->Refresh().value());
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

TEST_F(NetworkTest, DamageIsFoundAndTheTablesAreReadable) {
  ASSERT_TRUE(Import(Open()->BeginImport(Specs("t")), "first").ok());
  {
    const auto database = Database::Open(Options());
    ASSERT_TRUE(database.ok()) << database.status();
    const auto catalog = ReadCatalog((*database)->db());
    rocksdb::WriteBatch batch;
    PutNetworkBytes(batch, catalog->networks.at("m").id, "f1rst");
    ASSERT_TRUE((*database)->Write(batch, true).ok());
  }
  const auto report = VerifyRocksStore(Options(), false, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->damage_count, 1U);
  const auto store = Open();
  EXPECT_EQ(store->Tables()->size(), 1U);
  EXPECT_TRUE(absl::IsDataLoss(store->Network("m").status()));
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
