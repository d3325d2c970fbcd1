// What the dashboard and `hps top` show, as JSON. docs/overview_api.md describes every member.
//
// Counters are sums since the process began: a client that shows rates asks twice.
#pragma once

#include <string>

#include "server/pages/snapshot.h"

namespace hps::server {

// Grows when a member changes its meaning or goes; new members don't count.
inline constexpr int kOverviewVersion = 1;

std::string OverviewJson(const Snapshot& snapshot);

}  // namespace hps::server
