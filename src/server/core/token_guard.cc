#include "server/core/token_guard.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
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

// The first line of a file, or as much of it as shows that it is longer than `bytes_max`. Neither a
// pipe that nobody writes to nor a file without end may keep the server from starting, or from
// hearing the signal that is to end it.
absl::StatusOr<std::string> ReadFirstLine(const std::string& path, const std::string& where,
                                          size_t bytes_max) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return absl::NotFoundError(absl::StrCat(where, " can't be read"));
  struct stat info {};
  std::string line(bytes_max + 2, '\0');  // a line's end may be two bytes
  ssize_t got = -1;
  if (fstat(file, &info) == 0 && S_ISREG(info.st_mode)) {
    do {
      got = read(file, line.data(), line.size());
    } while (got < 0 && errno == EINTR);
  }
  close(file);
  if (got < 0) return absl::InvalidArgumentError(absl::StrCat(where, " is not a regular file"));
  const auto end = std::find(line.begin(), line.begin() + got, '\n');
  line.resize(static_cast<size_t>(end - line.begin()));
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const TokenGuard>> TokenGuard::Create(const std::string& token_file,
                                                                     const char* setting) {
  auto guard = std::make_unique<TokenGuard>();
  std::string token;
  std::string where = "HPS_TOKEN";
  if (!token_file.empty()) {
    where = absl::StrCat("[server.security] ", setting, ": ", token_file);
    HPS_ASSIGN_OR_RETURN(token, ReadFirstLine(token_file, where, kTokenBytesMax));
  } else {
    const char* const variable = std::getenv("HPS_TOKEN");
    if (variable == nullptr || *variable == '\0') return guard;
    token = variable;
  }
  if (token.empty() || token.size() > kTokenBytesMax ||
      token.find_first_of(" \t\r\n") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": the token is one line of 1 to ",
                                                   kTokenBytesMax, " bytes without blanks"));
  }
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
