// The metrics page: a snapshot as Prometheus' text format 0.0.4.
//
// docs/metrics.md lists every name. Labels are bounded: models and tables of the store, and words
// of this program; never a key, a path or a client's text.
#pragma once

#include <string>

#include "server/pages/snapshot.h"

namespace hps::server {

std::string MetricsText(const Snapshot& snapshot);

}  // namespace hps::server
