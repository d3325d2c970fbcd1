// What the metrics and the overview say of changes of rows and of the update stream.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/pages/metric_list.h"
#include "server/pages/snapshot.h"

namespace hps::server {

void AddUpdateMetrics(const Snapshot& snapshot, MetricList& list);

// The member `updates` of the overview.
nlohmann::ordered_json UpdatesJson(const Snapshot& snapshot);

// The member `stream`; null without an update stream.
nlohmann::ordered_json StreamJson(const Snapshot& snapshot);

}  // namespace hps::server
