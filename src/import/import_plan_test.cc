#include "import/import_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "import/test_table_files.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

class ImportPlanTest : public TableFilesTest {
 protected:
  static void ExpectError(const ImportRequest& request, absl::StatusCode code,
                          const std::string& text) {
    TableFilesTest::ExpectError(PlanImport(request).status(), code, text);
  }
};

// Catches: a message that repeats a password, whatever reads the plan.
TEST_F(ImportPlanTest, RepeatsNoPasswordOfAUrl) {
  for (const char* from : {"redis://user:secret@host:1", "rediss://host:1?password=secret"}) {
    ImportRequest request{.name = "m/t", .from = from};
    for (TableFormat format : {TableFormat::kAuto, TableFormat::kHugectrRedis, TableFormat::kNpy}) {
      request.format = format;
      const absl::Status status = PlanImport(request).status();
      EXPECT_EQ(status.code(), kInvalid) << status;
      EXPECT_EQ(status.message().find("secret"), absl::string_view::npos) << status;
    }
  }
}

TEST_F(ImportPlanTest, NamesMustBeLegal) {
  WriteHugectr("h", 1, 1);
  for (const std::string& name :
       {std::string("../x"), std::string("m/../x"), std::string(""), std::string("m/"),
        std::string("/t"), "m/" + std::string(121, 'x'), std::string(121, 'x'),
        std::string("m/t/u"), std::string("m/\n")}) {
    ImportRequest request = Request("h");
    request.name = name;
    EXPECT_EQ(PlanImport(request).status().code(), kInvalid) << name;
  }
}

// Directories as HugeCTR's trainer writes them, with files of the dense network.
TEST_F(ImportPlanTest, AModelOfHugectrNeedsNoConversion) {
  for (const char* name : {"wdl0_sparse_2000.model", "wdl1_sparse_2000.model"}) {
    WriteHugectr(std::string("wdl/") + name, 2, 4);
    directory_.Write(std::string("wdl/") + name + "/slot_id", std::string(16, 'x'));
  }
  directory_.Write("wdl/wdl_dense_2000.model", "x");
  directory_.Write("wdl/wdl.json", "{}");
  ImportRequest request = Request("wdl");
  request.name = "wdl";
  const auto plan = PlanImport(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->tables.size(), 2U);
  EXPECT_EQ(plan->specs()[0].name, "wdl/wdl0_sparse_2000");
  EXPECT_EQ(plan->specs()[1].name, "wdl/wdl1_sparse_2000");
  // A directory with another name gives an error with its path.
  WriteHugectr("wdl/v1.2.model", 2, 4);
  ExpectError(request, kInvalid, directory_.Path("wdl/v1.2.model") + ": table name 'wdl/v1.2'");
}

TEST_F(ImportPlanTest, AModelOfGivenTables) {
  WriteHugectr("x/wdl1.model", 2, 4);
  WriteHugectr("y", 3, 2);
  ImportRequest request = Request("unread");
  request.name = "m";
  request.default_value = 1;
  std::vector<TableSource> tables = {{.name = "second", .from = directory_.Path("y"), .dim = 2},
                                     {.name = "first", .from = directory_.Path("x/wdl1.model")}};
  tables[1].default_value = 0.5;
  const auto plan = PlanImport(request, {}, tables);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->tables.size(), 2U);
  EXPECT_EQ(plan->specs()[0].name, "m/second");
  EXPECT_EQ(AsText(plan->specs()[0].default_row), BytesOf<float>({1, 1}));
  EXPECT_EQ(plan->specs()[1].name, "m/first");
  EXPECT_EQ(AsText(plan->specs()[1].default_row), BytesOf<float>({0.5, 0.5, 0.5, 0.5}));
  tables[1].dim = 8;
  const absl::Status refused = PlanImport(request, {}, tables).status();
  EXPECT_EQ(refused.code(), kInvalid);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("expected 2 rows of dim 8 = 64 bytes"));
}

TEST_F(ImportPlanTest, AModelFailsAsAWhole) {
  WriteHugectr("model/good", 1, 2);
  directory_.Write("model/bad/key", "1234567");
  directory_.Write("model/bad/emb_vector", "");
  ImportRequest request = Request("model");
  request.name = "m";
  ExpectError(request, kInvalid, directory_.Path("model/bad/key"));
  WriteHugectr("illegal/a b", 1, 2);
  request.from = directory_.Path("illegal");
  ExpectError(request, kInvalid, directory_.Path("illegal/a b") + ": table name 'm/a b'");
}

}  // namespace
}  // namespace hps
