// Starts reading the configured update stream.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "hps/config.h"
#include "tier/durable_tier.h"
#include "update/shared_writer.h"
#include "update/stream_reader.h"
#include "update/update_service.h"

namespace hps {

// Null without brokers. Both services are borrowed.
// Errors: INVALID_ARGUMENT (a setting of [update] or [update.kafka]), UNIMPLEMENTED (a build
// without Kafka), RESOURCE_EXHAUSTED (threads), those of opening the file of parked messages.
absl::StatusOr<std::unique_ptr<StreamReader>> StartUpdateStream(const Config& config,
                                                                UpdateService& updates,
                                                                DurableStore& store);

// Starts writing into a level 2 that nodes share. Null without `[update] shared_group`. `registry`
// is borrowed. Errors: as StartUpdateStream.
absl::StatusOr<std::unique_ptr<SharedWriter>> StartSharedWriter(const Config& config,
                                                                ModelRegistry& registry);

}  // namespace hps
