#include "import/import_source.h"

#include <gtest/gtest.h>

#include "import/test_table_files.h"

namespace hps {
namespace {

class ImportSourceTest : public TableFilesTest {
 protected:
  static absl::StatusOr<ImportSource> Create(const ImportRequest& request) {
    return ImportSource::Create(request, request.name, request.from, nullptr);
  }
  static void ExpectError(const ImportRequest& request, absl::StatusCode code,
                          const std::string& text) {
    TableFilesTest::ExpectError(Create(request).status(), code, text);
  }
};

TEST_F(ImportSourceTest, DimAndDtypeConfirmTheFiles) {
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
  EXPECT_TRUE(Create(request).ok());
  request.dtype = Dtype::kFloat32;
  ExpectError(request, kInvalid, "expected float32 elements, found float16");
  request.dtype = Dtype::kBfloat16;
  ExpectError(request, kInvalid, "found float16");
}

TEST_F(ImportSourceTest, Float32FilesAreConvertedToTheRequestedType) {
  WriteHugectr("h", 3, 5);
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32}) {
    ImportRequest request = Request("h");
    request.dtype = dtype;
    const auto source = Create(request);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(source->spec.dtype, dtype);
    EXPECT_EQ(source->shape.dtype, Dtype::kFloat32);
  }
}

TEST_F(ImportSourceTest, TheWidestRowsAndNoWider) {
  WriteHugectr("widest", 1, 4096);
  EXPECT_TRUE(Create(Request("widest")).ok());
  WriteHugectr("wider", 1, 4097);
  ExpectError(Request("wider"), kInvalid, "at most 16384");
  WriteHugectr("half", 1, 8192);
  ImportRequest request = Request("half");
  request.dtype = Dtype::kFloat16;
  EXPECT_TRUE(Create(request).ok()) << "as float16 it fits";
  WriteHugectr("zero", 0, 0);
  request = Request("zero");
  request.dim = 0;
  ExpectError(request, kInvalid, "dim is 0");
  request.dim = 4;
  EXPECT_TRUE(Create(request).ok());
}

}  // namespace
}  // namespace hps
