// What the server shows: the dashboard and its assets, the metrics, the JSON behind `hps top`.
//
// The metrics, the overview and the history are made anew at most four times a second, however many
// ask: a crowd of open dashboards costs no more than one.
//
// Thread-safe: one lock is held while such a text is made, another while a row is looked up.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "hps/config.h"
#include "hps/store.h"
#include "server/core/model_repository.h"
#include "server/core/page_source.h"
#include "server/core/protocol_server.h"

namespace hps::server {

class History;

// All borrowed; they outlive the pages.
struct PageParts {
  const Config* config = nullptr;
  Store* store = nullptr;
  const StatisticsSource* statistics = nullptr;
  const ModelRepository* repository = nullptr;
  const History* history = nullptr;  // null: there is no /api/history
  const Clock* clock = &RealClock();
};

std::unique_ptr<PageSource> MakePages(const PageParts& parts);

}  // namespace hps::server
