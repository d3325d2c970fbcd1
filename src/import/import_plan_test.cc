#include "import/import_plan.h"

#include <gtest/gtest.h>

#include "import/formats/test_files.h"
#include "testing/unprivileged.h"

namespace hps {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class ImportPlanTest : public testing::Test {
 protected:
  void WriteHugectr(const std::string& name, size_t rows, size_t dim) const {
    directory_.Write(name + "/key", BytesOf(std::vector<int64_t>(rows)));
    directory_.Write(name + "/emb_vector", BytesOf(std::vector<float>(rows * dim)));
  }
  void WriteNpy(const std::string& name, const std::string& descr, size_t row_bytes) const {
    directory_.Write(name + "/keys.npy", NpyBytes("<i8", "(1,)", std::string(8, 'x')));
    directory_.Write(name + "/rows.npy", NpyBytes(descr, "(1, 2)", std::string(row_bytes, 'x')));
  }
  void WriteSafetensors(const std::string& name) const {
    directory_.Write(name, SafetensorsBytes("{" + TensorJson("keys", "I64", "1", "0,8") + "," +
                                                TensorJson("rows", "F16", "1,3", "8,14") + "}",
                                            std::string(14, 'x')));
  }
  ImportRequest Request(const std::string& from) const {
    return {.name = "m/t", .from = directory_.Path(from)};
  }
  static void ExpectError(const ImportRequest& request, absl::StatusCode code,
                          const std::string& text) {
    const absl::Status status = PlanImport(request).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
  }

  const TestDirectory directory_;
};

TEST_F(ImportPlanTest, DetectsEveryFormat) {
  WriteHugectr("h", 3, 5);
  WriteNpy("n", "<f4", 8);
  WriteSafetensors("s.safetensors");
  const auto dims = [&](const std::string& from, TableFormat format) {
    ImportRequest request = Request(from);
    request.format = format;
    const auto plan = PlanImport(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? plan->tables.at(0).spec.dim : 0;
  };
  EXPECT_EQ(dims("h", TableFormat::kAuto), 5U);
  EXPECT_EQ(dims("h", TableFormat::kHugectr), 5U);
  EXPECT_EQ(dims("n", TableFormat::kAuto), 2U);
  EXPECT_EQ(dims("n", TableFormat::kNpy), 2U);
  EXPECT_EQ(dims("s.safetensors", TableFormat::kAuto), 3U);
  EXPECT_EQ(dims("s.safetensors", TableFormat::kSafetensors), 3U);
}

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

TEST_F(ImportPlanTest, SaysWhatItExpectedWhereThereIsNoTable) {
  ExpectError(Request("missing"), absl::StatusCode::kNotFound, directory_.Path("missing"));
  std::filesystem::create_directory(directory_.Path("empty"));
  ExpectError(Request("empty"), kInvalid, "found neither");
  WriteHugectr("both", 1, 1);
  WriteNpy("both", "<f4", 8);
  ExpectError(Request("both"), kInvalid, "found both");
  directory_.Write("weights.dat", "x");
  ExpectError(Request("weights.dat"), kInvalid, "--format safetensors");
  WriteHugectr("h", 1, 1);
  ImportRequest request = Request("h");
  request.format = TableFormat::kNpy;
  ExpectError(request, absl::StatusCode::kNotFound, "keys.npy");
  request.format = TableFormat::kSafetensors;
  ExpectError(request, kInvalid, "found a directory");
  request = Request("h");
  request.tensor = "rows";
  ExpectError(request, kInvalid, "for safetensors files only");
}

// Catches: an error that claims that the directory holds neither format.
TEST_F(ImportPlanTest, AnUnreadableDirectoryIsPermissionDenied) {
  using std::filesystem::perms;
  WriteHugectr("h", 1, 1);
  std::filesystem::permissions(directory_.Path("h"), perms::none);
  const ImportRequest request = {.name = "m/t", .from = "h"};
  {
    // Uses a relative path: the user nobody may not have access to the directories above.
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::permissions(directory_.Path(), perms::all);
    std::filesystem::current_path(directory_.Path());
    {
      const Unprivileged nobody;
      ExpectError(request, absl::StatusCode::kPermissionDenied,
                  "can't read the directory h: Permission denied");
    }
    std::filesystem::current_path(before);
  }
  std::filesystem::permissions(directory_.Path("h"), perms::all);
  EXPECT_TRUE(PlanImport(Request("h")).ok());
}

TEST_F(ImportPlanTest, ALinkToItselfIsNoTable) {
  std::filesystem::create_symlink("loop", directory_.Path("loop"));
  ExpectError(Request("loop"), kInvalid, "Too many levels of symbolic links");
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

TEST_F(ImportPlanTest, DimAndDtypeConfirmTheFiles) {
  WriteHugectr("h", 3, 5);
  ImportRequest request = Request("h");
  request.dim = 6;
  ExpectError(request, kInvalid, "3 rows of dim 6 = 72 bytes, found 60");
  WriteNpy("n", "<f2", 4);
  request = Request("n");
  request.dim = 3;
  ExpectError(request, kInvalid, "expected dim 3, found 2");
  request.dim = 2;
  request.dtype = Dtype::kFloat16;
  EXPECT_TRUE(PlanImport(request).ok());
  request.dtype = Dtype::kFloat32;
  ExpectError(request, kInvalid, "expected float32 elements, found float16");
  request.dtype = Dtype::kBfloat16;
  ExpectError(request, kInvalid, "found float16");
}

TEST_F(ImportPlanTest, Float32FilesAreConvertedToTheRequestedType) {
  WriteHugectr("h", 3, 5);
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32}) {
    ImportRequest request = Request("h");
    request.dtype = dtype;
    const auto plan = PlanImport(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->tables[0].spec.dtype, dtype);
    EXPECT_EQ(plan->tables[0].shape.dtype, Dtype::kFloat32);
  }
}

TEST_F(ImportPlanTest, TheWidestRowsAndNoWider) {
  WriteHugectr("widest", 1, 4096);
  EXPECT_TRUE(PlanImport(Request("widest")).ok());
  WriteHugectr("wider", 1, 4097);
  ExpectError(Request("wider"), kInvalid, "at most 16384");
  WriteHugectr("half", 1, 8192);
  ImportRequest request = Request("half");
  request.dtype = Dtype::kFloat16;
  EXPECT_TRUE(PlanImport(request).ok()) << "as float16 it fits";
  WriteHugectr("zero", 0, 0);
  request = Request("zero");
  request.dim = 0;
  ExpectError(request, kInvalid, "dim is 0");
  request.dim = 4;
  EXPECT_TRUE(PlanImport(request).ok());
}

TEST_F(ImportPlanTest, DefaultRows) {
  WriteHugectr("h", 1, 3);
  ImportRequest request = Request("h");
  EXPECT_TRUE(PlanImport(request)->tables[0].spec.default_row.empty());
  request.default_value = -2;
  EXPECT_EQ(AsText(PlanImport(request)->tables[0].spec.default_row), BytesOf<float>({-2, -2, -2}));
  request.dtype = Dtype::kFloat16;
  EXPECT_EQ(AsText(PlanImport(request)->tables[0].spec.default_row),
            BytesOf<uint16_t>({0xc000, 0xc000, 0xc000}));
  request.default_file =
      directory_.Write("d.npy", NpyBytes("<f4", "(3,)", BytesOf<float>({1, 0, -2})));
  EXPECT_EQ(AsText(PlanImport(request)->tables[0].spec.default_row),
            BytesOf<uint16_t>({0x3c00, 0, 0xc000}));
  request.default_file =
      directory_.Write("d.npy", NpyBytes("<f4", "(1, 3)", BytesOf<float>({1, 0, -2})));
  ExpectError(request, kInvalid, "expected a default row of shape [3], found [1, 3]");
}

// Catches: 1e6 as float16, which becomes infinity without an error.
TEST_F(ImportPlanTest, ADefaultThatTheTypeCanNotHoldIsRefused) {
  WriteHugectr("h", 1, 3);
  ImportRequest request = Request("h");
  struct Limit {
    Dtype dtype;
    double largest;
    double beyond;
    std::string text;
  };
  for (const Limit& limit : {Limit{Dtype::kFloat32, 3.4028235e38, 3.5e38, "3.4028235e38"},
                             Limit{Dtype::kFloat16, 65504, 65520, "65504"},
                             Limit{Dtype::kBfloat16, 3.3895314e38, 3.4e38, "3.3895314e38"}}) {
    request.dtype = limit.dtype;
    for (const double sign : {1.0, -1.0}) {
      request.default_value = sign * limit.largest;
      EXPECT_TRUE(PlanImport(request).ok()) << limit.text;
      request.default_value = sign * limit.beyond;
      ExpectError(request, kInvalid, "largest finite value is " + limit.text);
      request.default_value = sign * std::numeric_limits<double>::infinity();
      EXPECT_TRUE(PlanImport(request).ok()) << limit.text;
    }
    request.default_value = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(PlanImport(request).ok()) << limit.text;
  }
  request.dtype = Dtype::kFloat16;
  request.default_file =
      directory_.Write("d.npy", NpyBytes("<f4", "(3,)", BytesOf<float>({1, 70'000, -1e6})));
  ExpectError(request, kInvalid, "2 of 3 elements exceed the range of float16");
}

TEST_F(ImportPlanTest, AModelIsEverySubFolderAndSafetensorsFileInNaturalOrder) {
  for (const char* name : {"t10", "t2", "t1", "user", "t02", "T3"})
    WriteHugectr(std::string("model/") + name, 1, 2);
  WriteSafetensors("model/item.safetensors");
  directory_.Write("model/requests.npy", "not a table");
  directory_.Write("model/README", "not a table either");
  ImportRequest request = Request("model");
  request.name = "m";
  const auto plan = PlanImport(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> names;
  for (const TableSpec& spec : plan->specs()) names.push_back(spec.name);
  EXPECT_EQ(names, (std::vector<std::string>{"m/T3", "m/item", "m/t1", "m/t02", "m/t2", "m/t10",
                                             "m/user"}));
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
  request.from = directory_.Path("missing");
  ExpectError(request, absl::StatusCode::kNotFound, "missing");
  request.from = directory_.Write("file", "x");
  ExpectError(request, kInvalid, "file");
  std::filesystem::create_directory(directory_.Path("empty"));
  request.from = directory_.Path("empty");
  ExpectError(request, kInvalid, "found none");
  WriteHugectr("illegal/a b", 1, 2);
  request.from = directory_.Path("illegal");
  ExpectError(request, kInvalid, directory_.Path("illegal/a b") + ": table name 'm/a b'");
  WriteHugectr("twice/x", 1, 2);
  WriteSafetensors("twice/x.safetensors");
  request.from = directory_.Path("twice");
  ExpectError(request, kInvalid, "table 'x' occurs twice");
}

// Catches: such a table skipped silently, so that the model's other tables switch without it.
TEST_F(ImportPlanTest, ATableThatCantBeExaminedFailsTheModel) {
  for (const char* target : {"nowhere", "lost"}) {  // the second link points to itself
    const std::string model = target;
    WriteHugectr(model + "/good", 1, 2);
    std::filesystem::create_symlink(target, directory_.Path(model + "/lost"));
    ImportRequest request = Request(model);
    request.name = "m";
    ExpectError(request, kInvalid, directory_.Path(model + "/lost"));
  }
}

}  // namespace
}  // namespace hps
