// How the lists of settings are written, and the lists that are in files of their own.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "hps/config.h"
#include "model/config_settings.h"

namespace hps {

inline constexpr auto kHour = std::chrono::hours(1);
inline constexpr uint64_t kSizeMax = uint64_t{1} << 50;  // 1 PiB: beyond every machine

struct SettingDescription {
  std::string_view section;
  std::string_view name;
  std::string_view meaning;
  std::string_view awaits{};
};

// A setting whose value is one member, `member(target)`, read, checked and printed by `Codec`.
template <typename Target, typename Codec, typename Member>
Setting<Target> MakeSetting(const SettingDescription& description, Codec codec, Member member) {
  Setting<Target> setting;
  setting.section = description.section;
  setting.name = description.name;
  setting.type = codec.type();
  setting.meaning = description.meaning;
  setting.awaits = description.awaits;
  setting.read = [codec, member](const ConfigValue& value, const std::string& directory,
                                 Target& target) {
    return codec.Read(value, directory, member(target));
  };
  setting.check = [codec, member](const Target& target) { return codec.Check(member(target)); };
  setting.print = [codec, member](const Target& target) { return codec.Print(member(target)); };
  return setting;
}

// [server] and the sections below it, and [log].
std::vector<Setting<Config>> ServerSettings();

// What body_bytes_max is where it is not set: its default, or the largest that CheckServer allows
// beside the other settings.
uint64_t DefaultBodyBytesMax(const ServerConfig& config);

// What no setting can check alone. Errors: INVALID_ARGUMENT.
absl::Status CheckServer(const ServerConfig& config);

}  // namespace hps
