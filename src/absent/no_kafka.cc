// What a build without Kafka (-DHPS_KAFKA=OFF) links in the place of src/update/kafka.
#include "hps/update_producer.h"
#include "update/kafka_source_options.h"
#include "update/shared_group.h"

namespace hps {
namespace {

absl::Status NoKafka() {
  return absl::UnimplementedError(
      "this build of hps has no Kafka client: build it with -DHPS_KAFKA=ON");
}

}  // namespace

absl::StatusOr<std::unique_ptr<UpdateProducer>> UpdateProducer::Create(
    const UpdateProducerOptions& /*options*/) {
  return NoKafka();
}

absl::StatusOr<std::unique_ptr<UpdateSource>> MakeKafkaSource(
    const KafkaSourceOptions& /*options*/) {
  return NoKafka();
}

absl::StatusOr<std::unique_ptr<SharedGroup>> MakeKafkaGroup(const SharedGroupOptions& /*options*/) {
  return NoKafka();
}

}  // namespace hps
