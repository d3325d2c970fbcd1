// Which pictures a report gets. Decided by what its results have, not by the scenario: a new
// scenario has its plots without a line of code here.
//
// Results of one name that differ in a number that was asked for (load, concurrency, keys, ...) are
// lines over that number: figure with bound, latencies, and the distribution of latencies. Results
// that tell what became of what was offered are bars. Every target that was judged is in one
// picture.
#pragma once

#include <span>
#include <vector>

#include "bench/plot.h"
#include "bench/scenario.h"

namespace hps::bench {

struct ReportPlots {
  MarginPlot margins;  // may be empty
  std::vector<Plot> plots;
  std::vector<BarPlot> bars;
};

ReportPlots PlotsOf(std::span<const Result> results);

// A name with its parameters, for people: "open loop, load=2, protocol=http".
std::string TitleOf(const Result& result);

}  // namespace hps::bench
