// Writes records to chosen partitions, as a producer of any kind could: what KafkaProducer does not
// do.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "update/kafka/kafka_client.h"

namespace hps {

class TestKafkaWriter {
 public:
  explicit TestKafkaWriter(const std::string& brokers) {
    auto client = KafkaClient::Make({.type = RD_KAFKA_PRODUCER,
                                     .brokers = brokers,
                                     .fixed = {{"linger.ms", "0"},
                                               {"enable.idempotence", "true"},
                                               {"message.max.bytes", "20000000"}}});
    EXPECT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  ~TestKafkaWriter() { Flush(); }

  // The record is sent in order with others of its partition. `producer_partitions` = 0: no header.
  void Write(const std::string& topic, uint32_t partition, const std::string& payload,
             int64_t time_ms = 0, uint32_t producer_partitions = 0) {
    std::array<std::byte, sizeof(uint32_t)> count{};
    StoreLittleEndian<uint32_t>(count.data(), producer_partitions);
    std::string copy = payload;
    std::array<rd_kafka_vu_t, 6> values{};
    values[0].vtype = RD_KAFKA_VTYPE_TOPIC;
    values[0].u.cstr = topic.c_str();
    values[1].vtype = RD_KAFKA_VTYPE_PARTITION;
    values[1].u.i32 = static_cast<int32_t>(partition);
    values[2].vtype = RD_KAFKA_VTYPE_VALUE;
    values[2].u.mem = {.ptr = copy.data(), .size = copy.size()};
    values[3].vtype = RD_KAFKA_VTYPE_MSGFLAGS;
    values[3].u.i = RD_KAFKA_MSG_F_COPY;
    values[4].vtype = RD_KAFKA_VTYPE_TIMESTAMP;
    values[4].u.i64 = time_ms;
    values[5].vtype = RD_KAFKA_VTYPE_HEADER;
    values[5].u.header = {.name = kPartitionsHeader, .val = count.data(), .size = 4};
    rd_kafka_error_t* const error =
        rd_kafka_produceva(client_->handle(), values.data(), producer_partitions == 0 ? 5 : 6);
    EXPECT_EQ(error, nullptr) << rd_kafka_error_string(error);
  }

  // Returns when all records are on the brokers.
  void Flush() { EXPECT_EQ(rd_kafka_flush(client_->handle(), 60'000), RD_KAFKA_RESP_ERR_NO_ERROR); }

 private:
  std::unique_ptr<KafkaClient> client_;
};

}  // namespace hps
