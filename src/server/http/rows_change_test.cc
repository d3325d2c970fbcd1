#include "server/http/rows_change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace hps::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Shape ShapeOf(std::vector<int64_t> dims) {
  Shape shape;
  shape.dim_count = dims.size();
  std::copy(dims.begin(), dims.end(), shape.dims.begin());
  return shape;
}

class RowsChangeTest : public ::testing::Test {
 protected:
  RowsChangeTest() {
    const std::vector<Key> keys = {-1, 7};
    std::memcpy(bytes_.data() + 1, keys.data(), 16);  // not aligned
  }
  InputTensor Keys(Datatype type = Datatype::kInt64, std::vector<int64_t> shape = {2}) const {
    return {.name = "keys",
            .datatype = type,
            .shape = ShapeOf(std::move(shape)),
            .bytes = std::span(bytes_).subspan(1, 16)};
  }
  InputTensor Rows(Datatype type = Datatype::kFp32, std::vector<int64_t> shape = {2, 3}) const {
    return {.name = "rows",
            .datatype = type,
            .shape = ShapeOf(std::move(shape)),
            .bytes = std::span(bytes_).subspan(0, 24)};
  }
  static void ExpectError(std::vector<InputTensor> inputs, bool is_delete, const char* text) {
    RowsChange change;
    const absl::Status status = ReadRowsChange(inputs, is_delete, &change);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(64);
};

TEST_F(RowsChangeTest, ReadsUpsertsAndDeletes) {
  RowsChange change;
  ASSERT_TRUE(ReadRowsChange(std::vector{Rows(Datatype::kBf16), Keys()}, false, &change).ok());
  EXPECT_THAT(std::vector<Key>(change.update.keys.begin(), change.update.keys.end()),
              ElementsAre(-1, 7));
  EXPECT_EQ(change.update.dim, 3);
  EXPECT_EQ(change.update.dtype, Dtype::kBfloat16);
  EXPECT_EQ(change.update.rows.size(), 24);
  EXPECT_FALSE(change.update.is_delete);
  RowsChange deletes;
  ASSERT_TRUE(ReadRowsChange(std::vector{Keys(Datatype::kUint64)}, true, &deletes).ok());
  EXPECT_TRUE(deletes.update.is_delete);
  EXPECT_EQ(deletes.update.keys.size(), 2);
}

TEST_F(RowsChangeTest, RefusesOtherTensors) {
  ExpectError({Keys()}, false, "'keys' and 'rows'");
  ExpectError({Rows()}, false, "'keys' and 'rows'");
  ExpectError({Keys(), Rows()}, true, "no other");
  ExpectError({Keys(), Keys(), Rows()}, false, "each once");
  InputTensor other = Rows();
  other.name = "row";
  ExpectError({Keys(), other}, false, "input 'row'");
  ExpectError({Keys(Datatype::kInt32), Rows()}, false, "found INT32 [2]");
  ExpectError({Keys(Datatype::kInt64, {1, 2}), Rows()}, false, "found INT64 [1,2]");
  ExpectError({Keys(), Rows(Datatype::kFp64)}, false, "found FP64 [2,3]");
  ExpectError({Keys(), Rows(Datatype::kFp32, {6})}, false, "found FP32 [6]");
  ExpectError({Keys(), Rows(Datatype::kFp32, {3, 2})}, false, "2 keys and 3 rows");
}

}  // namespace
}  // namespace hps::server
