// What the server calls itself and says that it can do, over every protocol.
#pragma once

#include <array>
#include <string_view>

namespace hps::server {

inline constexpr std::string_view kServerName = "hps";

// The extensions of the v2 protocol that it serves.
inline constexpr std::array<std::string_view, 5> kServerExtensions = {
    "binary_tensor_data", "parameters", "statistics", "model_configuration", "model_repository"};

// That of the project.
std::string_view ServerVersion();

}  // namespace hps::server
