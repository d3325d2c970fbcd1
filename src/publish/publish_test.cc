#include "hps/publish.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

// What a broker is needed for is in tests/update/publish_test.py.
TEST(PublishTable, ErrorsOfTheFilesComeFirst) {
  PublishRequest request{.brokers = "127.0.0.1:1", .table = "m/t", .from = "/no/such/table"};
  EXPECT_EQ(PublishTable(request).status().code(), absl::StatusCode::kNotFound);
  request.table = "no slash";
  EXPECT_EQ(PublishTable(request).status().code(), absl::StatusCode::kInvalidArgument);
  request.is_delete = true;
  request.table = "m/t";
  EXPECT_EQ(PublishTable(request).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hps
