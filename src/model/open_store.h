// Opens a store over devices of the caller's choosing: how tests give it a level 1 without a GPU.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "hps/store.h"
#include "tier/device_cache_factory.h"

namespace hps {

// As Store::Open, which uses the factory that the build was linked with.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const Config& config, OpenMode mode,
                                                 const DeviceCacheFactory& devices);

}  // namespace hps
