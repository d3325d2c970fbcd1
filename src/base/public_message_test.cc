#include "base/public_message.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(PublicMessageTest, OnlyMarkedMessagesReachClients) {
  const absl::Status secret = absl::UnavailableError("/srv/store/000017.sst: no such file");
  EXPECT_FALSE(IsPublic(secret));
  EXPECT_EQ(MessageForClients(secret), "internal storage error; see the server log");
  const absl::Status shown = Public(absl::NotFoundError("the store has no model 'x'"));
  EXPECT_TRUE(IsPublic(shown));
  EXPECT_EQ(shown.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(MessageForClients(shown), "the store has no model 'x'");
  EXPECT_EQ(TextForLog(shown), "NOT_FOUND: the store has no model 'x'");
}

TEST(PublicMessageTest, SuccessHasNothingToHide) {
  EXPECT_TRUE(Public(absl::OkStatus()).ok());
  EXPECT_EQ(MessageForClients(absl::OkStatus()), "");
}

}  // namespace
}  // namespace hps
