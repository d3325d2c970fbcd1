#include "tests/simulation/world.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/circuit_breaker.h"
#include "base/macros.h"
#include "l2_memory/memory_tier.h"
#include "testing/fakes/plain_tier.h"
#include "testing/faults/fault_cache.h"
#include "testing/faults/fault_tier.h"
#include "testing/host_device_cache/host_cache.h"

namespace hps {
namespace {

constexpr size_t kCaches = 2;
constexpr size_t kKeys = 24;  // nearly twice what one L1 table holds
constexpr size_t kLookupsPerSession = 80;
constexpr size_t kChanges = 60;
constexpr uint64_t kSwitchesMax = 2;
constexpr uint64_t kRestartsMax = 2;
constexpr Duration kShortTimeout = std::chrono::milliseconds(20);
constexpr size_t kYieldDepthMax = 4;

TableSpec SpecOf(const SimulatedTable& table) {
  return {.name = "m/t" + std::to_string(table.history.number()),
          .dim = static_cast<uint32_t>(table.row_bytes() / sizeof(float)),
          .default_row = {table.history.default_row().begin(), table.history.default_row().end()}};
}

}  // namespace

// A session, and what it has seen. Each run of the task is one lookup.
class SimulatedWorld::Reader final : public Task {
 public:
  Reader(SimulatedWorld& world, const SessionOptions& options) : world_(world) {
    auto session = world.factory_->NewSession(*world.model_, options);
    HPS_CHECK(session.ok());
    session_ = *std::move(session);
    for (const auto& table : world.tables_) views_.emplace_back(table->history);
    HPS_CHECK(world.executor_.Post(this).ok());
  }

  void Run() override {
    std::vector<Question> questions;
    for (uint32_t table = 0; table < world_.tables_.size(); ++table) {
      for (size_t count = world_.random_() % 3; count > 0; --count)
        questions.push_back(Draw(table));
    }
    HostLookupRequest request;
    if (world_.random_() % 8 == 0) request.hit_rate_threshold = 0.5;
    if (world_.random_() % 16 == 0) request.timeout = Duration::zero();
    if (world_.has_faults_ && world_.random_() % 8 == 0) request.timeout = kShortTimeout;
    const bool may_degrade = world_.has_faults_ || request.timeout.has_value();
    LookUp(questions, request);
    if (!may_degrade && degraded_count_ > 0)
      world_.Report("I3: a default row in place of a real one although nothing has failed");
    degraded_count_ = 0;
    if (--lookups_left_ > 0) HPS_CHECK(world_.executor_.Post(this).ok());
  }

  bool done() const { return lookups_left_ == 0; }

  // Asks for every key and expects the newest value of each.
  void CheckNewest() {
    std::vector<Question> questions;
    for (uint32_t table = 0; table < world_.tables_.size(); ++table)
      questions.push_back(Question(*world_.tables_[table], table, world_.tables_[table]->keys));
    LookUp(questions, {});
    for (const Question& question : questions) {
      for (size_t i = 0; i < question.keys.size(); ++i) {
        const TableHistory& history = world_.tables_[question.table]->history;
        const TableHistory::Value newest = history.values(question.keys[i]).back();
        const bool right = newest.absent ? question.statuses[i] == KeyStatus::kAbsent
                                         : StampedRow::Matches(history.number(), question.keys[i],
                                                               newest.version, question.row(i));
        world_.counts_.l1_hits_at_the_end += question.statuses[i] == KeyStatus::kHitL1 ? 1 : 0;
        if (right) continue;
        world_.Report(absl::StrCat("convergence: table ", history.number(), ", key ",
                                   question.keys[i], " is not the newest, ",
                                   std::string(KeyStatusName(question.statuses[i]))));
      }
    }
  }

 private:
  struct Question {
    Question(const SimulatedTable& of, uint32_t table_number, std::vector<Key> asked)
        : table(table_number),
          keys(std::move(asked)),
          row_bytes(of.row_bytes()),
          rows(keys.size() * row_bytes, std::byte{0xa5}),
          statuses(keys.size(), KeyStatus{0xa5}) {}

    std::span<const std::byte> row(size_t i) const {
      return std::span(rows).subspan(i * row_bytes, row_bytes);
    }

    uint32_t table;
    std::vector<Key> keys;
    size_t row_bytes;
    std::vector<std::byte> rows;
    std::vector<KeyStatus> statuses;
  };

  Question Draw(uint32_t table) {
    const std::vector<Key>& all = world_.tables_[table]->keys;
    std::vector<Key> keys(1 + world_.random_() % 10);
    for (Key& key : keys) key = all[world_.random_() % all.size()];
    return Question(*world_.tables_[table], table, std::move(keys));
  }

  void LookUp(std::vector<Question>& questions, HostLookupRequest request) {
    std::vector<HostTableQuery> queries;
    LookupCounts expected;
    for (Question& question : questions) {
      queries.push_back({.table = {question.table},
                         .keys = question.keys,
                         .rows = question.rows,
                         .status = question.statuses});
    }
    request.queries = queries;
    LookupCounts counts;
    const absl::Status status = session_->Lookup(request, &counts);
    if (!status.ok()) world_.Report("I5: a lookup failed: " + std::string(status.message()));
    // Positions of one call have no order among themselves: a table's are judged together.
    std::map<uint32_t, std::vector<SessionView::Answer>> answers;
    for (const Question& question : questions) {
      for (size_t i = 0; i < question.keys.size(); ++i) {
        answers[question.table].push_back(
            {question.keys[i], question.statuses[i], question.row(i)});
        const auto number = static_cast<size_t>(question.statuses[i]);
        if (number < kKeyStatusCount) ++expected.by_status[number];
      }
    }
    for (const auto& [table, of_table] : answers) world_.Report(views_[table].Judge(of_table));
    JudgeSnapshot(questions);
    if (counts.by_status != expected.by_status) world_.Report("I3: counts are not the statuses'");
    degraded_count_ += expected[KeyStatus::kDefaultDegraded];
    for (size_t i = 0; i < kKeyStatusCount; ++i)
      world_.counts_.positions.by_status[i] += expected.by_status[i];
    ++world_.counts_.lookups;
  }

  void JudgeSnapshot(std::span<const Question> questions) {
    std::set<Incarnation> seen;
    for (const Question& question : questions) {
      const uint64_t number = world_.tables_[question.table]->history.number();
      for (size_t i = 0; i < question.keys.size(); ++i) {
        const std::optional<Version> version =
            StampedRow::VersionOf(number, question.keys[i], question.row(i));
        if (version.has_value()) seen.insert(SimulatedTable::ImportOf(*version));
      }
    }
    if (seen.size() > 1) world_.Report("I2: one call saw two imports");
  }

  SimulatedWorld& world_;
  std::unique_ptr<LookupSession> session_;
  std::vector<SessionView> views_;
  size_t lookups_left_ = kLookupsPerSession;
  uint64_t degraded_count_ = 0;
};

// Imports the whole model anew now and then, and ends the process and starts it again, while there
// are readers to see it.
class SimulatedWorld::Importer final : public Task {
 public:
  Importer(SimulatedWorld& world, uint64_t switch_count, uint64_t restart_count)
      : world_(world), switches_left_(switch_count), restarts_left_(restart_count) {
    HPS_CHECK(world_.executor_.Post(this).ok());
  }

  void Run() override {
    const bool idle =
        std::ranges::all_of(world_.appliers_, [](const auto& applier) { return applier->idle(); });
    const bool read =
        std::ranges::any_of(world_.readers_, [](const auto& reader) { return !reader->done(); });
    const bool in_step = std::ranges::any_of(
        world_.appliers_, [](const auto& applier) { return applier->in_step(); });
    if (switches_left_ + restarts_left_ == 0 || !read) return;
    if (switches_left_ > 0 && idle && world_.random_() % 64 == 0) {
      --switches_left_;
      world_.SwitchModel();
    } else if (restarts_left_ > 0 && !in_step && world_.random_() % 64 == 0) {
      --restarts_left_;
      world_.Restart();
    }
    HPS_CHECK(world_.executor_.Post(this).ok());
  }

 private:
  SimulatedWorld& world_;
  uint64_t switches_left_;
  uint64_t restarts_left_;
};

SimulationCounts& SimulationCounts::operator+=(const SimulationCounts& other) {
  for (size_t i = 0; i < kKeyStatusCount; ++i)
    positions.by_status[i] += other.positions.by_status[i];
  lookups += other.lookups;
  l1_refused += other.l1_refused;
  l2_refused += other.l2_refused;
  l1_evictions += other.l1_evictions;
  l2_clears += other.l2_clears;
  l1_clears += other.l1_clears;
  l1_faults += other.l1_faults;
  l1_hits_at_the_end += other.l1_hits_at_the_end;
  switches += other.switches;
  restarts += other.restarts;
  faults += other.faults;
  return *this;
}

SimulatedWorld::SimulatedWorld(const SimulationOptions& options)
    : options_(options),
      random_(options.seed),
      executor_(options.seed + 1),
      has_faults_(options.seed % 2 == 0) {
  MakeCaches();
  SessionFactory::Options session_options{
      .fetch_executor = &executor_,
      .promote_executor = &executor_,
      .scratch_count = has_faults_ ? 2 + random_() % 8 : 48,  // few: the level is "down" at times
      .helper_spin = Duration::zero(),
      // Pieces of a few rows, and a helper for each: else no call here were large enough for any.
      .tuning = {.piece_bytes = 40 + random_() % 100,
                 .send_bytes = 100,
                 .alone_max = Duration::zero(),
                 .helper_share = Duration(1)}};
  for (const auto& cache : caches_) session_options.caches.push_back(cache.get());
  auto factory = SessionFactory::Create(session_options);
  HPS_CHECK(factory.ok());
  factory_ = *std::move(factory);
  model_ = std::make_unique<LiveModel>("m", factory_->epoch_domain(), executor_);
  MakeTable(1, 4);
  MakeTable(2, 9);
  SwitchModel();
  if (has_faults_) PlanFaults();
  for (const auto& table : tables_) {
    appliers_.push_back(
        std::make_unique<SimulatedApplier>(*table, kCaches, executor_, random_(), kChanges));
  }
  // Most lookups of those that take few keys at once are answered in pieces.
  for (const SessionOptions& session_options :
       {SessionOptions{.device = 0, .keys_max = 256}, SessionOptions{.device = 0, .keys_max = 6},
        SessionOptions{.device = 1, .keys_max = 256}, SessionOptions{.keys_max = 6}}) {
    readers_.push_back(std::make_unique<Reader>(*this, session_options));
  }
  importer_ = std::make_unique<Importer>(*this, random_() % (kSwitchesMax + 1),
                                         random_() % (kRestartsMax + 1));
}

SimulatedWorld::~SimulatedWorld() {
  for (const auto& table : tables_) {
    for (TierFaults& faults : table->l2_faults) faults.Clear();
    table->l3_faults.Clear();
  }
  for (const auto& faults : cache_faults_) faults->Clear();
  executor_.RunAll();
  readers_.clear();
  executor_.RunAll();
  for (const auto& table : tables_) table->served.reset();
  model_.reset();
}

void SimulatedWorld::MakeCaches() {
  const auto context = std::make_shared<DefectContext>();
  context->defect = options_.defect;
  context->yield = [this] { Yield(); };
  for (size_t cache = 0; cache < kCaches; ++cache) {
    auto host = MakeHostCache({.device = static_cast<int>(cache),
                               .bytes_max = 1 << 20,
                               .calls_max = 8,
                               .call_keys_max = 256,
                               .call_staging_bytes = 200});
    HPS_CHECK(host.ok());
    cache_faults_.push_back(std::make_unique<TierFaults>(&executor_));
    caches_.push_back(
        Interleaved(WithFaults(*std::move(host), cache_faults_.back().get()), context));
  }
}

void SimulatedWorld::MakeTable(uint64_t number, size_t dim) {
  tables_.push_back(std::make_unique<SimulatedTable>(
      number, std::vector<std::byte>(dim * sizeof(float), std::byte{0x3c}), &executor_));
  SimulatedTable& table = *tables_.back();
  table.keys = {INT64_MIN, -1, INT64_MAX};
  while (table.keys.size() < kKeys) table.keys.push_back(static_cast<Key>(table.keys.size()));
  std::sort(table.keys.begin(), table.keys.end());
  table.context->defect = options_.defect;
  table.context->yield = [this] { Yield(); };
  table.context->published = [&table] { return table.served->epochs().published(); };
  table.context->evicts = [this] { return random_() % 4 == 0; };
  table.context->draw_evicted = [this, &table] { return table.keys[random_() % kKeys]; };
}

// Gives the table its next incarnation, with rows of its own and empty levels above them.
void SimulatedWorld::Import(SimulatedTable& table) {
  ++table.incarnation;
  table.imported.clear();
  for (Key key : table.keys) {
    const bool absent = random_() % 4 == 0;
    table.history.Append(key, {.version = table.first_version(), .absent = absent});
    if (!absent) table.imported.push_back(key);
  }
  Serve(table, MakeL3(table));
}

// As imported.
std::unique_ptr<PlainDurableTable> SimulatedWorld::MakeL3(const SimulatedTable& table) const {
  auto l3 = std::make_unique<PlainDurableTable>(SpecOf(table), table.incarnation);
  SimulatedBatch imported(table);
  for (Key key : table.imported) imported.Add(key, table.first_version());
  HPS_CHECK(l3->Write({.upserts = imported.batch()}).ok());
  return l3;
}

void SimulatedWorld::Serve(SimulatedTable& table, std::unique_ptr<DurableTable> l3) {
  const TableSpec spec = SpecOf(table);
  LiveTable::Parts parts;
  parts.l3 = Interleaved(WithFaults(std::move(l3), &table.l3_faults), table.context);
  parts.l2.push_back(
      {.table = Interleaved(WithFaults(MakeMemory(table), &table.l2_faults[0]), table.context)});
  // Each part loses rows that the other one keeps.
  if (options_.two_parts) {
    table.l2_faults[1].set_can_block(true);
    parts.l2.push_back(
        {.table = Interleaved(WithFaults(std::make_unique<PlainLossyTable>(), &table.l2_faults[1]),
                              table.context)});
  }
  table.served = std::make_shared<LiveTable>(std::move(parts));
  for (size_t cache = 0; cache < kCaches; ++cache) {
    auto l1 = caches_[cache]->OpenTable(spec.row_bytes(),
                                        caches_[cache]->TableBytes(spec.row_bytes(), 0));
    HPS_CHECK(l1.ok());
    table.served->AttachL1(cache, Interleaved(*std::move(l1), table.context));
  }
}

std::unique_ptr<LossyTable> SimulatedWorld::MakeMemory(const SimulatedTable& table) {
  const TableSpec spec = SpecOf(table);
  MemoryTierOptions options;
  options.huge_pages = false;
  auto memory = MakeMemoryTier(options)->OpenTable(
      spec, table.incarnation, MemoryTierBytesFor(kKeys, spec.row_bytes(), options));
  HPS_CHECK(memory.ok());
  return *std::move(memory);
}

void SimulatedWorld::PublishAll() {
  std::vector<std::shared_ptr<LiveTable>> served;
  for (const auto& table : tables_) served.push_back(table->served);
  HPS_CHECK(model_->Publish(std::move(served)).ok());
}

// Imports all tables and switches to them in one step.
void SimulatedWorld::SwitchModel() {
  for (const auto& table : tables_) Import(*table);
  PublishAll();
  for (const auto& applier : appliers_) applier->OnSwitch();
  ++counts_.switches;
}

// The process ends in the middle of whatever it does, and one that starts after it serves when it
// has caught up with the stream. What was in memory is gone; answers that were under way then were
// given before it.
void SimulatedWorld::Restart() {
  for (size_t i = 0; i < tables_.size(); ++i) {
    SimulatedTable& table = *tables_[i];
    std::unique_ptr<DurableTable> l3 = Recover(table, appliers_[i]->Crash());
    CheckRecovered(table, *l3);
    Serve(table, std::move(l3));
  }
  PublishAll();
  for (const auto& applier : appliers_) applier->OnRestart();
  ++counts_.restarts;
}

// L3 after a crash that took the end of its log, caught up from the position that it has.
std::unique_ptr<DurableTable> SimulatedWorld::Recover(
    const SimulatedTable& table, const std::vector<SimulatedApplier::Change>& stream) {
  std::unique_ptr<PlainDurableTable> l3 = MakeL3(table);
  const auto write = [&](size_t offset) {
    const SimulatedApplier::Change& change = stream[offset];
    SimulatedBatch upserts(table);
    for (Key key : change.upserted) upserts.Add(key, change.version);
    const StreamPosition position{.partition = 0, .offset = offset + 1};
    HPS_CHECK(
        l3->Write(
              {.upserts = upserts.batch(), .deletes = change.deleted, .positions = {&position, 1}})
            .ok());
  };
  const size_t kept = random_() % (stream.size() + 1);
  for (size_t offset = 0; offset < kept; ++offset) write(offset);
  const auto positions = l3->Positions();
  HPS_CHECK(positions.ok());
  size_t next = positions->empty() ? 0 : positions->front().offset;
  if (options_.defect == Defect::kPositionAhead) next = stream.size();
  for (; next < stream.size(); ++next) write(next);
  return l3;
}

void SimulatedWorld::CheckRecovered(const SimulatedTable& table, DurableTable& l3) {
  std::vector<std::byte> rows(table.keys.size() * table.row_bytes());
  std::vector<FetchOutcome> outcomes(table.keys.size());
  std::vector<Version> versions(table.keys.size());
  const HostRows view{rows.data(), table.keys.size(), table.row_bytes(), table.row_bytes()};
  HPS_CHECK(l3.Fetch({table.keys, view, outcomes, versions}, kNoDeadline).ok());
  for (size_t i = 0; i < table.keys.size(); ++i) {
    const TableHistory::Value newest = table.history.values(table.keys[i]).back();
    const bool right = newest.absent
                           ? outcomes[i] == FetchOutcome::kAbsent
                           : outcomes[i] == FetchOutcome::kHit && versions[i] == newest.version;
    if (right) continue;
    Report(absl::StrCat("I4: after a restart table ", table.history.number(), ", key ",
                        table.keys[i], " has lost version ", newest.version));
  }
}

void SimulatedWorld::PlanFaults() {
  constexpr std::array kL2 = {TierOperation::kFetch, TierOperation::kInsert, TierOperation::kUpdate,
                              TierOperation::kErase, TierOperation::kClear};
  constexpr std::array kL3 = {TierOperation::kFetch, TierOperation::kWrite};
  for (const auto& table : tables_) {
    for (TierFaults& faults : table->l2_faults)
      faults.PlanBySeed(random_(), kL2, {.fail = 0.05, .fail_late = 0.05});
    table->l3_faults.PlanBySeed(random_(), kL3, {.fail = 0.05, .fail_late = 0.05});
  }
  // Mostly none for which the sessions leave the device alone for most of the history.
  const absl::Status l1_failure = options_.seed % 8 == 0
                                      ? absl::UnavailableError("a planned fault")
                                      : absl::ResourceExhaustedError("a planned fault");
  constexpr std::array kL1 = {
      TierOperation::kAcquireCall,     TierOperation::kBegin, TierOperation::kMisses,
      TierOperation::kFinish,          TierOperation::kWait,  TierOperation::kInsert,
      TierOperation::kUpdate,          TierOperation::kErase, TierOperation::kClear,
      TierOperation::kRaiseWatermarks, TierOperation::kFlush,
  };
  for (const auto& faults : cache_faults_)
    faults->PlanBySeed(random_(), kL1, {.fail = 0.02, .fail_late = 0.02, .status = l1_failure});
}

// Lets another task run in the middle of this one, as on another thread.
void SimulatedWorld::Yield() {
  if (has_faults_ && random_() % 8 == 0)
    executor_.manual_clock().Advance(std::chrono::milliseconds(random_() % 10));
  if (yield_depth_ == kYieldDepthMax || executor_.queued_count() == 0 || random_() % 2 == 0) return;
  ++yield_depth_;
  for (size_t count = 1 + random_() % 4; count > 0 && executor_.queued_count() > 0; --count)
    executor_.RunOne();
  --yield_depth_;
}

void SimulatedWorld::Report(std::optional<std::string> violation) {
  if (violation.has_value() && !violation_.has_value())
    violation_ = absl::StrCat("seed ", options_.seed, ": ", *violation);
}

std::optional<std::string> SimulatedWorld::Run() {
  executor_.RunAll();
  for (const auto& applier : appliers_) HPS_CHECK(applier->done());
  for (const auto& reader : readers_) HPS_CHECK(reader->done());
  if (!violation_.has_value()) CheckConvergence();
  return violation_;
}

void SimulatedWorld::CheckConvergence() {
  for (const auto& table : tables_) {
    for (TierFaults& faults : table->l2_faults) {
      counts_.faults +=
          faults.injected(TierOperation::kFetch) + faults.injected(TierOperation::kUpdate);
      faults.Clear();
    }
    counts_.faults += table->l3_faults.injected(TierOperation::kFetch) +
                      table->l3_faults.injected(TierOperation::kWrite);
    table->l3_faults.Clear();
  }
  for (const auto& faults : cache_faults_) {
    for (TierOperation operation : {TierOperation::kMisses, TierOperation::kFinish,
                                    TierOperation::kUpdate, TierOperation::kRaiseWatermarks})
      counts_.l1_faults += faults->injected(operation);
    faults->Clear();
  }
  executor_.manual_clock().Advance(CircuitBreaker::kRest);
  for (int round = 0; round < 2; ++round) {  // the second one meets what the first one promoted
    for (const auto& reader : readers_) reader->CheckNewest();
    executor_.RunAll();
  }
  // Else what level 1 holds in the end was not checked.
  if (counts_.l1_hits_at_the_end == 0) Report("convergence: level 1 has answered nothing");
}

SimulationCounts SimulatedWorld::Counts() const {
  SimulationCounts counts = counts_;
  for (const auto& table : tables_) {
    for (size_t cache = 0; cache < kCaches; ++cache) {
      counts.l1_refused += table->served->l1(cache)->Statistics().refused;
      counts.l1_evictions += table->served->l1(cache)->Statistics().evictions;
    }
    for (const L2Part& part : table->served->l2())
      counts.l2_refused += part.table().Statistics().refused;
  }
  for (const auto& applier : appliers_) {
    counts.l2_clears += applier->clear_count();
    counts.l1_clears += applier->l1_clear_count();
  }
  return counts;
}

}  // namespace hps
