#include "update/kafka_settings.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/secret_file.h"

namespace hps {
namespace {

constexpr size_t kValueBytesMax = size_t{64} << 10;
constexpr std::string_view kFile = "file:";

struct Refused {
  std::string_view name;  // ending with '*': a prefix
  std::string_view why;
};
constexpr std::string_view kOurs = "hps sets it";
constexpr std::string_view kCode = "it would run code or a command of the setting's choice";
constexpr std::array kRefused = {
    Refused{"bootstrap.servers", "set the brokers instead ([update] brokers)"},
    Refused{"metadata.broker.list", "set the brokers instead ([update] brokers)"},
    Refused{"group.*", "every node reads everything, in a group of its own"},
    Refused{"enable.auto.commit", "positions are kept in the store"},
    Refused{"auto.commit.*", "positions are kept in the store"},
    Refused{"enable.auto.offset.store", "positions are kept in the store"},
    Refused{"offset.store.*", "positions are kept in the store"},
    Refused{"auto.offset.reset", "positions are kept in the store"},
    Refused{"check.crcs", "checksums are always checked"},
    Refused{"allow.auto.create.topics", "topics are made by their operator"},
    Refused{"enable.partition.eof", kOurs},
    Refused{"max.poll.interval.ms", kOurs},
    Refused{"delivery.timeout.ms", kOurs},
    Refused{"message.timeout.ms", kOurs},
    Refused{"queue.buffering.max.*", kOurs},
    Refused{"enable.idempotence", "producers are always idempotent"},
    Refused{"acks", "producers wait for all in-sync replicas"},
    Refused{"request.required.acks", "producers wait for all in-sync replicas"},
    Refused{"transactional.id", "producers use no transactions"},
    Refused{"partitioner", "the partition is a function of the key"},
    Refused{"consistent.*", "the partition is a function of the key"},
    Refused{"plugin.library.paths", kCode},
    Refused{"ssl.engine.location", kCode},
    Refused{"sasl.kerberos.kinit.cmd", kCode},
};

bool Matches(std::string_view name, std::string_view pattern) {
  if (!pattern.ends_with('*')) return name == pattern;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
}

absl::Status CheckName(const std::string& name) {
  if (name.empty() || !std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Kafka setting '", name, "': names have lower-case letters, digits and dots"));
  }
  std::string_view plain = name;
  if (plain.starts_with("topic.")) plain.remove_prefix(6);  // another way to name the same setting
  for (const Refused& refused : kRefused) {
    if (Matches(name, refused.name) || Matches(plain, refused.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("Kafka setting '", name, "' can't be set: ", std::string(refused.why)));
    }
  }
  return absl::OkStatus();
}

bool IsSecret(const std::string& name) {
  constexpr std::array<std::string_view, 3> kWords = {"password", "secret", "key"};
  return std::any_of(kWords.begin(), kWords.end(), [&name](std::string_view word) {
    return name.find(word) != std::string::npos;
  });
}

absl::StatusOr<std::string> ReadValueFile(const std::string& name,
                                          const std::filesystem::path& path) {
  const std::string what = absl::StrCat("Kafka setting '", name, "': file ", path.string());
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::NotFoundError(absl::StrCat(what, " does not exist or is not a regular file"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat(what, " can't be opened"));
  std::string value(kValueBytesMax + 1, '\0');
  file.read(value.data(), static_cast<std::streamsize>(value.size()));
  if (file.bad()) return absl::UnavailableError(absl::StrCat(what, " can't be read"));
  value.resize(static_cast<size_t>(file.gcount()));
  if (value.size() > kValueBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " has more than ", kValueBytesMax, " bytes"));
  }
  if (value.ends_with('\n')) value.pop_back();
  if (value.ends_with('\r')) value.pop_back();
  return value;
}

absl::StatusOr<std::string> Resolve(const std::string& name, const std::string& value,
                                    const std::string& directory) {
  constexpr std::string_view kVariable = "env:";
  if (value.starts_with(kVariable)) {
    const std::string variable = value.substr(kVariable.size());
    const char* const found = std::getenv(variable.c_str());
    if (found != nullptr) return std::string(found);
    return absl::NotFoundError(absl::StrCat("Kafka setting '", name, "': environment variable '",
                                            variable, "' is not set"));
  }
  if (!value.starts_with(kFile)) return value;
  return ReadValueFile(name, std::filesystem::path(directory) / value.substr(kFile.size()));
}

}  // namespace

absl::StatusOr<KafkaSettings> KafkaSettings::Make(const Map& settings,
                                                  const std::string& directory) {
  KafkaSettings made;
  for (const auto& [name, value] : settings) {
    HPS_RETURN_IF_ERROR(CheckName(name));
    HPS_ASSIGN_OR_RETURN(std::string resolved, Resolve(name, value, directory));
    const bool is_path = name.ends_with(".location") || name == "sasl.kerberos.keytab";
    if (IsSecret(name) && value.starts_with(kFile)) {
      made.secret_files_[name] = std::filesystem::path(directory) / value.substr(kFile.size());
    } else if (IsSecret(name) && is_path) {
      made.secret_files_[name] = resolved;
    }
    made.values_.emplace(name, std::move(resolved));
  }
  return made;
}

absl::Status KafkaSettings::CheckSecretFiles(std::optional<bool> allowed) const {
  for (const auto& [name, path] : secret_files_) {
    HPS_RETURN_IF_ERROR(CheckSecretFile(absl::StrCat("Kafka setting '", name, "'"), path, allowed));
  }
  return absl::OkStatus();
}

KafkaSettings::Map PrintableKafkaSettings(const KafkaSettings::Map& settings) {
  KafkaSettings::Map printable = settings;
  for (auto& [name, value] : printable) {
    if (IsSecret(name)) value = "***";
  }
  return printable;
}

}  // namespace hps
