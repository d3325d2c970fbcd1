// Opens a store with a given device cache factory. Tests use it to have a level 1 without a GPU.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "hps/store.h"
#include "tier/device_cache_factory.h"

namespace hps {

// As Store::Open, which uses the factory that is linked into the build.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const Config& config, OpenMode mode,
                                                 const DeviceCacheFactory& devices);

}  // namespace hps
