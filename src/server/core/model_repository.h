// The models that the server answers for: their metadata, state, loading and unloading.
//
// A model's version is the number of its switch; only the newest is served. A load commits what
// was imported beside the server and switches; running calls end on the old version.
//
// Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/model_metadata.h"

namespace hps::server {

enum class ModelState : uint8_t { kReady, kLoading, kUnavailable };
// By state, as in Triton's index.
inline constexpr std::array kModelStateNames = {"READY", "LOADING", "UNAVAILABLE"};

struct ModelIndexEntry {
  std::string name;
  std::string version;  // empty when it never served
  ModelState state = ModelState::kUnavailable;
  std::string reason;  // why it is not ready
};

// Triton's clients may send a configuration and files with a load. They would have no effect here,
// and the client would not notice.
absl::Status LoadTakesNoParameters();

class ModelRepository {
 public:
  virtual ~ModelRepository() = default;

  virtual std::vector<ModelIndexEntry> Index() const = 0;
  // Errors: NOT_FOUND, which names the nearest model; UNAVAILABLE, with the reason, when not ready.
  virtual absl::StatusOr<ModelMetadata> Metadata(std::string_view model,
                                                 std::string_view version) const = 0;
  // All models of the configuration are loaded, and the server does not drain.
  virtual bool ServerReady() const = 0;
  // Errors: NOT_FOUND; those of ModelManager::Load. PERMISSION_DENIED is the codecs' business.
  virtual absl::Status Load(std::string_view model) = 0;
  // Returns when its last running call has ended and its memory has been given back.
  virtual absl::Status Unload(std::string_view model) = 0;
};

}  // namespace hps::server
