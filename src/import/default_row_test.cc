#include "import/default_row.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "import/test_table_files.h"

namespace hps {
namespace {

class DefaultRowTest : public TableFilesTest {
 protected:
  std::string Row() const { return std::string(AsText(*RequestedDefaultRow(request_, spec_))); }
  bool IsTaken() const { return RequestedDefaultRow(request_, spec_).ok(); }
  void ExpectRefused(const std::string& text) const {
    ExpectError(RequestedDefaultRow(request_, spec_).status(), kInvalid, text);
  }

  ImportRequest request_;
  TableSpec spec_{.name = "m/t", .dim = 3, .dtype = Dtype::kFloat32, .default_row = {}};
};

TEST_F(DefaultRowTest, DefaultRows) {
  EXPECT_TRUE(Row().empty());
  request_.default_value = -2;
  EXPECT_EQ(Row(), BytesOf<float>({-2, -2, -2}));
  spec_.dtype = Dtype::kFloat16;
  EXPECT_EQ(Row(), BytesOf<uint16_t>({0xc000, 0xc000, 0xc000}));
  request_.default_file =
      directory_.Write("d.npy", NpyBytes("<f4", "(3,)", BytesOf<float>({1, 0, -2})));
  EXPECT_EQ(Row(), BytesOf<uint16_t>({0x3c00, 0, 0xc000}));
  request_.default_file =
      directory_.Write("d.npy", NpyBytes("<f4", "(1, 3)", BytesOf<float>({1, 0, -2})));
  ExpectRefused("expected a default row of shape [3], found [1, 3]");
}

// Catches: 1e6 as float16, which becomes infinity without an error.
TEST_F(DefaultRowTest, ADefaultThatTheTypeCanNotHoldIsRefused) {
  struct Limit {
    Dtype dtype;
    double largest;
    double beyond;
    std::string text;
  };
  for (const Limit& limit : {Limit{Dtype::kFloat32, 3.4028235e38, 3.5e38, "3.4028235e38"},
                             Limit{Dtype::kFloat16, 65504, 65520, "65504"},
                             Limit{Dtype::kBfloat16, 3.3895314e38, 3.4e38, "3.3895314e38"}}) {
    spec_.dtype = limit.dtype;
    for (const double sign : {1.0, -1.0}) {
      request_.default_value = sign * limit.largest;
      EXPECT_TRUE(IsTaken()) << limit.text;
      request_.default_value = sign * limit.beyond;
      ExpectRefused("largest finite value is " + limit.text);
      request_.default_value = sign * std::numeric_limits<double>::infinity();
      EXPECT_TRUE(IsTaken()) << limit.text;
    }
    request_.default_value = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(IsTaken()) << limit.text;
  }
  spec_.dtype = Dtype::kFloat16;
  request_.default_file =
      directory_.Write("d.npy", NpyBytes("<f4", "(3,)", BytesOf<float>({1, 70'000, -1e6})));
  ExpectRefused("2 of 3 elements exceed the range of float16");
}

}  // namespace
}  // namespace hps
