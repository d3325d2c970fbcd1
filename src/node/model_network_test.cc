// A store whose model has a dense network: what is refused at its import, and afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/logging.h"
#include "base/public_message.h"
#include "import/split_files.h"
#include "inference/network_check.h"
#include "network/onnx/test_models.h"
#include "node/test_store_files.h"
#include "testing/faults/fault_points.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kWidth = 2;  // of LogisticModel's input

class ModelNetworkTest : public StoreFilesTest {
 protected:
  ModelNetworkTest() : StoreFilesTest(uint64_t{64} << 20) {}
  ~ModelNetworkTest() override {
    SetNetworkCheckProgram(nullptr);
    FaultPoints::DisarmAll();
  }

  // Model "m" with the tables `user` and `item`; the network reads `user`.
  ImportRequest Model(const TestModel& network) {
    const ImportRequest files = ModelFiles("m", {"user", "item"}, 10, 1, kWidth);
    EXPECT_TRUE(WriteNewFile(files.from + "/dense.onnx", network.Bytes()).ok());
    EXPECT_TRUE(WriteNewFile(files.from + "/model.toml",
                             "name = \"m\"\ntables = [\"user\", \"item\"]\n[network]\n"
                             "file = \"dense.onnx\"\n[[network.input]]\nname = \"x\"\n"
                             "table = \"user\"\n")
                    .ok());
    return files;
  }
  // Its scores are made of "dense" too, which the client sends.
  static TestModel WithDense() {
    TestModel model = LogisticModel();
    model.Input("dense", ::onnx::TensorProto::FLOAT, {-1, 1});
    model.graph().mutable_output(0)->set_name("sum_of_both");
    model.Node("Add", "sum_of_both", {"score", "dense"});
    return model;
  }
  std::string Digest() const {
    const auto store = Store::Open(config_, OpenMode::kReadOnly);
    EXPECT_TRUE(store.ok()) << store.status();
    const auto network = (*store)->models().ImportedNetwork("m");
    EXPECT_TRUE(network.ok()) << network.status();
    return network->has_value() ? (*network)->digest : "none";
  }
};

// Catches: a network that does not run in the place of one that does.
TEST_F(ModelNetworkTest, WhatFailsApartReplacesNothing) {
  ASSERT_NO_FATAL_FAILURE(Import(Model(LogisticModel())));
  const std::string before = Digest();
  SetNetworkCheckProgram("/bin/false");
  const ImportRequest next = Model(WithDense());
  const absl::Status refused = ImportTables(config_, next).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("process of its own"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr(next.from));
  {
    const auto store = Store::Open(config_, OpenMode::kMaintain);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->Import(next).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Digest(), before);
  SetNetworkCheckProgram("/bin/true");
  ASSERT_NO_FATAL_FAILURE(Import(next));
  EXPECT_NE(Digest(), before);
}

// Catches: tables imported or dropped later with which the network can't be served.
TEST_F(ModelNetworkTest, TablesAloneMustFitIt) {
  ASSERT_NO_FATAL_FAILURE(Import(Model(WithDense())));
  ASSERT_NO_FATAL_FAILURE(Import(Files("m/user", 20, 2, kWidth)));
  const absl::Status wider = ImportTables(config_, Files("m/user", 20, 2, 3)).status();
  EXPECT_EQ(wider.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(wider.message()), HasSubstr("rows of dim 3"));
  EXPECT_THAT(std::string(wider.message()), HasSubstr("drop it first"));
  const absl::Status named = ImportTables(config_, Files("m/dense", 20, 2, kWidth)).status();
  EXPECT_EQ(named.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(named.message()), HasSubstr("the dense network of model 'm'"));
  const absl::Status dropped = DropTable(config_, "m/user");
  EXPECT_EQ(dropped.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(dropped.message()), HasSubstr("the dense network of model 'm'"));
  EXPECT_TRUE(DropTable(config_, "m/item").ok());
  EXPECT_EQ(DropTable(config_, "mm").code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(DropTable(config_, "m").ok());
  ASSERT_NO_FATAL_FAILURE(Import(Files("m/user", 20, 2, 3)));
}

// Catches: a model that is not served, without a word on the file that is to blame.
TEST_F(ModelNetworkTest, AFileInItsPlaceThatIsWrongIsNamed) {
  ASSERT_NO_FATAL_FAILURE(Import(Model(LogisticModel())));
  config_.model = {{.name = "m"}};
  config_.model[0].dense = directory_ + "/newer.onnx";
  for (const std::string bytes : {"", "this is no model"}) {
    if (!bytes.empty()) {
      ASSERT_TRUE(WriteNewFile(config_.model[0].dense, bytes).ok());
    }
    const auto store = Store::Open(config_, OpenMode::kServe);
    ASSERT_TRUE(store.ok()) << store.status();
    const absl::Status loaded = (*store)->models().Load("m");
    const std::vector<ModelInfo> models = (*store)->models().List();
    ASSERT_EQ(models.size(), 1U);
    for (const absl::Status& status : {loaded, models[0].load_status}) {
      EXPECT_THAT(MessageForClients(status), HasSubstr("[[model]] dense = \"newer.onnx\": "));
      EXPECT_THAT(MessageForClients(status),
                  HasSubstr(bytes.empty() ? "there is no such file" : "it is not an ONNX model"));
      EXPECT_THAT(MessageForClients(status), ::testing::Not(HasSubstr(directory_)));
    }
  }
}

}  // namespace
}  // namespace hps
