#include <gtest/gtest.h>

#include "hps/update_producer.h"
#include "update/kafka_source_options.h"

namespace hps {
namespace {

TEST(NoKafka, SaysWhatIsMissing) {
  const auto producer = UpdateProducer::Create({});
  EXPECT_EQ(producer.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(producer.status().message().find("HPS_KAFKA"), std::string::npos);
  EXPECT_EQ(MakeKafkaSource({}).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace hps
