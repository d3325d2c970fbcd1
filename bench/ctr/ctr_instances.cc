#include "bench/ctr/ctr_instances.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "bench/ctr/ctr_network.h"
#include "bench/dlrm/click_model.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/scratch.h"
#include "hps/store.h"
#include "inference/batch_executor.h"
#include "inference/request_plan.h"
#include "network/dense_network.h"

namespace hps::bench {
namespace {

constexpr uint32_t kDim = 128;
constexpr double kAlpha = 1.05;
constexpr double kScale = 0.01;  // of the rows of large tables: half a million rows of all
constexpr double kQuickScale = 0.001;
constexpr size_t kInstancesMax = 8;
constexpr size_t kSamplesMax = 65'536;  // of a request: its keys are one lookup
constexpr size_t kKeySets = 4;          // of an instance, in rotation
constexpr auto kTimeout = std::chrono::seconds(20);

struct Case {
  size_t samples = 0;
  std::vector<size_t> instances;
  DenseMath math = DenseMath::kFloat32;

  std::string MathName() const {
    return math == DenseMath::kFloat32 ? "float32" : math == DenseMath::kTf32 ? "tf32" : "float16";
  }
  std::string Name() const { return absl::StrCat("batch=", samples, " math=", MathName()); }
};

// A session on a device that has no room for rows: they go through the host.
class HostRowsSession final : public DenseSession {
 public:
  explicit HostRowsSession(std::unique_ptr<DenseSession> session) : session_(std::move(session)) {}
  absl::Status Run(std::span<const DenseTensor> inputs,
                   std::span<const DenseTensor> outputs) override {
    return session_->Run(inputs, outputs);
  }

 private:
  const std::unique_ptr<DenseSession> session_;
};

class HostRowsNetwork final : public DenseNetwork {
 public:
  explicit HostRowsNetwork(std::unique_ptr<DenseNetwork> network) : network_(std::move(network)) {}
  std::span<const OnnxValue> inputs() const override { return network_->inputs(); }
  std::span<const OnnxValue> outputs() const override { return network_->outputs(); }
  absl::StatusOr<std::unique_ptr<DenseSession>> NewSession() override {
    HPS_ASSIGN_OR_RETURN(std::unique_ptr<DenseSession> session, network_->NewSession());
    return std::make_unique<HostRowsSession>(std::move(session));
  }

 private:
  const std::unique_ptr<DenseNetwork> network_;
};

absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeWithHostRows(const ModelNetwork& network,
                                                               const DeviceDenseOptions& options) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<DenseNetwork> made,
                       MakeDeviceDenseNetwork(network, options));
  return std::make_unique<HostRowsNetwork>(std::move(made));
}

// The store with level 1 on a GPU, and the model's tables in it.
class CtrStore {
 public:
  static absl::StatusOr<std::unique_ptr<CtrStore>> Create(const std::string& directory,
                                                          double scale, int device) {
    auto store = std::unique_ptr<CtrStore>(new CtrStore(directory, scale, device));
    RemoveScratch(directory);
    HPS_RETURN_IF_ERROR(MakeScratch(directory));
    Config& config = store->config_;
    config.store.path = directory + "/store";
    config.l1.devices_auto = false;
    for (size_t table = 0; table < store->tables_.table_count(); ++table)
      HPS_RETURN_IF_ERROR(store->ImportTable(table));
    config.l1.devices = {device};
    config.l1.bytes_max = 4 * store->tables_.row_count() * store->tables_.row_bytes();
    config.l1.preload = 1;
    config.l1.call_keys_max = static_cast<uint32_t>(store->tables_.table_count() * kSamplesMax);
    config.l2.bytes_max = 2 * store->tables_.row_count() * store->tables_.row_bytes();
    config.l2.preload = 1;
    HPS_ASSIGN_OR_RETURN(store->store_, Store::Open(config, OpenMode::kReadOnly));
    return store;
  }
  ~CtrStore() {
    store_.reset();
    RemoveScratch(directory_);
  }
  CtrStore(const CtrStore&) = delete;
  CtrStore& operator=(const CtrStore&) = delete;

  const ClickModel& tables() const { return tables_; }

  size_t call_keys_max() const { return config_.l1.call_keys_max; }

  absl::StatusOr<ModelVersionRef> OpenVersion(DenseMath math, const MakeOnDevice& make) {
    std::vector<std::string> names;
    for (size_t i = 0; i < tables_.table_count(); ++i) names.push_back(ClickModel::TableName(i));
    const auto network = std::make_shared<const ModelNetwork>(MakeCtrNetwork(names, kDim));
    HPS_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> model, store_->models().Open(kClickModel));
    HPS_ASSIGN_OR_RETURN(std::unique_ptr<Predictor> predictor,
                         Predictor::Make(network, model->tables(),
                                         {.devices = {device_},
                                          .session_count = kInstancesMax,
                                          .math = math,
                                          .call_keys_max = config_.l1.call_keys_max,
                                          .make = make},
                                         kClickModel));
    return ModelVersion::Make(
        std::move(model),
        {.slot_count = kInstancesMax, .devices = {device_}, .keys_max = config_.l1.call_keys_max},
        std::move(predictor));
  }

 private:
  CtrStore(std::string directory, double scale, int device)
      : directory_(std::move(directory)), device_(device), tables_({.scale = scale, .dim = kDim}) {}

  absl::Status ImportTable(size_t table) const {
    std::vector<Key> keys(tables_.rows(table));
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = tables_.KeyOf(table, i + 1);
    std::vector<float> rows(keys.size() * kDim);
    std::minstd_rand random(static_cast<uint32_t>(table) + 1);
    for (float& value : rows) value = static_cast<float>(random() % 2048) * 1e-4F - 0.1F;
    ImportRequest request;
    request.name = absl::StrCat(kClickModel, "/", ClickModel::TableName(table));
    request.memory = {.keys = keys, .rows = AsBytes(std::span<const float>(rows)), .dim = kDim};
    return ImportTables(config_, request).status();
  }

  const std::string directory_;
  const int device_;
  const ClickModel tables_;
  Config config_;
  std::unique_ptr<Store> store_;
};

// What one instance asks for again and again, and what it measures. For one thread.
class Instance {
 public:
  Instance(const ClickModel& tables, size_t slot, size_t samples, size_t keys_max)
      : tables_(tables),
        samples_(samples),
        executor_({.slot = slot, .keys_max = keys_max, .clock = &RealClock()}),
        dense_(samples * kCtrDense) {
    std::minstd_rand random(static_cast<uint32_t>(slot) + 1);
    for (float& value : dense_) value = static_cast<float>(random() % 2048) * 1e-3F - 1;
    ClickStream stream(tables, kAlpha, slot + 1);
    std::vector<uint64_t> places;
    for (size_t i = 0; i < kKeySets; ++i) stream.Next(samples, &keys_.emplace_back(), &places);
    for (size_t i = 0; i < tables.table_count(); ++i) names_.push_back(ClickModel::TableName(i));
  }

  // One request, as the server answers it.
  absl::Status Predict(ModelVersion& version) {
    const Stopwatch watch;
    MakeRequest(keys_[run_++ % kKeySets]);
    HPS_RETURN_IF_ERROR(PlanRequest(version, limits_, request_, outputs_, plan_));
    memory_.resize(outputs_.front().byte_count / sizeof(float));
    outputs_.front().data = std::as_writable_bytes(std::span(memory_)).data();
    ExecutionPlan* const plan = &plan_;
    const double planned_us = watch.us();
    HPS_RETURN_IF_ERROR(
        executor_.LookUp(version, {&plan, 1}, {.deadline = DeadlineAfter(RealClock(), kTimeout)}));
    const double looked_up_us = watch.us();
    HPS_RETURN_IF_ERROR(executor_.Predict(version, {&plan, 1}));
    const LookupCounts& counts = executor_.counts();
    hits_ += counts[KeyStatus::kHitL1];
    key_total_ += counts.total();
    latencies_us_.push_back(watch.us());
    lookups_us_.push_back(looked_up_us - planned_us);
    networks_us_.push_back(watch.us() - looked_up_us);
    return absl::OkStatus();
  }

  void Forget() {
    latencies_us_.clear();
    lookups_us_.clear();
    networks_us_.clear();
    hits_ = key_total_ = 0;
  }
  std::span<const double> latencies_us() const { return latencies_us_; }
  std::span<const double> lookups_us() const { return lookups_us_; }
  std::span<const double> networks_us() const { return networks_us_; }
  uint64_t hits() const { return hits_; }
  uint64_t key_total() const { return key_total_; }

 private:
  void MakeRequest(const std::vector<Key>& keys) {
    request_.inputs.clear();
    const auto samples = static_cast<int64_t>(samples_);
    for (size_t i = 0; i < tables_.table_count(); ++i) {
      InputTensor& input = request_.inputs.emplace_back();
      input.name = names_[i];
      input.shape = {.dims = {samples}, .dim_count = 1};
      input.bytes = AsBytes(std::span(keys).subspan(i * samples_, samples_));
    }
    InputTensor& dense = request_.inputs.emplace_back();
    dense.name = kCtrDenseInput;
    dense.datatype = Datatype::kFp32;
    dense.shape = {.dims = {samples, static_cast<int64_t>(kCtrDense)}, .dim_count = 2};
    dense.bytes = AsBytes(std::span<const float>(dense_));
  }

  const ClickModel& tables_;
  const size_t samples_;
  const PlanLimits limits_ = {.response_bytes_max = uint64_t{1} << 30};
  BatchExecutor executor_;
  std::vector<std::string> names_;
  std::vector<std::vector<Key>> keys_;
  std::vector<float> dense_;
  std::vector<float> memory_;
  TensorRequest request_;
  std::vector<OutputTensor> outputs_;
  ExecutionPlan plan_;
  size_t run_ = 0;
  std::vector<double> latencies_us_;
  std::vector<double> lookups_us_;   // of them: the keys' way to the device, and the lookup
  std::vector<double> networks_us_;  // of them: the network, until the scores are there
  uint64_t hits_ = 0;
  uint64_t key_total_ = 0;
};

struct Rate {
  double samples_per_s = 0;
  double p50_us = 0;
  double p99_us = 0;
  double lookup_us = 0;
  double network_us = 0;
  double hit_rate = 0;
  uint64_t runs = 0;
};

// All instances at once, each with one request after the other.
absl::StatusOr<Rate> MeasureRate(ModelVersion& version,
                                 std::span<const std::unique_ptr<Instance>> all, size_t samples,
                                 double seconds) {
  Mutex mutex;
  absl::Status failed;
  const auto run_for = [&](double run_seconds) {
    return RunOnThreads(all.size(), [&](size_t i) {
      const Stopwatch watch;
      do {
        if (absl::Status status = all[i]->Predict(version); !status.ok()) {
          const MutexLock lock(mutex);
          failed.Update(status);
          return;
        }
      } while (watch.seconds() < run_seconds);
    });
  };
  run_for(seconds / 2);  // fills level 1 where it lacks rows, and makes all memory
  for (const auto& instance : all) instance->Forget();
  const double took = run_for(seconds);
  HPS_RETURN_IF_ERROR(failed);
  std::vector<double> latencies, lookups, networks;
  uint64_t hits = 0;
  uint64_t keys = 0;
  for (const auto& instance : all) {
    latencies.insert(latencies.end(), instance->latencies_us().begin(),
                     instance->latencies_us().end());
    lookups.insert(lookups.end(), instance->lookups_us().begin(), instance->lookups_us().end());
    networks.insert(networks.end(), instance->networks_us().begin(), instance->networks_us().end());
    hits += instance->hits();
    keys += instance->key_total();
  }
  return Rate{
      .samples_per_s = static_cast<double>(latencies.size() * samples) / took,
      .p50_us = Median(latencies),
      .p99_us = Quantile(latencies, 0.99),
      .lookup_us = Median(lookups),
      .network_us = Median(networks),
      .hit_rate = static_cast<double>(hits) / static_cast<double>(std::max<uint64_t>(keys, 1)),
      .runs = latencies.size()};
}

Result ResultOf(const Rate& rate, const Rate& through_host, const Case& of, size_t instances,
                double one_per_s) {
  Result result =
      MakeResult("predict_device", "samples/s", rate.samples_per_s, through_host.samples_per_s);
  result.params = {{"batch", absl::StrCat(of.samples)},
                   {"dim", absl::StrCat(kDim)},
                   {"instances", absl::StrCat(instances)},
                   {"math", of.MathName()},
                   {"tables", "26"}};
  result.p50 = rate.p50_us;
  result.p99 = rate.p99_us;
  result.runs = rate.runs;
  result.measured = {{"of_one_instance", rate.samples_per_s / one_per_s},
                     {"l1_hit_rate", rate.hit_rate},
                     {"lookup_p50_us", rate.lookup_us},
                     {"network_p50_us", rate.network_us},
                     {"host_rows_p50_us", through_host.p50_us}};
  return result;
}

absl::Status MeasureCase(CtrStore& store, const Case& of, double seconds,
                         std::vector<Result>& results) {
  HPS_ASSIGN_OR_RETURN(const ModelVersionRef on_device,
                       store.OpenVersion(of.math, MakeDeviceDenseNetwork));
  HPS_ASSIGN_OR_RETURN(const ModelVersionRef through_host,
                       store.OpenVersion(of.math, MakeWithHostRows));
  double one_per_s = 0;
  for (const size_t count : of.instances) {
    std::vector<std::unique_ptr<Instance>> instances;
    for (size_t slot = 0; slot < count; ++slot) {
      instances.push_back(
          std::make_unique<Instance>(store.tables(), slot, of.samples, store.call_keys_max()));
    }
    HPS_ASSIGN_OR_RETURN(const Rate host,
                         MeasureRate(*through_host, instances, of.samples, seconds / 2));
    HPS_ASSIGN_OR_RETURN(const Rate rate, MeasureRate(*on_device, instances, of.samples, seconds));
    if (one_per_s == 0) one_per_s = rate.samples_per_s;
    results.push_back(ResultOf(rate, host, of, count, one_per_s));
  }
  const NetworkRuns runs = on_device->predictor()->runs();
  if (runs.on_cpu + runs.device_failures == 0 && runs.on_devices > 0) return absl::OkStatus();
  return absl::InternalError("bench ctr: the network did not run on the device alone");
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunCtrOnDevice(const Options& options) {
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<CtrStore> store,
                       CtrStore::Create(options.directory + "/ctr_device",
                                        options.quick ? kQuickScale : kScale, options.device));
  std::vector<Case> cases;
  for (const DenseMath math : {DenseMath::kFloat32, DenseMath::kTf32, DenseMath::kFloat16}) {
    if (options.quick) {
      cases.push_back({.samples = 64, .instances = {1, 2}, .math = math});
      continue;
    }
    cases.push_back({.samples = 1024, .instances = {1, 2, 4, 8}, .math = math});
    cases.push_back({.samples = kSamplesMax, .instances = {1, 2, 4}, .math = math});
  }
  std::erase_if(cases,
                [&](const Case& of) { return of.Name().find(options.only) == std::string::npos; });
  if (cases.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no case has '", options.only, "' in its name, as in \"batch=1024 math=tf32\""));
  }
  std::vector<Result> results;
  for (const Case& of : cases)
    HPS_RETURN_IF_ERROR(MeasureCase(*store, of, options.quick ? 0.05 : 1.0, results));
  return results;
}

}  // namespace hps::bench
