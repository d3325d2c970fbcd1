#include "server/pages/metric_list.h"

#include <prometheus/text_serializer.h>

#include <limits>
#include <sstream>

namespace hps::server {

prometheus::ClientMetric& MetricFamilyBuilder::NewMetric(const MetricLabels& labels) {
  prometheus::ClientMetric& metric = family_->metric.emplace_back();
  for (const auto& [name, value] : labels) metric.label.push_back({name, value});
  return metric;
}

MetricFamilyBuilder& MetricFamilyBuilder::Add(double value, const MetricLabels& labels) {
  prometheus::ClientMetric& metric = NewMetric(labels);
  if (family_->type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return *this;
}

MetricFamilyBuilder& MetricFamilyBuilder::Add(const LatencyHistogram& histogram,
                                              const MetricLabels& labels) {
  prometheus::ClientMetric& metric = NewMetric(labels);
  uint64_t cumulative = 0;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    cumulative += histogram.counts[i];
    const bool is_last = i == kLatencyBucketSeconds.size();
    metric.histogram.bucket.push_back(
        {cumulative, is_last ? std::numeric_limits<double>::infinity() : kLatencyBucketSeconds[i]});
  }
  // Counted apart from the buckets while requests end: only these agree with them.
  metric.histogram.sample_count = cumulative;
  metric.histogram.sample_sum = static_cast<double>(histogram.sum_ns) * 1e-9;
  return *this;
}

MetricFamilyBuilder& MetricFamilyBuilder::Add(const FreshnessHistogram& histogram,
                                              const MetricLabels& labels) {
  prometheus::ClientMetric& metric = NewMetric(labels);
  uint64_t cumulative = 0;
  for (size_t i = 0; i < FreshnessHistogram::kBuckets; ++i) {
    cumulative += histogram.counts[i];
    const bool is_last = i + 1 == FreshnessHistogram::kBuckets;
    metric.histogram.bucket.push_back({cumulative, is_last ? std::numeric_limits<double>::infinity()
                                                           : FreshnessHistogram::BoundSeconds(i)});
  }
  metric.histogram.sample_count = cumulative;
  metric.histogram.sample_sum = histogram.seconds_sum;
  return *this;
}

MetricFamilyBuilder& MetricFamilyBuilder::Add(
    const std::vector<std::pair<uint64_t, uint64_t>>& buckets, double sum,
    const MetricLabels& labels) {
  prometheus::ClientMetric& metric = NewMetric(labels);
  uint64_t cumulative = 0;
  for (const auto& [bound, count] : buckets) {
    cumulative += count;
    metric.histogram.bucket.push_back({cumulative, static_cast<double>(bound)});
  }
  metric.histogram.bucket.push_back({cumulative, std::numeric_limits<double>::infinity()});
  metric.histogram.sample_count = cumulative;
  metric.histogram.sample_sum = sum;
  return *this;
}

MetricFamilyBuilder MetricList::Family(const char* name, const char* help,
                                       prometheus::MetricType type) {
  for (prometheus::MetricFamily& family : families_) {
    if (family.name == name) return MetricFamilyBuilder(&family);
  }
  families_.push_back({.name = name, .help = help, .type = type, .metric = {}});
  return MetricFamilyBuilder(&families_.back());
}

std::string MetricList::Text() const {
  std::vector<prometheus::MetricFamily> used;
  for (const prometheus::MetricFamily& family : families_) {
    if (!family.metric.empty()) used.push_back(family);
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, used);
  return text.str();
}

}  // namespace hps::server
