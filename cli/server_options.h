// The options of the commands that change rows or ask a server (cli/arguments.h).
#pragma once

#include "cli/arguments.h"

namespace CLI {
class App;
}

namespace hps::cli {

CLI::App* AddPublish(CLI::App& app, PublishArguments& arguments);
CLI::App* AddApply(CLI::App& app, ApplyArguments& arguments);
CLI::App* AddRefresh(CLI::App& app, RefreshArguments& arguments);
CLI::App* AddSnapshot(CLI::App& app, SnapshotArguments& arguments);
CLI::App* AddParked(CLI::App& app, ParkedArguments& arguments);
CLI::App* AddTop(CLI::App& app, TopArguments& arguments);

}  // namespace hps::cli
