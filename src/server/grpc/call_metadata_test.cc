#include "server/grpc/call_metadata.h"

#include <gtest/gtest.h>

#include <string>

namespace hps::server {
namespace {

class CallMetadataTest : public testing::Test {
 protected:
  void Add(std::string_view name, std::string_view value) {
    metadata_.Add(name, value, [](std::string_view token) { return token == "Bearer good"; });
  }

  CallMetadata metadata_;
};

TEST_F(CallMetadataTest, ReadsTheFieldsThatTheServerUses) {
  Add(":method", "POST");
  Add(":path", "/service/Method");
  Add("content-type", "application/grpc+proto");
  Add("grpc-encoding", "gzip");
  Add("grpc-timeout", "50m");
  Add("x-other", "1");
  EXPECT_TRUE(metadata_.is_post());
  EXPECT_TRUE(metadata_.is_grpc());
  EXPECT_EQ(metadata_.path(), "/service/Method");
  EXPECT_EQ(metadata_.coding(), Coding::kGzip);
  ASSERT_EQ(metadata_.timeout_state(), CallMetadata::Timeout::kValid);
  EXPECT_EQ(metadata_.timeout(), std::chrono::milliseconds(50));
  EXPECT_EQ(metadata_.token(), CallMetadata::Token::kAbsent);
}

TEST_F(CallMetadataTest, RejectsAWrongTokenAndTwoTokens) {
  Add("authorization", "Bearer good");
  EXPECT_EQ(metadata_.token(), CallMetadata::Token::kAccepted);
  Add("authorization", "Bearer good");
  EXPECT_EQ(metadata_.token(), CallMetadata::Token::kRejected);
  metadata_.Clear();
  Add("authorization", "Bearer bad");
  EXPECT_EQ(metadata_.token(), CallMetadata::Token::kRejected);
  Add("authorization", "Bearer good");
  EXPECT_EQ(metadata_.token(), CallMetadata::Token::kRejected);
}

TEST_F(CallMetadataTest, NotesWrongContentTypesAndTimeouts) {
  Add("content-type", "application/grpc-web");
  Add("grpc-timeout", "soon");
  EXPECT_FALSE(metadata_.is_grpc());
  EXPECT_EQ(metadata_.timeout_state(), CallMetadata::Timeout::kInvalid);
}

TEST_F(CallMetadataTest, IgnoresFieldsBeyondTheLimit) {
  Add("x-large", std::string(kCallFieldBytesMax - 39, 'x'));
  EXPECT_EQ(metadata_.bytes(), kCallFieldBytesMax);
  EXPECT_FALSE(metadata_.is_too_large());
  Add(":path", "/p");
  EXPECT_TRUE(metadata_.is_too_large());
  EXPECT_EQ(metadata_.path(), "");
  metadata_.Clear();
  EXPECT_FALSE(metadata_.is_too_large());
}

}  // namespace
}  // namespace hps::server
