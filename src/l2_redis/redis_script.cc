#include "l2_redis/redis_script.h"

#include <openssl/evp.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {

RedisScript MakeRedisScript(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  HPS_CHECK(EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr) == 1);
  RedisScript script = {.text = std::string(text)};
  for (unsigned int i = 0; i < size; ++i)
    absl::StrAppend(&script.sha1, absl::Hex(digest[i], absl::kZeroPad2));
  return script;
}

}  // namespace hps
