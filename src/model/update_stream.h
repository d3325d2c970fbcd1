// Starts reading the configured update stream.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "hps/config.h"
#include "tier/durable_tier.h"
#include "update/stream_reader.h"
#include "update/update_service.h"

namespace hps {

// Null without brokers. Both services are borrowed.
// Errors: INVALID_ARGUMENT (a setting of [update] or [update.kafka]), UNIMPLEMENTED (a build
// without Kafka), RESOURCE_EXHAUSTED (threads), those of opening the file of parked messages.
absl::StatusOr<std::unique_ptr<StreamReader>> StartUpdateStream(const Config& config,
                                                                UpdateService& updates,
                                                                DurableStore& store);

}  // namespace hps
