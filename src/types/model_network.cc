#include "hps/model_network.h"

#include "base/content_hash.h"

namespace hps {

const char* PoolingName(RowPooling pooling) {
  switch (pooling) {
    case RowPooling::kSum:
      return "sum";
    case RowPooling::kMean:
      return "mean";
    case RowPooling::kNone:
      return "none";
  }
  return "unknown";
}

std::string NetworkDigest(const ModelNetwork& network) {
  ContentHash hash;
  hash.Add(network.onnx);
  for (const NetworkInput& input : network.inputs) {
    hash.Add(input.name);
    hash.Add(input.table);
    hash.Add(PoolingName(input.pooling));
  }
  return hash.Digits();
}

}  // namespace hps
