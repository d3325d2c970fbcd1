// Builds the families that the metrics page consists of, by name and in the order of first use.
//
// For one thread.
#pragma once

#include <prometheus/metric_family.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "hps/update_statistics.h"
#include "server/core/server_statistics.h"

namespace hps::server {

using MetricLabels = std::vector<std::pair<const char*, std::string>>;

// A family: what Prometheus' text says once above its samples.
class MetricFamilyBuilder {
 public:
  explicit MetricFamilyBuilder(prometheus::MetricFamily* family) : family_(family) {}

  MetricFamilyBuilder& Add(double value, const MetricLabels& labels = {});
  MetricFamilyBuilder& Add(uint64_t value, const MetricLabels& labels = {}) {
    return Add(static_cast<double>(value), labels);
  }
  MetricFamilyBuilder& Add(bool value, const MetricLabels& labels = {}) {
    return Add(value ? 1.0 : 0.0, labels);
  }
  MetricFamilyBuilder& Add(const LatencyHistogram& histogram, const MetricLabels& labels);
  MetricFamilyBuilder& Add(const FreshnessHistogram& histogram, const MetricLabels& labels);
  // Buckets by an upper bound each, not cumulative, and the sum of what was observed.
  MetricFamilyBuilder& Add(const std::vector<std::pair<uint64_t, uint64_t>>& buckets, double sum,
                           const MetricLabels& labels);

 private:
  prometheus::ClientMetric& NewMetric(const MetricLabels& labels);

  prometheus::MetricFamily* const family_;
};

class MetricList {
 public:
  MetricFamilyBuilder Counter(const char* name, const char* help) {
    return Family(name, help, prometheus::MetricType::Counter);
  }
  MetricFamilyBuilder Gauge(const char* name, const char* help) {
    return Family(name, help, prometheus::MetricType::Gauge);
  }
  MetricFamilyBuilder Histogram(const char* name, const char* help) {
    return Family(name, help, prometheus::MetricType::Histogram);
  }

  // Families without a sample are left out.
  std::string Text() const;

 private:
  MetricFamilyBuilder Family(const char* name, const char* help, prometheus::MetricType type);

  std::deque<prometheus::MetricFamily> families_;  // a builder points at its family
};

}  // namespace hps::server
