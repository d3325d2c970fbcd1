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

TEST(PublicMessageTest, AFullDiskIsNamedWithoutItsPath) {
  const absl::Status full = DiskFull(absl::ResourceExhaustedError("/srv/store: 12 bytes free"));
  EXPECT_TRUE(IsDiskFull(full));
  EXPECT_FALSE(IsPublic(full));
  const absl::Status shown = ForClients(Reworded(full, "model 'm': /srv/store"));
  EXPECT_TRUE(IsDiskFull(shown));
  EXPECT_EQ(shown.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(shown.message(), "the server's disk is full: free space on it or drop tables");
  EXPECT_EQ(MessageForClients(Public(full)), "/srv/store: 12 bytes free");
  EXPECT_FALSE(IsDiskFull(absl::ResourceExhaustedError("out of memory")));
}

TEST(PublicMessageTest, SuccessHasNothingToHide) {
  EXPECT_TRUE(ForClients(absl::OkStatus()).ok());
  EXPECT_TRUE(Public(absl::OkStatus()).ok());
  EXPECT_EQ(MessageForClients(absl::OkStatus()), "");
}

}  // namespace
}  // namespace hps
