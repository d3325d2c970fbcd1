// Settings of the Kafka client library, as a configuration gives them ([update.kafka]): checked by
// name, with secrets read from where they are kept.
//
// All of librdkafka's settings pass but those that hps itself depends on; such a setting is refused
// by its name. A value "env:NAME" is that of an environment variable, "file:PATH" the content of a
// file without its last newline. An unknown name or a wrong value is found when a client is made.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps {

class KafkaSettings {
 public:
  using Map = std::map<std::string, std::string>;

  // Relative paths are relative to `directory`; empty = the working directory.
  // Errors: INVALID_ARGUMENT (a refused name, with what to do instead; a name that is none),
  // NOT_FOUND (variable or file), RESOURCE_EXHAUSTED (a file of more than 64 KiB), and others of
  // reading a file. No message has a value in it.
  static absl::StatusOr<KafkaSettings> Make(const Map& settings, const std::string& directory = {});

  KafkaSettings() = default;

  // As the client library takes them. Never to be printed.
  const Map& values() const { return values_; }

  // Of the files with passwords and keys. Errors: CheckSecretFile's (base/secret_file.h).
  absl::Status CheckSecretFiles(std::optional<bool> allowed) const;

 private:
  Map values_;
  Map secret_files_;  // by setting
};

// Settings as they may be printed: values of names with "password", "secret" or "key" are "***".
KafkaSettings::Map PrintableKafkaSettings(const KafkaSettings::Map& settings);

}  // namespace hps
