#include "bench/update/topic_reader.h"

namespace hps::bench {

absl::Status CheckKafka() {
  return absl::UnimplementedError("this build has no Kafka client (HPS_KAFKA)");
}

absl::StatusOr<std::vector<uint64_t>> TopicEnds(const std::string& /*brokers*/,
                                                const std::string& /*topic*/) {
  return CheckKafka();
}

absl::StatusOr<double> ReadAndDiscard(const std::string& /*brokers*/, const TopicRange& /*range*/) {
  return CheckKafka();
}

}  // namespace hps::bench
