// A whole node in one thread: two tables, each with L1 on two devices, L2 and L3; sessions that
// look up, appliers that change rows, imports that replace
// the whole model, promotions, evictions and faults, all interleaved by a seed
// on a clock that moves only when nothing else can. Everything but L3 and the write path is the
// code that serves; L3 is a map, and the write path is tests/simulation/applier.h.
//
// After every lookup the answers are judged (history.h): I1 a row is one value once written for
// its key, I2 no session sees a key go back and no call two imports, I3 what is absent was so, and
// defaults are flagged, I5 a failed level fails no lookup; and after a restart, which may take the
// end of what L3 had written, I4: what was taken from the stream is there. At the end, when the
// faults are over, every session must see the newest value of every key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "query/session_factory.h"
#include "serving/live_model.h"
#include "testing/fakes/manual_executor.h"
#include "testing/fakes/plain_tier.h"
#include "tests/simulation/applier.h"
#include "tests/simulation/simulated_table.h"

namespace hps {

struct SimulationOptions {
  uint64_t seed = 1;
  Defect defect = Defect::kNone;
  bool two_parts = false;  // level 2 is memory and a part that can block
};

// What happened, to see that a simulation is not idle.
struct SimulationCounts {
  LookupCounts positions;
  uint64_t lookups = 0;
  uint64_t l1_refused = 0;  // promotions that the fence kept out
  uint64_t l2_refused = 0;
  uint64_t l1_evictions = 0;
  uint64_t l2_clears = 0;
  uint64_t l1_clears = 0;
  uint64_t l1_faults = 0;
  uint64_t l1_hits_at_the_end = 0;
  uint64_t switches = 0;
  uint64_t restarts = 0;
  uint64_t faults = 0;

  SimulationCounts& operator+=(const SimulationCounts& other);
};

class SimulatedWorld {
 public:
  explicit SimulatedWorld(const SimulationOptions& options);
  ~SimulatedWorld();

  // Runs the history to its end. nullopt = no invariant was broken; else which one, where.
  std::optional<std::string> Run();

  SimulationCounts Counts() const;

 private:
  class Reader;
  class Importer;

  void MakeCaches();
  void MakeTable(uint64_t number, size_t dim);
  void Import(SimulatedTable& table);
  std::unique_ptr<PlainDurableTable> MakeL3(const SimulatedTable& table) const;
  void Serve(SimulatedTable& table, std::unique_ptr<DurableTable> l3);
  static std::unique_ptr<LossyTable> MakeMemory(const SimulatedTable& table);
  void PlanFaults();
  void SwitchModel();
  void Restart();
  std::unique_ptr<DurableTable> Recover(const SimulatedTable& table,
                                        const std::vector<SimulatedApplier::Change>& stream);
  void CheckRecovered(const SimulatedTable& table, DurableTable& l3);
  void PublishAll();
  void Yield();
  void Report(std::optional<std::string> violation);
  void CheckConvergence();

  const SimulationOptions options_;
  std::mt19937_64 random_;
  ManualExecutor executor_;
  const bool has_faults_;
  size_t yield_depth_ = 0;
  std::vector<std::unique_ptr<TierFaults>> cache_faults_;
  std::vector<std::unique_ptr<DeviceCache>> caches_;
  std::unique_ptr<SessionFactory> factory_;
  std::vector<std::unique_ptr<SimulatedTable>> tables_;
  std::unique_ptr<LiveModel> model_;
  std::vector<std::unique_ptr<SimulatedApplier>> appliers_;
  std::vector<std::unique_ptr<Reader>> readers_;
  std::unique_ptr<Importer> importer_;
  SimulationCounts counts_;
  std::optional<std::string> violation_;  // the first
};

}  // namespace hps
