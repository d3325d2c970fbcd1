#include "server/core/token_guard.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/secret_file.h"
#include "openssl/crypto.h"
#include "openssl/sha.h"

namespace hps::server {
namespace {

constexpr std::string_view kScheme = "bearer ";

bool HasScheme(std::string_view authorization) {
  if (authorization.size() <= kScheme.size()) return false;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    if (lower != kScheme[i]) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const TokenGuard>> TokenGuard::Create(const std::string& token_file,
                                                                     const char* setting) {
  auto guard = std::make_unique<TokenGuard>();
  std::string token;
  std::string where = "HPS_TOKEN";
  if (!token_file.empty()) {
    where = absl::StrCat("[server.security] ", setting, ": ", token_file);
    HPS_ASSIGN_OR_RETURN(token, ReadSecretLine(token_file, where, kTokenBytesMax));
  } else {
    const char* const variable = std::getenv("HPS_TOKEN");
    if (variable == nullptr || *variable == '\0') return guard;
    token = variable;
  }
  HPS_RETURN_IF_ERROR(CheckToken(token, where));
  guard->has_token_ = true;
  guard->hash_ = HashOf(token);
  OPENSSL_cleanse(token.data(), token.size());
  return guard;
}

TokenGuard::Hash TokenGuard::HashOf(std::string_view token) {
  Hash hash;
  SHA256(static_cast<const unsigned char*>(static_cast<const void*>(token.data())), token.size(),
         hash.data());
  return hash;
}

bool TokenGuard::Admits(std::string_view authorization) const {
  if (!has_token_) return true;
  if (!HasScheme(authorization)) return false;
  const Hash hash = HashOf(authorization.substr(kScheme.size()));
  return CRYPTO_memcmp(hash.data(), hash_.data(), hash.size()) == 0;
}

}  // namespace hps::server
