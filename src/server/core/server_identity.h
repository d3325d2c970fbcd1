// What the server calls itself and says that it can do, over every protocol.
#pragma once

#include <array>
#include <string_view>

namespace hps::server {

inline constexpr std::string_view kServerName = "hps";

// What serves a model, as its metadata and its configuration say: Triton names a model of a backend
// by the backend, and its configuration has no platform then.
inline constexpr std::string_view kModelPlatform = kServerName;
inline constexpr std::string_view kModelBackend = kServerName;

// The extensions of the v2 protocol that it serves.
inline constexpr std::array<std::string_view, 5> kServerExtensions = {
    "binary_tensor_data", "parameters", "statistics", "model_configuration", "model_repository"};

// That of the project.
std::string_view ServerVersion();

}  // namespace hps::server
