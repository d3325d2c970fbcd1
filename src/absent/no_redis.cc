// What a build without Redis (-DHPS_REDIS=OFF) links in the place of src/l2_redis.
#include "absl/strings/str_cat.h"
#include "tier/redis_tier.h"

namespace hps {

absl::StatusOr<RedisTier> MakeRedisTier(const RedisConfig& /*config*/) {
  return absl::UnimplementedError(
      "l2.kind = \"redis\" or \"memory+redis\": this build of hps has no Redis client: build it "
      "with -DHPS_REDIS=ON");
}

absl::StatusOr<std::unique_ptr<ForeignCache>> OpenHugectrRedis(const HugectrRedisSource& source) {
  return absl::UnimplementedError(absl::StrCat(
      source.url, ": this build of hps has no Redis client: build it with -DHPS_REDIS=ON"));
}

absl::Status CheckRedisTlsFiles(const RedisConfig& /*config*/) { return absl::OkStatus(); }

}  // namespace hps
