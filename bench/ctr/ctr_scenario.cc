// What a prediction costs through the library: DLRM of 26 tables on the CPU, all rows in level 2;
// with --device on a GPU (ctr_instances.h).
//
// "predict": the look-up of all tables and the dense network, in us, beside the network alone on
// rows that are in memory already. tools/bench_ctr_torch.py has the same model in PyTorch.
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "bench/ctr/ctr_instances.h"
#include "bench/ctr/ctr_network.h"
#include "bench/dlrm/click_model.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "bench/scratch.h"
#include "hps/store.h"
#include "inference/predictor.h"
#include "network/dense_network.h"

namespace hps::bench {
namespace {

constexpr uint32_t kDim = 32;
constexpr double kAlpha = 1.05;
constexpr double kScale = 0.05;  // of the rows of large tables: two million rows of all
constexpr double kQuickScale = 0.002;
constexpr auto kTimeout = std::chrono::seconds(60);
constexpr size_t kBatchMax = 1024;
constexpr size_t kKeySets = 16;  // in rotation

struct BatchSize {
  size_t samples = 0;
  size_t runs = 0;
};

// The store, the network and a session of each: what a server has for one lookup slot.
class CtrModel {
 public:
  static absl::StatusOr<std::unique_ptr<CtrModel>> Create(const std::string& directory,
                                                          double scale) {
    auto model = std::unique_ptr<CtrModel>(new CtrModel(directory, scale));
    RemoveScratch(directory);
    HPS_RETURN_IF_ERROR(MakeScratch(directory));
    for (size_t table = 0; table < model->tables_.table_count(); ++table)
      HPS_RETURN_IF_ERROR(model->ImportTable(table));
    Config config = model->StoreConfigOf();
    config.l2.bytes_max = 2 * model->tables_.row_count() * model->tables_.row_bytes();
    config.l2.preload = 1;
    HPS_ASSIGN_OR_RETURN(model->store_, Store::Open(config, OpenMode::kReadOnly));
    HPS_ASSIGN_OR_RETURN(model->lookup_, model->store_->NewSession(kClickModel, {}));
    HPS_RETURN_IF_ERROR(model->MakeNetwork());
    return model;
  }
  ~CtrModel() {
    lookup_.reset();
    store_.reset();
    RemoveScratch(directory_);
  }
  CtrModel(const CtrModel&) = delete;
  CtrModel& operator=(const CtrModel&) = delete;

  // Keys of `samples` new samples: [table, sample].
  std::vector<Key> NewKeys(size_t samples) {
    std::vector<Key> keys;
    std::vector<uint64_t> places;
    stream_.Next(samples, &keys, &places);
    return keys;
  }

  absl::Status LookUp(std::span<const Key> keys, size_t samples) {
    for (size_t i = 0; i < queries_.size(); ++i) {
      queries_[i] = {.table = TableIndex{static_cast<uint32_t>(i)},
                     .keys = keys.subspan(i * samples, samples),
                     .rows = std::as_writable_bytes(RowsOf(i, samples))};
    }
    LookupCounts counts;
    HPS_RETURN_IF_ERROR(lookup_->Lookup({.queries = queries_, .timeout = kTimeout}, &counts));
    if (counts[KeyStatus::kHitL2] == counts.total()) return absl::OkStatus();
    return absl::InternalError("bench ctr: a row was not in level 2");
  }

  // REQUIRES: LookUp of as many samples.
  absl::Status Predict(size_t samples) {
    const NetworkSignature& signature = predictor_->signature();
    prediction_.Reset(signature.inputs.size(), signature.outputs.size());
    prediction_.batch = samples;
    for (size_t i = 0; i < signature.inputs.size(); ++i) {
      const NetworkSignature::Input& input = signature.inputs[i];
      if (input.table.has_value()) {
        prediction_.inputs[i].rows = RowsOf(*input.table, samples).data();
      } else {
        prediction_.inputs[i].sent =
            AsBytes(std::span<const float>(dense_).first(samples * kCtrDense));
        prediction_.inputs[i].sample_dims = {kCtrDense};
      }
    }
    prediction_.outputs[0] = std::as_writable_bytes(std::span(scores_)).data();
    const std::array<const Prediction*, 1> requests = {&prediction_};
    return prediction_session_->Run(requests);
  }

  // The network alone, on rows that lie in memory.
  absl::Status RunNetwork(size_t samples) {
    std::vector<DenseTensor> inputs(network_->inputs().size());
    const std::array<int64_t, 2> dense_dims = {static_cast<int64_t>(samples), kCtrDense};
    const std::array<int64_t, 2> row_dims = {static_cast<int64_t>(samples), kDim};
    const std::array<int64_t, 2> score_dims = {static_cast<int64_t>(samples), 1};
    const std::vector<NetworkSignature::Input>& signature = predictor_->signature().inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (signature[i].table.has_value()) {
        const std::span<float> rows = RowsOf(*signature[i].table, samples);
        inputs[i] = {.data = std::as_writable_bytes(rows).data(), .dims = row_dims};
      } else {
        inputs[i] = {.data = std::as_writable_bytes(std::span(dense_)).data(), .dims = dense_dims};
      }
    }
    const DenseTensor output = {.data = std::as_writable_bytes(std::span(scores_)).data(),
                                .dims = score_dims};
    return network_session_->Run(inputs, {&output, 1});
  }

  uint64_t row_count() const { return tables_.row_count(); }

 private:
  CtrModel(std::string directory, double scale)
      : directory_(std::move(directory)),
        tables_({.scale = scale, .dim = kDim}),
        stream_(tables_, kAlpha, 1),
        queries_(tables_.table_count()),
        rows_(tables_.table_count() * kBatchMax * kDim),
        dense_(kBatchMax * kCtrDense),
        scores_(kBatchMax) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> distribution(0, 1);
    for (float& value : dense_) value = distribution(random);
  }

  Config StoreConfigOf() const {
    Config config;
    config.store.path = directory_ + "/store";
    config.l1.devices_auto = false;
    return config;
  }

  absl::Status ImportTable(size_t table) const {
    std::mt19937_64 random(table + 1);
    std::uniform_real_distribution<float> distribution(-0.1F, 0.1F);
    std::vector<Key> keys(tables_.rows(table));
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = tables_.KeyOf(table, i + 1);
    std::vector<float> rows(keys.size() * kDim);
    for (float& value : rows) value = distribution(random);
    ImportRequest request;
    request.name = absl::StrCat(kClickModel, "/", ClickModel::TableName(table));
    request.memory = {.keys = keys, .rows = AsBytes(std::span<const float>(rows)), .dim = kDim};
    return ImportTables(StoreConfigOf(), request).status();
  }

  absl::Status MakeNetwork() {
    std::vector<std::string> names;
    for (size_t i = 0; i < tables_.table_count(); ++i) names.push_back(ClickModel::TableName(i));
    const auto network = std::make_shared<const ModelNetwork>(MakeCtrNetwork(names, kDim));
    HPS_ASSIGN_OR_RETURN(predictor_, Predictor::Make(network, lookup_->tables(), {}));
    HPS_ASSIGN_OR_RETURN(prediction_session_, predictor_->NewSession());
    HPS_ASSIGN_OR_RETURN(network_, MakeDenseNetwork(*network, {}));
    HPS_ASSIGN_OR_RETURN(network_session_, network_->NewSession());
    return absl::OkStatus();
  }

  std::span<float> RowsOf(size_t table, size_t samples) {
    return std::span(rows_).subspan(table * samples * kDim, samples * kDim);
  }

  const std::string directory_;
  const ClickModel tables_;
  ClickStream stream_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<LookupSession> lookup_;
  std::unique_ptr<Predictor> predictor_;
  std::unique_ptr<PredictionSession> prediction_session_;
  std::unique_ptr<DenseNetwork> network_;  // the same once more, to be run by itself
  std::unique_ptr<DenseSession> network_session_;
  Prediction prediction_;
  std::vector<HostTableQuery> queries_;
  std::vector<float> rows_;  // [table, sample, dim]
  std::vector<float> dense_;
  std::vector<float> scores_;
};

absl::StatusOr<double> TimePredictionUs(CtrModel& model, std::span<const Key> keys, size_t samples,
                                        double& lookup_us) {
  const Stopwatch watch;
  HPS_RETURN_IF_ERROR(model.LookUp(keys, samples));
  lookup_us = watch.us();
  HPS_RETURN_IF_ERROR(model.Predict(samples));
  return watch.us();
}

absl::StatusOr<double> TimeNetworkUs(CtrModel& model, size_t samples) {
  const Stopwatch watch;
  HPS_RETURN_IF_ERROR(model.RunNetwork(samples));
  return watch.us();
}

absl::StatusOr<Result> Measure(CtrModel& model, const BatchSize& size) {
  std::vector<std::vector<Key>> keys;
  for (size_t i = 0; i < kKeySets; ++i) keys.push_back(model.NewKeys(size.samples));
  std::vector<double> predictions_us;
  std::vector<double> networks_us;
  std::vector<double> lookups_us;
  const size_t warm_up_runs = size.runs / 10 + kKeySets;
  for (size_t run = 0; run < warm_up_runs + size.runs; ++run) {
    double prediction_us = 0;
    double network_us = 0;
    double lookup_us = 0;
    // The two take turns at going first.
    for (const bool whole : {run % 2 == 0, run % 2 != 0}) {
      if (whole) {
        HPS_ASSIGN_OR_RETURN(
            prediction_us, TimePredictionUs(model, keys[run % kKeySets], size.samples, lookup_us));
      } else {
        HPS_ASSIGN_OR_RETURN(network_us, TimeNetworkUs(model, size.samples));
      }
    }
    if (run < warm_up_runs) continue;
    predictions_us.push_back(prediction_us);
    networks_us.push_back(network_us);
    lookups_us.push_back(lookup_us);
  }
  Result result = MakeResult("predict", "us", Median(predictions_us), Median(networks_us));
  result.params = {{"batch", absl::StrCat(size.samples)},
                   {"tables", "26"},
                   {"dim", absl::StrCat(kDim)},
                   {"rows", absl::StrCat(model.row_count())}};
  result.target = "<= 1.15";
  result.p50 = result.figure;
  result.p99 = Quantile(predictions_us, 0.99);
  result.runs = size.runs;
  result.measured.emplace_back("lookup_us", Median(lookups_us));
  result.measured.emplace_back("samples_per_s",
                               static_cast<double>(size.samples) / result.figure * 1e6);
  return result;
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunCtrScenario(const Options& options) {
  if (options.device >= 0) return RunCtrOnDevice(options);
  const auto model =
      CtrModel::Create(options.directory + "/ctr", options.quick ? kQuickScale : kScale);
  if (absl::IsUnimplemented(model.status())) {
    return std::vector<Result>{SkippedResult(
        "predict", "us", "this build runs no dense networks: build it with OpenVINO")};
  }
  HPS_RETURN_IF_ERROR(model.status());
  std::vector<BatchSize> sizes = {{.samples = 1, .runs = 2000},
                                  {.samples = 64, .runs = 600},
                                  {.samples = kBatchMax, .runs = 120}};
  std::vector<Result> results;
  for (BatchSize& size : sizes) {
    if (options.quick) size.runs = 4;
    HPS_ASSIGN_OR_RETURN(Result result, Measure(**model, size));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace hps::bench
